"""The transitive closure of a hierarchy in which a concept may have several parents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


class Cycle(ValueError):
    """A concept is its own ancestor.  `concept`: one of the cycle."""

    def __init__(self, concept: int) -> None:
        super().__init__("the hierarchy has a cycle")
        self.concept = concept


def ancestors(parents: Mapping[int, Sequence[int]], last: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(concept, itself and its ancestors, ascending) for the concepts 1 to `last`.

    Raises Cycle.
    """
    found: dict[int, tuple[int, ...]] = {}
    open_: set[int] = set()
    for start in range(1, last + 1):
        pending = [start]
        while pending:
            concept = pending[-1]
            if concept in found:
                pending.pop()
                continue
            above = parents.get(concept, ())
            missing = [one for one in above if one not in found]
            if not missing:
                found[concept] = _union(concept, [found[one] for one in above])
                open_.discard(concept)
                pending.pop()
            elif concept in open_:
                raise Cycle(concept)
            else:
                open_.add(concept)
                pending += missing
        yield start, found[start]


def _union(concept: int, above: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    merged = {concept}
    for one in above:
        merged.update(one)
    return tuple(sorted(merged))
