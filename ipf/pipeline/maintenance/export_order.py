"""In which order a bulk export reads the resources of a type.

As they are: by rid, in order of creation.  De-identified: by a keyed hash of the rid.  In order of creation, neighbours
of different patients would have happened at the same time, and the days between their moved dates would tell by how
many days each was moved.

The places of the next resources are kept in memory, so that a type is not sorted again for each page; the cursor of
the job is the last place, and another process finds its next places by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from ipf.ports import Version
from ipf.ports.fhir.exports import ExportJob, Exports

AHEAD = 20_000  # places that are read at once
_MOST_JOBS = 4  # whose places are kept


@dataclass(frozen=True, slots=True)
class Page:
    """The next resources of a job.  `after`: the cursor behind them.  `is_last`: of their type."""

    versions: Sequence[Version]
    after: int
    is_last: bool


@dataclass(slots=True)
class _Ahead:
    """The next (place, rid) of a type, and whether they are its last ones."""

    type_number: int
    places: list[tuple[int, int]]
    is_all: bool


class ExportOrder:
    """Reads pages.  `limit`: resources of a page."""

    def __init__(self, exports: Exports, limit: int, ahead: int = AHEAD) -> None:
        self._exports = exports
        self._limit = limit
        self._most = ahead
        self._ahead: dict[tuple[str, str], _Ahead] = {}

    async def created(self, job: ExportJob) -> Page:
        """The next page in order of creation."""
        found = await self._exports.page(job, self._limit)
        return Page(found, found[-1].rid if found else 0, len(found) < self._limit)

    async def shuffled(self, job: ExportJob, seed: int) -> Page:
        """The next page in an order that only `seed` tells."""
        ahead = await self._next_places(job, seed)
        last = ahead.places[: self._limit][-1:]
        taken = list(takewhile(lambda one: one[0] <= last[0][0], ahead.places))  # equal places stay together
        found = await self._exports.versions(job, [rid for _, rid in taken])
        is_last = ahead.is_all and len(taken) == len(ahead.places)
        return Page(found, last[0][0] if last else 0, is_last)

    async def _next_places(self, job: ExportJob, seed: int) -> _Ahead:
        """The places behind the cursor: those in memory, else the next ones of the store."""
        key = job.tenant, job.id
        known = self._ahead.pop(key, None)
        if known is not None and known.type_number == job.type_number:
            known.places = [one for one in known.places if one[0] > job.after_rid]
        if known is None or known.type_number != job.type_number or not known.places:
            places = await self._exports.places(job, seed, self._most)
            known = _Ahead(job.type_number, list(places), len(places) < self._most)
        self._ahead[key] = known
        while len(self._ahead) > _MOST_JOBS:
            del self._ahead[next(iter(self._ahead))]
        return known
