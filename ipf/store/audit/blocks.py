"""Blocks of audit records: how the trail is written and read back, many records to a row.

What arrives: records, in any order.  What leaves: blocks of up to 256 records of one tenant and surface, in the order
of their ids, whose times lie within ten seconds.  A block says what it is searched by: its first and last id, which
kinds of records it has and how many of each (so that they are counted without being read), and its keys, hashed to 32
bits.  Whoever looks for a key looks into the blocks that have its hash: a hash that two keys share costs a look, never
a wrong answer.  The records themselves are columns of a JSON text, compressed: a record of a read takes 60 bytes with
its indexes, a seventh of a row of its own.

Keys are those of `ports.audit.keys_of` and, of each kind, `n:` agent, `o:` outcome, `x:` action, `i:` interaction.  A
correlation id that we made (UUID version 7) within the same four seconds as the record is no key: `window` finds it.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

import orjson

from ipf.ports.audit import Audit, Kind, agent_keys, beginning
from ipf.ports.mapping import Origin

SPAN = 10_000
"""Milliseconds: the first and the last record of a block are less than that apart."""

WINDOW = 1 << 12
"""Milliseconds of a window: UUIDs version 7 of one window begin with the same ten characters."""

_MOST = 256
_MOST_NAMED = 2000  # entities and patients
_SMALL = 400  # bytes: a shorter text is not worth compressing
_ZERO = 1 << 31
_ABOUT = zlib.crc32(b"e:")
_BEGINNING = re.compile("[0-9a-f]{8}-[0-9a-f]")
_KIND = itemgetter(0)
_ORDER = itemgetter(1, 2)  # time and tail: the order of ids


@dataclass(frozen=True, slots=True)
class Block:
    """A row of the trail."""

    tenant: str
    surface: str
    first_id: str
    last_id: str
    kinds: Sequence[str]
    counts: Sequence[int]
    keys: Sequence[int]
    body: bytes


@dataclass(frozen=True, slots=True)
class Opened:
    """The records of a block, column by column; `numbers`: places in `kinds`."""

    kinds: Sequence[Kind]
    numbers: Sequence[int]
    ats: Sequence[int]
    tails: Sequence[str]
    durations: Sequence[int]
    correlation_ids: Sequence[str]
    targets: Sequence[str | None]
    entities: Sequence[Sequence[str]]
    patients: Sequence[Sequence[str]]
    origins: Sequence[Any]

    def audit(self, place: int) -> Audit:
        """One record."""
        return Audit(
            self.kinds[self.numbers[place]], self.ats[place], self.tails[place], self.durations[place],
            self.correlation_ids[place], self.targets[place], tuple(self.entities[place]), tuple(self.patients[place]),
            _origin(self.origins[place]) if self.origins else None,
        )  # fmt: skip


def blocks_of(audits: Sequence[Audit]) -> list[Block]:
    """These records, packed: the same for the same records in the same order."""
    return [_packed(part) for group in _groups(audits) for part in _cut(sorted(group, key=_ORDER))]


def opened(tenant: str, surface: str, kinds: Iterable[str], body: bytes) -> Opened:
    """The records of a block."""
    text = body if body[:1] == b"[" else zlib.decompress(body)
    numbers, ats, *rest = orjson.loads(text)
    first = ats[0]
    ats = [first, *(first + later for later in ats[1:])]
    return Opened([kind_of(tenant, surface, kind) for kind in kinds], numbers, ats, *rest)


def hashed(key: str) -> int:
    """What stands for a key in a block."""
    return zlib.crc32(key.encode("utf-8", "replace")) - _ZERO


def window(correlation_id: str) -> int | None:
    """The millisecond at which the window of this id begins; None when it is always a key."""
    if correlation_id[14:15] != "7" or not _BEGINNING.match(correlation_id):
        return None
    return int(correlation_id[:8] + correlation_id[9], 16) * WINDOW


def _groups(audits: Sequence[Audit]) -> Iterable[Sequence[Audit]]:
    """By tenant and surface."""
    if len({kind[:2] for kind in _different(map(_KIND, audits)).values()}) == 1:
        return (audits,)
    groups: dict[tuple[object, ...], list[Audit]] = {}
    for audit in audits:
        groups.setdefault(audit.kind[:2], []).append(audit)
    return groups.values()


def _cut(audits: list[Audit]) -> Iterator[list[Audit]]:
    """Parts that a block can hold: as many records as it may have, or as many as these bounds let it."""
    for first in range(0, len(audits), _MOST):
        part = audits[first : first + _MOST]
        if part[-1].at - part[0].at < SPAN and sum([len(one[6]) + len(one[7]) for one in part]) <= _MOST_NAMED:
            yield part
        else:
            yield from _cut_small(part)


def _cut_small(audits: list[Audit]) -> Iterator[list[Audit]]:
    start, named = 0, 0
    for end, (_, at, _, _, _, _, entities, patients, _) in enumerate(audits):
        named += len(entities) + len(patients)
        if end > start and (named > _MOST_NAMED or at - audits[start].at >= SPAN):
            yield audits[start:end]
            start, named = end, len(entities) + len(patients)
    yield audits[start:]


def _different(kinds: Iterable[Kind]) -> dict[int, Kind]:
    """The kinds by identity, which costs less than comparing them: equal ones are mostly one object."""
    return {id(kind): kind for kind in kinds}


def _packed(audits: list[Audit]) -> Block:
    kinds, ats, tails, durations, correlation_ids, targets, entities, patients, origins = zip(*audits, strict=True)
    different = _different(kinds)
    place_of = {kind: place for place, kind in enumerate(dict.fromkeys(different.values()))}
    places = {one: place_of[kind] for one, kind in different.items()}
    numbers = [places[id(kind)] for kind in kinds] if len(place_of) > 1 else [0] * len(kinds)
    first = ats[0]
    columns = (
        numbers, (first, *[at - first for at in ats[1:]]), tails, durations, correlation_ids, targets, entities,
        patients, [_columns_of(one) for one in origins] if any(origins) else (),
    )  # fmt: skip
    try:
        text = orjson.dumps(columns)
    except TypeError:  # half of a surrogate pair
        return _packed([_sound(audit) for audit in audits])
    known = [_known(kind) for kind in place_of]
    keys = _about(entities, patients).union(*[keys for _, keys in known], _correlated(ats, correlation_ids))
    counts = Counter(numbers)
    return Block(
        kinds[0].tenant, kinds[0].surface, audits[0].id, audits[-1].id,
        [text for text, _ in known], [counts[place] for place in range(len(known))], sorted(keys),
        zlib.compress(text, 1) if len(text) > _SMALL else text,
    )  # fmt: skip


def _about(entities: Iterable[Sequence[str]], patients: Iterable[Sequence[str]]) -> set[int]:
    about = {reference.partition("/_history/")[0] for reference in chain.from_iterable(entities)}
    about.update(*patients)
    return {zlib.crc32(one, _ABOUT) - _ZERO for one in "\n".join(about).encode().split(b"\n")} if about else set()


def _correlated(ats: Sequence[int], correlation_ids: Iterable[str]) -> set[int]:
    """Of the correlation ids, those that their time does not find."""
    begins = {at // WINDOW: beginning(at)[:10] for at in (ats[0], ats[-1])}
    begin = begins[ats[0] // WINDOW]
    if len(begins) == 1:  # as nearly always
        others = [id for id in correlation_ids if id[:10] != begin or id[14:15] != "7"]
    else:
        others = [
            id for at, id in zip(ats, correlation_ids, strict=True) if id[:10] != beginning(at)[:10] or id[14:15] != "7"
        ]
    return {hashed(f"c:{id}") for id in others if id}


@lru_cache(maxsize=4096)
def _known(kind: Kind) -> tuple[str, frozenset[int]]:
    """A kind as text, without tenant and surface, and its keys."""
    keys = (
        *agent_keys(kind), f"n:{kind.agent}", f"o:{kind.outcome}", f"x:{kind.action}", f"i:{kind.interaction}",
    )  # fmt: skip
    return orjson.dumps(kind[2:]).decode(), frozenset(map(hashed, keys))


@lru_cache(maxsize=4096)
def kind_of(tenant: str, surface: str, text: str) -> Kind:
    """A kind from its text in a block."""
    return Kind(tenant, surface, *orjson.loads(text))


def _columns_of(origin: Origin | None) -> tuple[object, ...] | None:
    return None if origin is None else (origin.agent_system, origin.source_system, origin.details)


def _origin(columns: Any) -> Origin | None:
    if columns is None:
        return None
    agent_system, source_system, rows = columns
    return Origin(agent_system, source_system, tuple((name, value) for name, value in rows))


def _sound(value: Any) -> Any:
    """A value whose texts can be written as UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Audit | Kind):
        return type(value)(*map(_sound, value))
    if isinstance(value, Origin):
        return Origin(*map(_sound, attrgetter("agent_system", "source_system", "details")(value)))
    return tuple(map(_sound, value)) if isinstance(value, tuple) else value
