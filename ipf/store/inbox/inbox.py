"""The inbox on PostgreSQL: acknowledged messages and their states.

Each call is one committed transaction and one round trip (two for a batch with repeats).  The effect of a call survives
a crash once the call has returned.  A dead worker leaves rows in TRANSFORMING; `recover_stale` and `recover_worker`
settle them as failed attempts.

`statements.py` holds the SQL and the reasons why it is correct under concurrency.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from ipf.errors import Category, Problem, WriteConflict
from ipf.ports import (
    Backoff,
    Claimed,
    Inbox,
    MessageFilter,
    MessagePage,
    MessageRow,
    Outcome,
    Received,
    Rejected,
    Settlement,
    StaleRecovery,
    Status,
)
from ipf.store.inbox import (
    admin,
    conflicts,
    following,
    message_admin,
    pages,
    saved_views,
    statements,
    text_index,
    unmapped_codes_sql,
    unread_fields,
)
from ipf.store.postgres.database import Database, Row
from ipf.store.postgres.quoting import SEPARATOR, Joined, Statement, joined, printable, script
from ipf.store.postgres.session import Session

STATEMENTS = (
    *statements.STATEMENTS, *admin.STATEMENTS, *unmapped_codes_sql.STATEMENTS, *text_index.STATEMENTS,
    *message_admin.STATEMENTS, *following.STATEMENTS, *conflicts.STATEMENTS,
    *saved_views.STATEMENTS,
    *unread_fields.STATEMENTS,
)  # fmt: skip

_Key = tuple[str, str, str]
_EPOCH, _MICROSECOND = datetime.fromtimestamp(0, UTC), timedelta(microseconds=1)
_SEPARATORS = "\x1e\x1d\x1c\x02\x03\x04\x05\x06\x0e\x0f"  # between fields: the first one that no field contains
_SEPARATORS_IN_LINE = 11
_RETRIES = 3
_DEFER_ROUNDS = 40
DEFER_SECONDS = 60.0  # the longest deferral by a claim (`statements.Ordered.claim`)
_CLOCK_SECONDS = 10.0  # maximum difference between the clocks of processes


class PostgresInbox:
    """`ports.Inbox` on a Database that was opened with `statements=STATEMENTS`."""

    def __init__(self, database: Database, *, holds_permanent: bool = True) -> None:
        """`holds_permanent`: `PermanentErrors.hold`, the same in all processes."""
        self._database = database
        self._ordered = statements.HOLDING if holds_permanent else statements.PASSING

    async def store(self, batch: Sequence[Received]) -> list[Outcome]:
        """See `ports.Inbox.store`.  Problem MALFORMED when a text field holds NUL, 0x1e or 0x1f: nothing is stored."""
        if not batch:
            return []
        call = _store_call(batch)
        try:
            new = await self._database.many(call)
        except WriteConflict:
            new = await _retried(lambda: self._database.many(call))
        return await _outcomes(batch, new, self._database)

    async def store_in(self, session: Session, batch: Sequence[Received]) -> list[Outcome]:
        """`store` in a transaction of the caller."""
        if not batch:
            return []
        return await _outcomes(batch, await session.many(_store_call(batch)), session)

    async def reject(self, rejected: Rejected) -> None:
        """See `ports.Inbox.reject`."""
        call = statements.REJECT.call(
            rejected.tenant, rejected.received_at, rejected.correlation_id, printable(rejected.listener),
            printable(rejected.peer), printable(rejected.reason), rejected.size, rejected.raw,
        )  # fmt: skip
        await self._database.many(call)

    async def claim(self, worker: str, limit: int) -> list[Claimed]:
        """See `ports.Inbox.claim`.  Retries, up to a limit, while all found rows are deferred."""
        for _ in range(_DEFER_ROUNDS):
            rows = await self._database.many(self._ordered.claim.call(worker, limit))
            deferred = [row[0] for row in rows if row[1] is None]
            if deferred:
                await self._recheck_deferred(deferred)
            if len(rows) > len(deferred) or not rows:
                return [_claimed(row) for row in rows if row[1] is not None]
        return []

    async def _recheck_deferred(self, ids: Sequence[int]) -> None:
        """Make deferred rows due if their predecessor has ended meanwhile; see `statements`."""
        call = self._ordered.recheck_deferred.call(joined(ids))
        await _retried(lambda: self._database.many(call))

    async def release_except(self, worker: str, held: Sequence[int]) -> int:
        """See `ports.Inbox.release_except`."""
        call = statements.RELEASE_EXCEPT.call(worker, joined(held))
        return len(await _retried(lambda: self._database.many(call)))

    async def renew(self, claims: Sequence[Claimed]) -> None:
        """See `ports.Inbox.renew`."""
        if claims:
            ids, fences = joined(claim.id for claim in claims), joined(claim.fence for claim in claims)
            await _retried(lambda: self._database.many(statements.RENEW.call(ids, fences)))

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """See `ports.Inbox.settle`."""
        if not settlements:
            return []
        call = script(
            unmapped_codes_sql.record(settlements),
            conflicts.record(settlements),
            following.after_passed(settlements),
            _settle_call(self._ordered.settle, settlements),
        )
        rows = await _retried(lambda: self._database.many(call))
        settled = {(row[0], row[1]) for row in rows}
        return [(settlement.id, settlement.fence) in settled for settlement in settlements]

    async def recover_stale(self, older_than_seconds: float, backoff: Backoff) -> list[StaleRecovery]:
        """See `ports.Inbox.recover_stale`.  Also reschedules rows due too late because the clock was set back."""
        longest = max(backoff.max_ms / 1000, DEFER_SECONDS) + _CLOCK_SECONDS
        call = script(
            statements.RESCHEDULE.call(longest), statements.RECOVER_STALE.call(older_than_seconds, *_backoff(backoff))
        )
        return [_recovery(row) for row in await _retried(lambda: self._database.many(call))]

    async def recover_worker(self, worker: str, backoff: Backoff) -> list[StaleRecovery]:
        """See `ports.Inbox.recover_worker`."""
        call = statements.RECOVER_WORKER.call(worker, *_backoff(backoff))
        return [_recovery(row) for row in await _retried(lambda: self._database.many(call))]

    async def holders(self) -> list[str]:
        """See `ports.Inbox.holders`."""
        return [row[0] for row in await self._database.many(statements.HOLDERS.call())]

    async def page(self, wanted: MessageFilter, limit: int, offset: int) -> MessagePage:
        """See `ports.Inbox.page`."""
        return await pages.page(self._database, wanted, limit, offset)

    async def get(self, message_id: int) -> MessageRow | None:
        """See `ports.Inbox.get`."""
        return await admin.get(self._database, message_id)

    async def retry(self, message_id: int) -> MessageRow:
        """See `ports.Inbox.retry`."""
        return await admin.retry(self._database, message_id)

    async def delete(self, message_id: int) -> None:
        """See `ports.Inbox.delete`."""
        await admin.delete(self._database, message_id)

    async def counts(self) -> dict[Status, int]:
        """See `ports.Inbox.counts`."""
        return await admin.counts(self._database)

    async def unfinished(self) -> dict[Status, int]:
        """See `ports.Inbox.unfinished`."""
        return await admin.unfinished(self._database)


def _key(message: Received) -> _Key:
    return (message.tenant, message.source_system, message.source_id)


async def _outcomes(batch: Sequence[Received], stored: Sequence[Row], database: Database | Session) -> list[Outcome]:
    """The outcome of each message of a batch: new, a repeat, or other content under the same key."""
    if len(stored) == len(batch):
        return [Outcome.STORED] * len(batch)
    new = {row[0] for row in stored}
    kept = await _existing({_key(message) for message in batch}, database)
    outcomes = []
    for message in batch:
        id_, digest = kept.get(_key(message), (0, b""))
        if id_ in new:
            new.discard(id_)
            outcomes.append(Outcome.STORED)
        else:
            same = not digest or digest == sha256(message.raw).digest()  # no digest: the row was deleted meanwhile
            outcomes.append(Outcome.DUPLICATE if same else Outcome.CONFLICTING_DUPLICATE)
    return outcomes


async def _existing(keys: set[_Key], database: Database | Session) -> dict[_Key, tuple[int, bytes]]:
    """Identifier and digest of the rows that have these keys."""
    columns = zip(*sorted(keys), strict=True)
    rows = await database.many(statements.EXISTING.call(*(joined(column) for column in columns)))
    return {(row[0], row[1], row[2]): (row[3], bytes(row[4])) for row in rows}


def _store_call(batch: Sequence[Received]) -> str:
    """The statement that stores a batch: a line and a payload for each message.  MALFORMED: invalid name."""
    if len(batch) == 1:
        return _store_one_call(batch[0])
    kinds, payloads = _payloads(batch)
    for separator in _SEPARATORS:
        lines = [
            separator.join((
                message.tenant, str((message.received_at - _EPOCH) // _MICROSECOND), message.source_protocol,
                message.source_system, message.source_id, message.message_type, message.correlation_id,
                "" if message.ordering_key is None else str(message.ordering_key),
                message.listener, message.charset, message.raw_content_type, kind,
            ))
            for message, kind in zip(batch, kinds, strict=True)
        ]  # fmt: skip
        text = joined(lines)
        if text.count(separator) == len(batch) * _SEPARATORS_IN_LINE:
            return statements.STORE.call(text, payloads, Joined(separator))
    raise Problem(Category.MALFORMED, "a name holds every control character and cannot be stored")


def _store_one_call(message: Received) -> str:
    """The statement that stores one message, with the same rules for text as a batch."""
    kinds, payload = _payloads((message,))
    return statements.STORE_ONE.call_texts(
        message.tenant, message.received_at.isoformat(), message.source_protocol, message.source_system,
        message.source_id, message.message_type, message.correlation_id,
        "" if message.ordering_key is None else str(message.ordering_key),
        message.listener, message.charset, message.raw_content_type, kinds, payload,
    )  # fmt: skip


def _payloads(batch: Sequence[Received]) -> tuple[str, Joined]:
    """The kinds of the payloads and the payloads: `t` text, for UTF-8 without separators; `x` hexadecimal."""
    texts = [_text(message.raw) for message in batch]
    kinds = "".join(["x" if text is None else "t" for text in texts])
    return kinds, Joined(SEPARATOR.join([
        "\\x" + message.raw.hex() if text is None else text for message, text in zip(batch, texts, strict=True)
    ]))  # fmt: skip


def _text(raw: bytes) -> str | None:
    if b"\x1f" in raw or b"\x00" in raw:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _settle_call(settle: Statement, settlements: Sequence[Settlement]) -> str:
    return settle.call(
        joined(settlement.id for settlement in settlements),
        joined(settlement.fence for settlement in settlements),
        joined(_end_state(settlement) for settlement in settlements),
        joined(settlement.attempt_count for settlement in settlements),
        joined(printable(settlement.error) for settlement in settlements),
        joined(settlement.next_attempt_at for settlement in settlements),
        joined(settlement.map_url for settlement in settlements),
        joined(settlement.transform_ms for settlement in settlements),
        joined(settlement.permanent for settlement in settlements),
    )


def _end_state(settlement: Settlement) -> str:
    if settlement.status is Status.TRANSFORMING:
        raise Problem(Category.INTERNAL, "a message cannot be settled as TRANSFORMING")
    return settlement.status.value


def _claimed(row: Row) -> Claimed:
    id_, fence, correlation_id, received_at, system, source_id, kind, raw, *rest = row
    return Claimed(id_, fence, correlation_id, received_at, system, source_id, kind, bytes(raw), *rest)


def _recovery(row: Row) -> StaleRecovery:
    return StaleRecovery(row[0], row[1], row[2], row[3], row[4], row[5], Status(row[6]), row[7])


def _backoff(backoff: Backoff) -> tuple[float, float, float, int]:
    return backoff.base_ms, backoff.factor, backoff.max_ms, backoff.max_attempts


async def _retried(work: Callable[[], Awaitable[list[Row]]]) -> list[Row]:
    """Retry an idempotent statement after a write conflict (a deadlock)."""
    for _ in range(_RETRIES):
        try:
            return await work()
        except WriteConflict:
            continue
    return await work()


_: type[Inbox] = PostgresInbox
