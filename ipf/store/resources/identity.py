"""`ports.identity.IdentityAnswers` on PostgreSQL: what operators decided about ambiguous numbers.

An answer is committed when `record` returns.  The write transactions of converted messages read them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ipf.errors import Category, Problem
from ipf.ports.identity import AnswerKind, IdentityAnswer, IdentityAnswers
from ipf.ports.messages.inbox import EVERY_TENANT
from ipf.store.postgres.database import Database, Row
from ipf.store.postgres.quoting import Statement, array, joined
from ipf.store.postgres.symbols import SymbolTable
from ipf.store.resources.searches.texts import Many

_COLUMNS = "a.resource_type, a.key, a.resource_id, a.kind, a.answered_by, a.reason, p.name, a.id, a.answered_at"

# A replaced answer gets a new number: it is a new decision.
RECORD = Statement(
    "identity_record",
    "smallint, text, text, text, text, text, text",
    f"""
WITH a AS (
    INSERT INTO identity_answers (partition_id, resource_type, key, resource_id, kind, answered_by, reason, answered_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp())
    ON CONFLICT (partition_id, resource_type, key) DO UPDATE SET
        id = DEFAULT, resource_id = excluded.resource_id, kind = excluded.kind,
        answered_by = excluded.answered_by, reason = excluded.reason, answered_at = clock_timestamp()
    RETURNING *)
SELECT {_COLUMNS} FROM a JOIN partitions p ON p.id = a.partition_id""",
)
PAGE = Statement(
    "identity_page",
    "smallint, bigint, bigint",
    f"""
SELECT count(*) OVER (), {_COLUMNS}
FROM identity_answers a JOIN partitions p ON p.id = a.partition_id
WHERE $1 IS NULL OR a.partition_id = $1 ORDER BY a.id DESC LIMIT $2 OFFSET $3""",
)
COUNT = Statement(
    "identity_count", "smallint", "SELECT count(*) FROM identity_answers WHERE $1 IS NULL OR partition_id = $1"
)
REVOKE = Statement(
    "identity_revoke",
    "smallint, bigint",
    "DELETE FROM identity_answers WHERE partition_id = $1 AND id = $2 RETURNING id",
)
READ = Statement(
    "identity_read",
    "smallint[], text, text",
    rf"""
SELECT k.n, {_COLUMNS}
FROM unnest($1, string_to_array($2, E'\x1f'), string_to_array($3, E'\x1f')) WITH ORDINALITY
     AS k(partition_id, resource_type, key, n)
JOIN identity_answers a
    ON a.partition_id = k.partition_id AND a.resource_type = k.resource_type AND a.key = k.key
JOIN partitions p ON p.id = a.partition_id""",
)
STATEMENTS = (RECORD, PAGE, COUNT, REVOKE, READ)


async def read_answers(
    many: Many, symbols: SymbolTable, wanted: Sequence[tuple[str, str, str]]
) -> list[IdentityAnswer | None]:
    """The answers for (tenant, resource type, key), in order."""
    call = READ.call(
        array([str(symbols.partition(tenant)) for tenant, _, _ in wanted]),
        joined([resource_type for _, resource_type, _ in wanted]),
        joined([key for _, _, key in wanted]),
    )
    found: list[IdentityAnswer | None] = [None] * len(wanted)
    for row in await many(call):
        found[row[0] - 1] = _answer(row[1:])
    return found


class PostgresIdentityAnswers:
    """`ports.identity.IdentityAnswers` on a Database that was opened with the FHIR store's statements."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._symbols = SymbolTable(database)

    async def record(self, answer: IdentityAnswer) -> IdentityAnswer:
        """See `ports.identity.IdentityAnswers.record`."""
        await self._symbols.ensure((answer.tenant,))
        call = RECORD.call(
            self._symbols.partition(answer.tenant), answer.resource_type, answer.key, answer.resource_id,
            answer.kind.value, answer.answered_by, answer.reason,
        )  # fmt: skip
        (row,) = await self._database.for_tenant(answer.tenant).many(call)
        return _answer(row)

    async def answers(self, tenant: str, limit: int, offset: int) -> tuple[int, Sequence[IdentityAnswer]]:
        """See `ports.identity.IdentityAnswers.answers`."""
        partition = await self._partition(tenant)
        rows = self._database.all_tenants if tenant == EVERY_TENANT else self._database.for_tenant(tenant)
        found = await rows.many(PAGE.call(partition, limit, offset))
        if found:
            return found[0][0], [_answer(row[1:]) for row in found]
        ((count,),) = await rows.many(COUNT.call(partition))
        return count, []

    async def revoke(self, tenant: str, number: int) -> None:
        """See `ports.identity.IdentityAnswers.revoke`."""
        partition = await self._partition(tenant)
        if not await self._database.for_tenant(tenant).many(REVOKE.call(partition, number)):
            raise Problem(Category.NOT_FOUND, "there is no answer with this number")

    async def _partition(self, tenant: str) -> int | None:
        if tenant == EVERY_TENANT:
            return None
        await self._symbols.ensure((tenant,))
        return self._symbols.partition(tenant)


def _answer(row: Row) -> IdentityAnswer:
    resource_type, key, resource_id, kind, answered_by, reason, tenant, number, answered_at = row
    return IdentityAnswer(
        resource_type, key, resource_id, AnswerKind(kind), answered_by, reason, tenant, number, answered_at
    )


_: type[IdentityAnswers] = PostgresIdentityAnswers
