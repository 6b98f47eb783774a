"""Unmapped codes, overrides, further conversions and installed maps on PostgreSQL (the inbox database).

Each call is one committed transaction and one round trip (a list: two).  The SQL is in `unmapped_codes_sql.py`;
`PostgresInbox.settle` records codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
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
from ipf.store.inbox import unmapped_codes_sql
from ipf.store.inbox.admin import is_of
from ipf.store.postgres.database import Database, Row
from ipf.store.postgres.quoting import Value, literal

_UNMAPPED = """SELECT u.id, u.source_system, u.concept_map, u.code, u.first_seen, u.last_seen, u.met,
    (SELECT count(*) FROM unmapped_messages m WHERE m.unmapped_id = u.id), o.id, u.tenant
FROM unmapped_codes u LEFT JOIN LATERAL (
    SELECT o.id FROM code_overrides o
    WHERE o.tenant = u.tenant AND o.concept_map = u.concept_map AND o.code = u.code
      AND o.source_system IN (u.source_system, '')
    ORDER BY o.source_system DESC LIMIT 1
) o ON true"""


class PostgresUnmappedCodes:
    """`ports.UnmappedCodes` and `ports.MappingStore` on a Database that was opened with the inbox's statements."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def unmapped(self, wanted: UnmappedFilter, limit: int, offset: int) -> tuple[int, Sequence[UnmappedRow]]:
        """See `ports.UnmappedCodes.unmapped`."""
        exact = {"u.source_system": wanted.source_system, "u.concept_map": wanted.concept_map, "u.code": wanted.code}
        where = _where(wanted.tenant, "u.tenant", exact)
        if wanted.has_override is not None:
            where += f" AND o.id IS {'NOT ' if wanted.has_override else ''}NULL"
        listed = f"{_UNMAPPED} WHERE {where}"
        total, rows = await self._page(listed, "u.last_seen DESC, u.id DESC", limit, offset)
        return total, [UnmappedRow(*row) for row in rows]

    async def unmapped_code(self, number: int) -> UnmappedRow | None:
        """See `ports.UnmappedCodes.unmapped_code`."""
        row = await self._database.maybe(f"{_UNMAPPED} WHERE u.id = {literal(number)}")
        return None if row is None else UnmappedRow(*row)

    async def message_ids(self, number: int, limit: int) -> list[int]:
        """See `ports.UnmappedCodes.message_ids`."""
        return [int(row[0]) for row in await self._database.many(unmapped_codes_sql.MESSAGES.call(number, limit))]

    async def set_override(self, override: Override) -> Override:
        """See `ports.UnmappedCodes.set_override`."""
        call = unmapped_codes_sql.SET_OVERRIDE.call(
            override.tenant, override.source_system, override.concept_map, override.code, override.target_system,
            override.target_code, override.target_display,
        )  # fmt: skip
        return _override(await self._database.one(call))

    async def overrides(self, wanted: OverrideFilter, limit: int, offset: int) -> tuple[int, Sequence[Override]]:
        """See `ports.UnmappedCodes.overrides`."""
        exact = {"source_system": wanted.source_system, "concept_map": wanted.concept_map, "code": wanted.code}
        where = _where(wanted.tenant, "tenant", exact)
        listed = f"SELECT {unmapped_codes_sql.OVERRIDE_COLUMNS} FROM code_overrides WHERE {where}"
        total, rows = await self._page(listed, "updated_at DESC, id DESC", limit, offset)
        return total, [_override(row) for row in rows]

    async def override(self, number: int) -> Override | None:
        """See `ports.UnmappedCodes.override`."""
        row = await self._database.maybe(unmapped_codes_sql.OVERRIDE.call(number))
        return None if row is None else _override(row)

    async def delete_override(self, number: int) -> None:
        """See `ports.UnmappedCodes.delete_override`."""
        if await self._database.maybe(unmapped_codes_sql.DELETE_OVERRIDE.call(number)) is None:
            raise Problem(Category.NOT_FOUND, f"there is no override {number}")

    async def requeue(self, number: int, *, following: bool) -> Requeued:
        """See `ports.UnmappedCodes.requeue`."""
        script = unmapped_codes_sql.requeue(number, following, f"unmapped-code/{number}")
        row = await self._database.transact(lambda session: session.maybe(script))
        if row is None:
            raise Problem(Category.NOT_FOUND, f"there is no unmapped code {number}")
        return Requeued(*(int(count) for count in row))

    async def conversions(
        self, tenant: str, message_id: int | None, status: Status | None, limit: int, offset: int
    ) -> tuple[int, Sequence[Conversion]]:
        """See `ports.UnmappedCodes.conversions`."""
        exact = {"c.original_id": message_id, "c.status": None if status is None else status.value}
        listed = f"{unmapped_codes_sql.CONVERSIONS} AND {_where(tenant, 'c.tenant', exact)}"
        total, rows = await self._page(listed, "c.id DESC", limit, offset)
        return total, [_conversion(row) for row in rows]

    async def retry_conversion(self, number: int) -> Conversion:
        """See `ports.UnmappedCodes.retry_conversion`."""
        row = await self._database.maybe(unmapped_codes_sql.RETRY_CONVERSION.call(number))
        if row is None:
            raise await self._refusal(number)
        return _conversion(row)

    async def delete_conversion(self, number: int) -> None:
        """See `ports.UnmappedCodes.delete_conversion`."""
        if await self._database.maybe(unmapped_codes_sql.DELETE_CONVERSION.call(number)) is None:
            raise await self._refusal(number)

    async def _refusal(self, number: int) -> Exception:
        row = await self._database.maybe(unmapped_codes_sql.CONVERSION_STATUS.call(number))
        if row is None:
            return Problem(Category.NOT_FOUND, f"there is no conversion {number}")
        return WrongState(number, Status(row[0]))

    async def _page(self, listed: str, order: str, limit: int, offset: int) -> tuple[int, list[Row]]:
        total = await self._database.one(f"SELECT count(*) FROM ({listed}) AS listed")
        query = f"{listed} ORDER BY {order} LIMIT {int(limit)} OFFSET {int(offset)}"
        return int(total[0]), await self._database.many(query)

    # -- state of mapping processes

    async def epochs(self) -> tuple[int, int]:
        """See `ports.MappingStore.epochs`."""
        row = await self._database.one(unmapped_codes_sql.EPOCHS.call())
        return int(row[0]), int(row[1])

    async def all_overrides(self) -> list[Override]:
        """See `ports.MappingStore.all_overrides`."""
        return [_override(row) for row in await self._database.many(unmapped_codes_sql.ALL_OVERRIDES.call())]

    async def installed(self) -> list[InstalledMap]:
        """See `ports.MappingStore.installed`."""
        return [_installed(row) for row in await self._database.many(unmapped_codes_sql.INSTALLED.call())]

    async def install(self, resource_type: str, url: str, resource_id: str, resource: Json) -> InstalledMap:
        """See `ports.MappingStore.install`."""
        content = dumps(resource).decode()
        return _installed(
            await self._database.one(unmapped_codes_sql.INSTALL.call(resource_type, resource_id, url, content))
        )

    async def remove(self, resource_type: str, resource_id: str) -> None:
        """See `ports.MappingStore.remove`."""
        if await self._database.maybe(unmapped_codes_sql.REMOVE.call(resource_type, resource_id)) is None:
            raise Problem(Category.NOT_FOUND, f"{resource_type}/{resource_id} was not installed here")

    async def maps_changed(self) -> None:
        """See `ports.MappingStore.maps_changed`."""
        await self._database.many(unmapped_codes_sql.MAPS_CHANGED.call())


def _where(tenant: str, column: str, wanted: Mapping[str, Value]) -> str:
    exact = (f"{name} = {literal(value)}" for name, value in wanted.items() if value is not None)
    return " AND ".join((is_of(tenant, column), *exact))


def _override(row: Row) -> Override:
    id_, tenant, source_system, concept_map, code, system, target, display, created_at, updated_at = row
    return Override(
        source_system, concept_map, code, system, target, display, tenant, id_, created_at, updated_at
    )  # fmt: skip


def _conversion(row: Row) -> Conversion:
    id_, message_id, requested_at, reason, status, *rest = row
    return Conversion(id_, message_id, requested_at, reason, Status(status), *rest)


def _installed(row: Row) -> InstalledMap:
    resource_type, id_, url, version, updated_at, content = row
    return InstalledMap(resource_type, id_, url, version, updated_at, loads(content))


_codes: type[UnmappedCodes] = PostgresUnmappedCodes
_store: type[MappingStore] = PostgresUnmappedCodes
