"""`ports.CreatorGrants` on PostgreSQL: rows of a Subscription, one for each writer, written with its resource."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipf.ports import Caller, SubscriptionCreator
from ipf.ports.grants import CreatorGrants
from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import Statement
from ipf.store.postgres.symbols import SymbolTable

PUT_GRANTS = Statement(
    "fhir_put_grants",
    "bigint, smallint, text, text, text, text, text, text, text",
    """
INSERT INTO subscription_grants (rid, partition_id, subject, client, scopes, tenant, patient, fhir_user, issuer)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (rid, issuer, subject, client) DO UPDATE SET
    scopes = excluded.scopes, tenant = excluded.tenant, patient = excluded.patient, fhir_user = excluded.fhir_user,
    granted_at = now()""",
)

DROP_GRANTS = Statement(
    "fhir_drop_grants",
    "bigint, smallint",
    "DELETE FROM subscription_grants WHERE rid = $1 AND partition_id = $2",
)

WRITERS = Statement(
    "fhir_writers",
    "text, text, integer",
    """
SELECT g.subject, g.client, g.scopes, g.tenant, g.patient, g.fhir_user, g.issuer
FROM subscription_states s JOIN resources r ON r.rid = s.rid AND r.version_id = $3
LEFT JOIN subscription_grants g ON g.rid = s.rid
WHERE s.partition_id = (SELECT p.id FROM partitions p WHERE p.name = $1) AND s.id = $2
ORDER BY g.granted_at, g.issuer, g.subject, g.client""",
)

STATEMENTS = (PUT_GRANTS, DROP_GRANTS, WRITERS)


def grants_calls(creators: Sequence[SubscriptionCreator], symbols: SymbolTable) -> Iterator[str]:
    """One or two statements for each Subscription that a caller wrote, in order of rid."""
    for one in sorted(creators, key=lambda creator: creator.rid):
        who, partition = one.caller, symbols.partition(one.tenant)
        if one.begins:
            yield DROP_GRANTS.call(one.rid, partition)
        yield PUT_GRANTS.call(
            one.rid, partition, who.subject, who.client, " ".join(who.scopes), who.tenant, who.patient, who.user,
            who.issuer,
        )  # fmt: skip


class PostgresGrants:
    """`ports.CreatorGrants` on a Database that was opened with the FHIR store's statements."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def writers(self, tenant: str, subscription_id: str, version_id: int) -> Sequence[Caller] | None:
        """See `ports.CreatorGrants.writers`."""
        rows = await self._database.for_tenant(tenant).many(WRITERS.call(tenant, subscription_id, version_id))
        if not rows:
            return None
        return [
            Caller(str(subject), str(client), tuple(scopes.split()), claim, patient, user, str(issuer))
            for subject, client, scopes, claim, patient, user, issuer in rows
            if issuer is not None
        ]


_: type[CreatorGrants] = PostgresGrants
