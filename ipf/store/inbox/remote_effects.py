"""What a FHIR server elsewhere answered to the transactions of messages, on PostgreSQL (the inbox database).

`record` is one committed statement.  It runs before the message is settled: after a crash in between, the transaction
is posted again, and a version that is recorded keeps its first action.
"""

from __future__ import annotations

from collections.abc import Sequence

from ipf.ports import EffectsStore, FhirEffects, WrittenVersion
from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import literal, printable

MAX_ROWS = 1000


class PostgresRemoteEffects:
    """`ports.EffectsStore` of messages whose resources are elsewhere: versions, and neither events nor attempts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, tenant: str, correlation_id: str, versions: Sequence[WrittenVersion]) -> None:
        """Add the versions that a transaction-response names.  StoreUnreachable."""
        if not versions:
            return
        rows = ", ".join(
            f"({literal(one.resource_type)}, {literal(printable(one.id))}, {literal(printable(str(one.version_id)))}, "
            f"{literal(one.action)}, {literal(one.written_at.isoformat())}::timestamptz)"
            for one in versions
        )
        await self._database.many(
            "INSERT INTO remote_effects (message_id, resource_type, id, version_id, action, written_at) "
            "SELECT b.id, v.* FROM "
            f"(SELECT id FROM message_bodies b WHERE {_of(tenant, correlation_id)} FOR KEY SHARE) b "
            f"CROSS JOIN (VALUES {rows}) v ON CONFLICT DO NOTHING"
        )

    async def effects(self, tenant: str, correlation_id: str) -> FhirEffects:
        """See `ports.EffectsStore.effects`."""
        rows = await self._database.many(
            "SELECT e.resource_type, e.id, e.version_id, e.action, e.written_at FROM remote_effects e "
            f"JOIN message_bodies b ON b.id = e.message_id WHERE {_of(tenant, correlation_id)} "
            f"ORDER BY e.written_at, e.resource_type, e.id, e.version_id LIMIT {MAX_ROWS}"
        )
        return FhirEffects([WrittenVersion(*row) for row in rows], [], [])


def _of(tenant: str, correlation_id: str) -> str:
    return f"b.correlation_id = {literal(correlation_id)}::uuid AND b.tenant = {literal(tenant)}"


_: type[EffectsStore] = PostgresRemoteEffects
