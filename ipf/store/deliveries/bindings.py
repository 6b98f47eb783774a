"""Tokens of `$get-ws-binding-token` on PostgreSQL: a client may use one with any process.

A token is 256 random bits; only its digest is stored, with the grants of its caller.  It is valid until it expires and
may be used repeatedly.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256

from ipf.ports import OPEN, Binding, BindingTokens, Caller
from ipf.store.postgres.callers import read_caller, written_caller
from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import Statement

ISSUE = Statement(
    "bindings_issue",
    "text, text, text, timestamptz, text",
    """
WITH expired AS (DELETE FROM websocket_tokens WHERE expires_at < now())
INSERT INTO websocket_tokens (digest, partition_id, subscription_ids, expires_at, caller)
SELECT $1, id, $3, $4, $5 FROM partitions WHERE name = $2 RETURNING 1""",
)
REDEEM = Statement(
    "bindings_redeem",
    "text",
    """
SELECT p.name, t.subscription_ids, t.expires_at, t.caller
FROM websocket_tokens t JOIN partitions p ON p.id = t.partition_id
WHERE t.digest = $1 AND t.expires_at > now()""",
)
STATEMENTS = (ISSUE, REDEEM)


class PostgresBindingTokens:
    """`ports.BindingTokens` on a Database that was opened with `statements=STATEMENTS`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def issue(self, tenant: str, subscription_ids: Sequence[str], until: datetime, caller: Caller = OPEN) -> str:
        """See `ports.BindingTokens.issue`."""
        token = secrets.token_urlsafe(32)
        call = ISSUE.call(_digest(token), tenant, " ".join(subscription_ids), until, written_caller(caller))
        await self._database.for_tenant(tenant).many(call)
        return token

    async def redeem(self, token: str) -> Binding | None:
        """See `ports.BindingTokens.redeem`."""
        row = await self._database.all_tenants.maybe(REDEEM.call(_digest(token)))
        return None if row is None else Binding(row[0], tuple(row[1].split()), row[2], read_caller(row[3]))


def _digest(token: str) -> str:
    return sha256(token.encode()).hexdigest()


_: type[BindingTokens] = PostgresBindingTokens
