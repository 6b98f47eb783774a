"""`ports.CreatorGrants` on PostgreSQL: the row of the creator of a Subscription, written with its resource."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipf.ports import SubscriptionCreator
from ipf.ports.grants import CreatorGrants, Writer
from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import Statement
from ipf.store.postgres.symbols import SymbolTable
from ipf.store.postgres.writers import WRITERS_OF, writers_in

# A creator that is there already keeps its `since`: later events have been within its grants.
PUT_GRANTS = Statement(
    "fhir_put_grants",
    "bigint, smallint, text, text, text, text, text, text, text, boolean",
    """
INSERT INTO subscription_grants
    (rid, partition_id, subject, client, scopes, tenant, patient, fhir_user, issuer, owns, since, granted_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
        coalesce((SELECT s.last_event_number FROM subscription_states s WHERE s.rid = $1), 0), now())
ON CONFLICT (rid, issuer, subject, client) DO UPDATE SET
    scopes = excluded.scopes, tenant = excluded.tenant, patient = excluded.patient, fhir_user = excluded.fhir_user,
    owns = subscription_grants.owns OR excluded.owns, granted_at = now()""",
)

# The grants of all other writers.
DROP_GRANTS = Statement(
    "fhir_drop_grants",
    "bigint, smallint, text, text, text",
    """
DELETE FROM subscription_grants
WHERE rid = $1 AND partition_id = $2 AND (issuer, subject, client) <> ($3, $4, $5)""",
)

# A narrow client that takes over an endpoint: what was pending for the former one would tell it of hidden changes.
SKIP_EARLIER = Statement(
    "fhir_skip_earlier",
    "bigint, smallint",
    """
UPDATE subscription_states SET delivered_number = last_event_number, resend_until = NULL
WHERE rid = $1 AND partition_id = $2 AND (delivered_number < last_event_number OR resend_until IS NOT NULL)""",
)

WRITERS = Statement(
    "fhir_writers",
    "text, text, integer",
    f"""
SELECT {WRITERS_OF}
FROM subscription_states s JOIN resources r ON r.rid = s.rid AND r.version_id = $3
WHERE s.partition_id = (SELECT p.id FROM partitions p WHERE p.name = $1) AND s.id = $2""",
)

STATEMENTS = (PUT_GRANTS, DROP_GRANTS, SKIP_EARLIER, WRITERS)


def grants_calls(creators: Sequence[SubscriptionCreator], symbols: SymbolTable) -> Iterator[str]:
    """The statements for each Subscription that a caller wrote, in order of rid."""
    for one in sorted(creators, key=lambda creator: creator.rid):
        who, partition = one.caller, symbols.partition(one.tenant)
        yield DROP_GRANTS.call(one.rid, partition, who.issuer, who.subject, who.client)
        if one.skips:
            yield SKIP_EARLIER.call(one.rid, partition)
        if who.is_unlimited:
            continue
        yield PUT_GRANTS.call(
            one.rid, partition, who.subject, who.client, " ".join(who.scopes), who.tenant, who.patient, who.user,
            who.issuer, one.owns,
        )  # fmt: skip


class PostgresGrants:
    """`ports.CreatorGrants` on a Database that was opened with the FHIR store's statements."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def writers(self, tenant: str, subscription_id: str, version_id: int) -> Sequence[Writer] | None:
        """See `ports.CreatorGrants.writers`."""
        call = WRITERS.call(tenant, subscription_id, version_id)
        row = await self._database.for_tenant(tenant).maybe(call)
        return None if row is None else writers_in(row[0])


_: type[CreatorGrants] = PostgresGrants
