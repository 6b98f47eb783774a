"""The states of polled feeds, beside the inbox: `ports.messages.feeds.FeedStore` on PostgreSQL.

Rows of a page and the state after it are one transaction.  A lease has a fencing token, so a process that lost its
lease changes no state; rows that it stored are recognised when they come again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ipf.errors import Category, Problem
from ipf.ports import Outcome, Received
from ipf.ports.messages.feeds import FeedLease, FeedRow, FeedState, FeedStore
from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.postgres.database import Database, Row
from ipf.store.postgres.quoting import literal
from ipf.store.postgres.session import Session

_STATE = "mark, began, next_page, pages, moved, candidate, tries, repeats"
_LONGEST_ERROR = 1000


class PostgresFeeds:
    """`FeedStore` in the inbox database."""

    def __init__(self, database: Database, inbox: PostgresInbox) -> None:
        self._database = database
        self._inbox = inbox

    async def begin(self, name: str, worker: str, lease_seconds: float) -> FeedLease | None:
        """See `FeedStore.begin`."""
        rows = await self._database.many(f"""
INSERT INTO polled_feeds AS f (name, due_at, leased_by, leased_until, fence)
VALUES ({literal(name)}, now(), {literal(worker)}, now() + {_seconds(lease_seconds)}, 1)
ON CONFLICT (name) DO UPDATE
SET leased_by = excluded.leased_by, leased_until = excluded.leased_until, fence = f.fence + 1
WHERE f.due_at <= now() AND (f.leased_until IS NULL OR f.leased_until <= now())
RETURNING fence, failures, {_STATE}""")
        return FeedLease(name, rows[0][0], FeedState(*rows[0][2:]), rows[0][1]) if rows else None

    async def holders(self) -> Sequence[str]:
        """See `FeedStore.holders`."""
        rows = await self._database.many("SELECT DISTINCT leased_by FROM polled_feeds WHERE leased_until > now()")
        return [row[0] for row in rows]

    async def release(self, worker: str) -> None:
        """See `FeedStore.release`."""
        await self._database.many(f"""
UPDATE polled_feeds SET leased_until = NULL, fence = fence + 1
WHERE leased_by = {literal(worker)} AND leased_until IS NOT NULL""")

    async def save(
        self,
        lease: FeedLease,
        rows: Sequence[Received],
        state: FeedState,
        lease_seconds: float,
        due_seconds: float | None,
    ) -> Sequence[Outcome] | None:
        """See `FeedStore.save`."""

        async def work(session: Session) -> Sequence[Outcome] | None:
            outcomes = await self._inbox.store_in(session, rows)
            if Outcome.CONFLICTING_DUPLICATE in outcomes:
                raise _RolledBack(outcomes)
            new = sum(one is Outcome.STORED for one in outcomes)
            saved = await session.many(f"""
UPDATE polled_feeds SET {_assignments(state)}, failures = 0, last_error = NULL, polled_at = now(),
    completed_at = {"now()" if state.began is None else "completed_at"},
    fetched = fetched + {len(rows)}, stored = stored + {new},
    leased_until = {f"now() + {_seconds(lease_seconds)}" if due_seconds is None else "NULL"},
    due_at = {"due_at" if due_seconds is None else f"now() + {_seconds(due_seconds)}"}
WHERE {_own(lease)} RETURNING fence""")
            return outcomes if saved else None

        try:
            return await self._database.transact(work)
        except _RolledBack as found:
            return found.outcomes

    async def fail(
        self, lease: FeedLease, state: FeedState, error: str, due_seconds: float, *, is_limit: bool = False
    ) -> None:
        """See `FeedStore.fail`."""
        await self._database.many(f"""
UPDATE polled_feeds SET {_assignments(state)}, last_error = {literal(error[:_LONGEST_ERROR])},
    failures = failures + {0 if is_limit else 1}, leased_until = NULL, due_at = now() + {_seconds(due_seconds)}
WHERE {_own(lease)}""")

    async def feeds(self) -> Sequence[FeedRow]:
        """See `FeedStore.feeds`."""
        rows = await self._database.many(f"""
SELECT name, due_at, failures, last_error, polled_at, completed_at, fetched, stored, {_STATE}
FROM polled_feeds ORDER BY name""")
        return [FeedRow(row[0], FeedState(*row[8:]), *row[1:8]) for row in rows]

    async def rewind(self, name: str, mark: datetime | None) -> None:
        """See `FeedStore.rewind`.  The lease ends: a pass that runs does not count."""
        await self._change(
            name, f"{_assignments(FeedState(mark))}, fence = fence + 1, leased_until = NULL, due_at = now()"
        )

    async def make_due(self, name: str) -> None:
        """See `FeedStore.make_due`."""
        await self._change(name, "due_at = now()")

    async def _change(self, name: str, assignments: str) -> None:
        rows: list[Row] = await self._database.many(
            f"UPDATE polled_feeds SET {assignments} WHERE name = {literal(name)} RETURNING name"
        )
        if not rows:
            raise Problem(Category.NOT_FOUND, f"there is no feed {name[:200]}")


class _RolledBack(Exception):
    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        super().__init__()
        self.outcomes = outcomes


def _own(lease: FeedLease) -> str:
    return f"name = {literal(lease.name)} AND fence = {lease.fence}"


def _seconds(seconds: float) -> str:
    return f"{float(seconds)} * interval '1 second'"


def _assignments(state: FeedState) -> str:
    return (
        f"mark = {_time(state.mark)}, began = {_time(state.began)}, next_page = {literal(state.next_page)}, "
        f"pages = {state.pages}, moved = {state.moved}, candidate = {_time(state.candidate)}, tries = {state.tries}, "
        f"repeats = {state.repeats}"
    )


def _time(moment: datetime | None) -> str:
    return f"{literal(moment.isoformat())}::timestamptz" if moment is not None else "NULL"


_: type[FeedStore] = PostgresFeeds
