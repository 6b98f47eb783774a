"""Facts about samples of the corpus, written by hand from the message: what resource has what value at what path.

The expected Bundles of the corpus are what the maps made when somebody read them; these facts were never made by a map.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from twisted.trial.unittest import TestCase

from tests.corpus import samples

Fact = tuple[str, str, str, str]
"""Type; which one of the type (`path=value`, "" = all of them); path; values in order, joined by ` | `, "" = none."""


def hold(test: TestCase, sample: str, facts: Sequence[Fact]) -> None:
    """All facts about a sample hold."""
    resources = [one["resource"] for one in samples.readable(samples.bundle(sample))["entry"]]
    wrong = []
    for fact in facts:
        resource_type, which, path, wanted = fact
        chosen = [one for one in resources if one["resourceType"] == resource_type and _is_meant(one, which)]
        found = " | ".join(as_text(value) for one in chosen for value in at(one, path.split(".")))
        if not chosen or found != wanted:
            wrong.append((*fact, found if chosen else "no such resource"))
    test.assertEqual(wrong, [], sample)


def _is_meant(resource: dict[str, Any], which: str) -> bool:
    path, _, value = which.partition("=")
    return not which or value in [as_text(one) for one in at(resource, path.split("."))]


def as_text(value: Any) -> str:
    """JSON scalars as JSON writes them."""
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def at(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """Values at a path, lists flattened; a number in the path picks an item of a list."""
    if not path:
        if isinstance(value, list):
            yield from value
        else:
            yield value
    elif isinstance(value, list):
        if path[0].isdecimal():
            yield from at(value[int(path[0])], path[1:]) if int(path[0]) < len(value) else ()
        else:
            for one in value:
                yield from at(one, path)
    elif isinstance(value, dict) and path[0] in value:
        yield from at(value[path[0]], path[1:])
