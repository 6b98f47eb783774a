"""`ports.CreatorGrants` on PostgreSQL: one row a Subscription, written with its resource."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipf.ports import Caller, SubscriptionCreator
from ipf.ports.grants import CreatorGrants
from ipf.store.database import Database
from ipf.store.names import Names
from ipf.store.quoting import Statement

PUT_GRANTS = Statement(
    "fhir_put_grants",
    "bigint, smallint, text, text, text, text, text, text, text",
    """
INSERT INTO subscription_grants (rid, partition_id, subject, client, scopes, tenant, patient, fhir_user, issuer)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (rid) DO UPDATE SET
    subject = excluded.subject, client = excluded.client, scopes = excluded.scopes, tenant = excluded.tenant,
    patient = excluded.patient, fhir_user = excluded.fhir_user, issuer = excluded.issuer, granted_at = now()""",
)

CREATOR = Statement(
    "fhir_creator",
    "text, text",
    """
SELECT g.subject, g.client, g.scopes, g.tenant, g.patient, g.fhir_user, g.issuer
FROM subscription_states s JOIN subscription_grants g ON g.rid = s.rid
WHERE s.partition_id = (SELECT p.id FROM partitions p WHERE p.name = $1) AND s.id = $2""",
)

STATEMENTS = (PUT_GRANTS, CREATOR)


def grants_calls(creators: Sequence[SubscriptionCreator], names: Names) -> Iterator[str]:
    """One statement for each Subscription that a caller wrote, in the order of their numbers."""
    for one in sorted(creators, key=lambda creator: creator.rid):
        who = one.caller
        yield PUT_GRANTS.call(
            one.rid, names.partition(one.tenant), who.subject, who.client, " ".join(who.scopes), who.tenant,
            who.patient, who.user, who.issuer,
        )  # fmt: skip


class PostgresGrants:
    """`ports.CreatorGrants` on a Database that was opened with the FHIR store's statements."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def creator(self, tenant: str, subscription_id: str) -> Caller | None:
        """See `ports.CreatorGrants.creator`."""
        row = await self._database.of(tenant).maybe(CREATOR.call(tenant, subscription_id))
        if row is None:
            return None
        subject, client, scopes, claim, patient, user, issuer = row
        return Caller(str(subject), str(client), tuple(scopes.split()), claim, patient, user, str(issuer))


_: type[CreatorGrants] = PostgresGrants
