"""In-memory unmapped codes and overrides on a MemoryInbox.  Contract: `tests/contracts/unmapped_codes.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from ipf.errors import Category, Problem, WriteConflict
from ipf.ports import (
    Conversion,
    InstalledMap,
    Json,
    MappingStore,
    Override,
    OverrideFilter,
    Requeued,
    Status,
    UnmappedCodes,
    UnmappedFilter,
    UnmappedRow,
    WrongState,
)
from ipf.ports.messages.inbox import EVERY_TENANT
from tests.fakes.inbox import MemoryInbox, Row

_Key = tuple[str, str, str, str]


class MemoryUnmappedCodes:
    """`ports.UnmappedCodes` and `ports.MappingStore` without a database."""

    def __init__(self, inbox: MemoryInbox) -> None:
        self._inbox = inbox
        self._ids: dict[_Key, int] = {}
        self._forgotten: dict[int, int] = {}
        self._overrides: dict[_Key, Override] = {}
        self._installed: dict[tuple[str, str], InstalledMap] = {}
        self._epochs = (1, 1)
        self._last = 0

    def _keys(self) -> dict[_Key, list[tuple[int, datetime, int]]]:
        found: dict[_Key, list[tuple[int, datetime, int]]] = {}
        for number, (row, code, at) in enumerate(self._inbox.noted):
            key = (row.message.tenant, row.message.source_system, code.concept_map, code.code)
            found.setdefault(key, []).append((row.original_id or row.id, at, number))
            self._ids.setdefault(key, len(self._ids) + 1)
        return found

    def _messages(self, number: int, met: list[tuple[int, datetime, int]]) -> list[int]:
        forgotten = self._forgotten.get(number, 0)
        return sorted({message for message, _, at in met if at >= forgotten}, reverse=True)

    def _rows(self, tenant: str) -> list[UnmappedRow]:
        rows = []
        for (owner, sender, table, code), met in self._keys().items():
            if tenant not in (EVERY_TENANT, owner):
                continue
            number = self._ids[owner, sender, table, code]
            override = self._overrides.get((owner, sender, table, code)) or self._overrides.get(
                (owner, "", table, code)
            )
            times = [at for _, at, _ in met]
            kept = len(self._messages(number, met))
            rows.append(
                UnmappedRow(
                    number, sender, table, code, min(times), max(times), len(met), kept,
                    override.id if override else None, owner,
                )
            )  # fmt: skip
        return sorted(rows, key=lambda row: (row.last_seen, row.id), reverse=True)

    async def unmapped(self, wanted: UnmappedFilter, limit: int, offset: int) -> tuple[int, Sequence[UnmappedRow]]:
        """See `ports.UnmappedCodes.unmapped`."""
        rows = [
            row
            for row in self._rows(wanted.tenant)
            if wanted.source_system in (None, row.source_system)
            and wanted.concept_map in (None, row.concept_map)
            and wanted.code in (None, row.code)
            and wanted.has_override in (None, row.override_id is not None)
        ]
        return len(rows), rows[offset : offset + limit]

    async def unmapped_code(self, number: int) -> UnmappedRow | None:
        """See `ports.UnmappedCodes.unmapped_code`."""
        return next((row for row in self._rows(EVERY_TENANT) if row.id == number), None)

    async def message_ids(self, number: int, limit: int) -> list[int]:
        """See `ports.UnmappedCodes.message_ids`."""
        return next(
            (self._messages(number, met)[:limit] for key, met in self._keys().items() if self._ids[key] == number), []
        )

    async def set_override(self, override: Override) -> Override:
        """See `ports.UnmappedCodes.set_override`."""
        key = (override.tenant, override.source_system, override.concept_map, override.code)
        known, now = self._overrides.get(key), self._inbox.now()
        self._last += known is None
        kept = replace(
            override,
            id=known.id if known else self._last,
            created_at=known.created_at if known else now,
            updated_at=now,
        )
        self._overrides[key] = kept
        self._bump()
        return kept

    async def overrides(self, wanted: OverrideFilter, limit: int, offset: int) -> tuple[int, Sequence[Override]]:
        """See `ports.UnmappedCodes.overrides`."""
        rows = [
            one
            for one in self._overrides.values()
            if wanted.tenant in (EVERY_TENANT, one.tenant)
            and wanted.source_system in (None, one.source_system)
            and wanted.concept_map in (None, one.concept_map)
            and wanted.code in (None, one.code)
        ]
        rows.sort(key=lambda one: (one.updated_at, one.id), reverse=True)
        return len(rows), rows[offset : offset + limit]

    async def override(self, number: int) -> Override | None:
        """See `ports.UnmappedCodes.override`."""
        return next((one for one in self._overrides.values() if one.id == number), None)

    async def delete_override(self, number: int) -> None:
        """See `ports.UnmappedCodes.delete_override`."""
        found = await self.override(number)
        if found is None:
            raise Problem(Category.NOT_FOUND, f"there is no override {number}")
        del self._overrides[found.tenant, found.source_system, found.concept_map, found.code]
        self._bump()

    async def requeue(self, number: int, *, following: bool) -> Requeued:
        """See `ports.UnmappedCodes.requeue`."""
        if await self.unmapped_code(number) is None:
            raise Problem(Category.NOT_FOUND, f"there is no unmapped code {number}")
        met = [self._inbox.rows[one] for one in await self.message_ids(number, 10**9) if one in self._inbox.rows]
        self._forgotten[number] = len(self._inbox.noted)
        again = {row.id for row in met if row.status in (Status.DELIVERED, Status.TRANSFORMING)}
        later = self._following(met) - again if following else set()
        retried = 0
        for row in met:
            if row.status in (Status.FAILED, Status.DEAD_LETTER):
                await self._inbox.retry(row.id)
                row.mapping_epoch, retried = self._epochs[0], retried + 1
        for one in sorted(again | later):
            self._inbox.convert_again(self._inbox.rows[one], self._epochs[0], f"unmapped-code/{number}")
        return Requeued(len(again), len(later), retried)

    def _following(self, met: Sequence[Row]) -> set[int]:
        firsts: dict[tuple[str, int | None], int] = {}
        for row in met:
            key = row.message.tenant, row.message.ordering_key
            if key[1] is not None and row.status is not Status.RECEIVED:
                firsts[key] = min(row.id, firsts.get(key, row.id))
        return {
            row.id
            for row in self._inbox.rows.values()
            if row.original_id is None
            and row.status is not Status.DEAD_LETTER
            and (key := (row.message.tenant, row.message.ordering_key)) in firsts
            and row.id > firsts[key]
        }

    async def conversions(
        self, tenant: str, message_id: int | None, status: Status | None, limit: int, offset: int
    ) -> tuple[int, Sequence[Conversion]]:
        """See `ports.UnmappedCodes.conversions`."""
        rows = [
            _conversion(row)
            for row in sorted(self._inbox.rows.values(), key=lambda row: row.id, reverse=True)
            if row.original_id is not None
            and tenant in (EVERY_TENANT, row.message.tenant)
            and message_id in (None, row.original_id)
            and status in (None, row.status)
        ]
        return len(rows), rows[offset : offset + limit]

    async def retry_conversion(self, number: int) -> Conversion:
        """See `ports.UnmappedCodes.retry_conversion`."""
        row = self._in_state(number, Status.FAILED, Status.DEAD_LETTER)
        self._inbox.put_back(row)
        return _conversion(row)

    async def delete_conversion(self, number: int) -> None:
        """See `ports.UnmappedCodes.delete_conversion`."""
        del self._inbox.rows[self._in_state(number, Status.DEAD_LETTER).id]

    def _in_state(self, number: int, *allowed: Status) -> Row:
        row = self._inbox.rows.get(number)
        if row is None or row.original_id is None:
            raise Problem(Category.NOT_FOUND, f"there is no conversion {number}")
        if row.status not in allowed:
            raise WrongState(number, row.status)
        return row

    def _bump(self, *, maps: bool = False) -> None:
        epoch = self._epochs[0] + 1
        self._epochs = (epoch, epoch if maps else self._epochs[1])

    async def epochs(self) -> tuple[int, int]:
        """See `ports.MappingStore.epochs`."""
        return self._epochs

    async def all_overrides(self) -> list[Override]:
        """See `ports.MappingStore.all_overrides`."""
        return list(self._overrides.values())

    async def installed(self) -> list[InstalledMap]:
        """See `ports.MappingStore.installed`."""
        return [self._installed[key] for key in sorted(self._installed)]

    async def install(self, resource_type: str, url: str, resource_id: str, resource: Json) -> InstalledMap:
        """See `ports.MappingStore.install`."""
        known = next(
            (one for one in self._installed.values() if (one.resource_type, one.url) == (resource_type, url)), None
        )
        if known is None and (resource_type, resource_id) in self._installed:
            raise WriteConflict
        number, kept = (known.version + 1, known.id) if known else (1, resource_id)
        made = InstalledMap(resource_type, kept, url, number, self._inbox.now(), resource)
        self._installed[resource_type, kept] = made
        self._bump(maps=True)
        return made

    async def remove(self, resource_type: str, resource_id: str) -> None:
        """See `ports.MappingStore.remove`."""
        if self._installed.pop((resource_type, resource_id), None) is None:
            raise Problem(Category.NOT_FOUND, f"{resource_type}/{resource_id} was not installed here")
        self._bump(maps=True)

    async def maps_changed(self) -> None:
        """See `ports.MappingStore.maps_changed`."""
        self._bump(maps=True)


def _conversion(row: Row) -> Conversion:
    assert row.original_id is not None and row.requested_at is not None
    return Conversion(
        row.id, row.original_id, row.requested_at, row.reason, row.status, row.attempt_count, row.last_attempt_at,
        row.next_attempt_at, row.last_error, row.delivered_at, row.message.correlation_id, row.message.tenant,
        row.permanent,
    )  # fmt: skip


_codes: type[UnmappedCodes] = MemoryUnmappedCodes
_store: type[MappingStore] = MemoryUnmappedCodes
