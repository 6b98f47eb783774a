"""Which records of a block a search wants, and the SQL that says which blocks may have such records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from ipf.ports.audit import ADMIN, AuditFilter, Kind, agent_keys, base_of, beginning, millisecond_of
from ipf.store.audit.blocks import SPAN, WINDOW, Opened, hashed, window
from ipf.store.postgres.quoting import literal

SURFACES = {"fhir": 0, ADMIN: 1}


class Match:
    """A filter made ready for many blocks."""

    def __init__(self, wanted: AuditFilter) -> None:
        self.wanted = wanted
        self.since = None if wanted.since is None else -(-_microsecond(wanted.since) // 1000)
        self.until = None if wanted.until is None else millisecond_of(wanted.until)
        self._groups = [_Group(keys) for keys in wanted.keys]

    @property
    def is_of_kinds(self) -> bool:
        """Whether kinds and times say everything, so that nobody need look at records."""
        return self.wanted.ids is None and all(group.is_of_kinds for group in self._groups)

    @property
    def keys_are_wanted(self) -> bool:
        """Whether blocks are found by keys."""
        wanted = self.wanted
        sets = (wanted.agents, wanted.outcomes, wanted.actions, wanted.interactions)
        return bool(wanted.keys) or any(values is not None for values in sets)

    def allows(self, kind: Kind) -> bool:
        """Whether records of this kind may be wanted; whether they are, when `is_of_kinds`."""
        return self.wanted.allows(kind) and all(group.allows(kind) for group in self._groups)

    def places(self, block: Opened) -> list[int]:
        """The places of the records that are wanted."""
        allowed = [self.wanted.allows(kind) for kind in block.kinds]
        if not any(allowed):
            return []
        found = [place for place, number in enumerate(block.numbers) if allowed[number]]
        if self.since is not None:
            found = [place for place in found if block.ats[place] >= self.since]
        if self.until is not None:
            found = [place for place in found if block.ats[place] <= self.until]
        if self.wanted.ids is not None:
            ids = self.wanted.ids
            found = [place for place in found if beginning(block.ats[place]) + block.tails[place] in ids]
        for group in self._groups:
            found = list(filter(group.test(block), found))
        return found

    def conditions(self) -> list[str]:
        """What holds for every block that has such records, as SQL; a block is `b`."""
        found = [*self.times(), *(group.condition() for group in self._groups)]
        found += [
            _overlap(f"{letter}:{value}" for value in sorted(values, key=str))
            for letter, values in (
                ("n", self.wanted.agents), ("o", self.wanted.outcomes), ("x", self.wanted.actions),
                ("i", self.wanted.interactions),
            )
            if values is not None
        ]  # fmt: skip
        return found

    def times(self) -> list[str]:
        """Of the conditions, surface and times: what blocks are in the order of."""
        found = [] if self.wanted.surface is None else [f"b.surface = {SURFACES[self.wanted.surface]}"]
        if self.since is not None:
            found.append(_not_before(self.since))
        if self.until is not None:
            found.append(_not_after(self.until))
        return found

    def inside(self) -> list[str]:
        """What holds for blocks all of whose times are wanted."""
        found = [] if self.since is None else [f"b.first_id >= {_lowest(self.since)}"]
        return found if self.until is None else [*found, f"b.last_id < {_lowest(self.until + 1)}"]


class _Group:
    """Keys of which a record must have one."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys
        self._about = frozenset(key[2:] for key in keys if key.startswith("e:"))
        self._agents = frozenset(key for key in keys if key.startswith("a:"))
        self._correlated = frozenset(key[2:] for key in keys if key.startswith("c:"))
        self.is_of_kinds = not self._about and not self._correlated

    def allows(self, kind: Kind) -> bool:
        """Whether records of this kind have one, or may have."""
        return not self.is_of_kinds or not self._agents.isdisjoint(agent_keys(kind))

    def test(self, block: Opened) -> Callable[[int], bool]:
        """The test of a place."""
        by_kind = [not self._agents.isdisjoint(agent_keys(kind)) for kind in block.kinds]
        about, correlated, numbers = self._about, self._correlated, block.numbers

        def has_one(place: int) -> bool:
            return (
                by_kind[numbers[place]]
                or block.correlation_ids[place] in correlated
                or not about.isdisjoint(block.patients[place])
                or any(base_of(one) in about for one in block.entities[place])
            )

        return has_one

    def condition(self) -> str:
        """What holds for blocks that may have one."""
        found = [_overlap(self._keys)]
        for begin in {window(one) for one in self._correlated} - {None}:
            assert begin is not None
            found.append(f"({_not_before(begin)} AND {_not_after(begin + WINDOW - 1)})")
        return f"({' OR '.join(found)})"


def behind(id: str, *, oldest_first: bool) -> str:
    """What holds for blocks that have records behind this one."""
    at = int(id[:8] + id[9:13], 16)
    if oldest_first:
        return f"b.last_id > {_uuid(id)} AND b.first_id > {_lowest(at - SPAN)}"
    return f"b.first_id < {_uuid(id)} AND b.last_id < {_lowest(at + SPAN)}"


def holding(ids: Iterable[str], within: Sequence[str]) -> str:
    """What holds for blocks that may have one of these records; `within`: what is known of such a block `x`."""
    wanted = sorted(ids)
    ends = [_lowest(int(id[:8] + id[9:13], 16) + SPAN) for id in wanted]
    return f"""b.last_id = ANY (ARRAY(
        SELECT x.last_id FROM unnest(ARRAY[{",".join(map(_uuid, wanted))}]::uuid[], ARRAY[{",".join(ends)}]::uuid[])
            AS i(id, last), LATERAL (
            SELECT x.last_id FROM audit_blocks x WHERE {" AND ".join(within)}
                AND x.last_id >= i.id AND x.last_id < i.last AND x.first_id <= i.id) x))"""


def least_from(moment: datetime) -> str:
    """The least id of what is recorded from this moment on."""
    return _lowest(-(-_microsecond(moment) // 1000))


def _not_before(at: int) -> str:
    return f"b.last_id >= {_lowest(at)} AND b.first_id >= {_lowest(at - SPAN)}"


def _not_after(at: int) -> str:
    return f"b.first_id < {_lowest(at + 1)} AND b.last_id < {_lowest(at + 1 + SPAN)}"


def _overlap(keys: Iterable[str]) -> str:
    return f"b.keys && '{{{','.join(str(hashed(key)) for key in keys)}}}'::integer[]"


def _lowest(at: int) -> str:
    """The least id of a millisecond."""
    return _uuid(f"{beginning(min(max(at, 0), (1 << 48) - 1))}0000-0000-000000000000")


def _uuid(id: str) -> str:
    return f"{literal(id)}::uuid"


def _microsecond(moment: datetime) -> int:
    return millisecond_of(moment) * 1000 + moment.microsecond % 1000
