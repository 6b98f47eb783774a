"""The durable inbound store on PostgreSQL: what senders were told is safe, and what became of it.

Arrives: batches of messages from `pipeline/receive/receive`, claims and settlements from `pipeline/convert/convert`.
Leaves: rows that a
worker holds, and pages for the operator (`pages.py`).  Each call is one committed transaction and one round trip
(a batch with repeats in it: two).  What survives a crash: everything that returned.  A worker that dies leaves rows in
TRANSFORMING; `recover_stale` and `recover_worker` settle them as failed attempts.

The SQL, and why it is right when many run at once, is in `statements.py`.
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
from ipf.store.inbox import admin, bulk, codes_sql, pages, statements, text_index
from ipf.store.inbox.unmapped import note_call
from ipf.store.postgres.database import Database, Row
from ipf.store.postgres.quoting import SEPARATOR, Joined, joined, printable, script

STATEMENTS = (
    *statements.STATEMENTS, *admin.STATEMENTS, *codes_sql.STATEMENTS, *text_index.STATEMENTS, *bulk.STATEMENTS,
)  # fmt: skip

_Key = tuple[str, str, str]
_EPOCH, _MICROSECOND = datetime.fromtimestamp(0, UTC), timedelta(microseconds=1)
_MARKS = "\x1e\x1d\x1c\x02\x03\x04\x05\x06\x0e\x0f"  # between the fields of a line; the first that no field holds
_MARKS_IN_LINE = 11
_RETRIES = 3
_PUT_OFF_ROUNDS = 40
PUT_OFF_SECONDS = 60.0  # the longest that a claim puts a row off (`statements.CLAIM`)
_CLOCK_SECONDS = 10.0  # by which the clocks of processes may differ


class PostgresInbox:
    """`ports.Inbox` on a Database that was opened with `statements=STATEMENTS`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def store(self, batch: Sequence[Received]) -> list[Outcome]:
        """See `ports.Inbox.store`.  Problem MALFORMED when a text field holds NUL, 0x1e or 0x1f: nothing is stored."""
        if not batch:
            return []
        call = _store_call(batch)
        try:
            new = await self._database.many(call)
        except WriteConflict:
            new = await _retried(lambda: self._database.many(call))
        if len(new) == len(batch):
            return [Outcome.STORED] * len(batch)
        return await self._outcomes(batch, {row[0] for row in new})

    async def _outcomes(self, batch: Sequence[Received], new: set[int]) -> list[Outcome]:
        """Tell first ones from repeats, and honest repeats from others with the same key."""
        kept = await self._kept({_key(message) for message in batch})
        outcomes = []
        for message in batch:
            id_, digest = kept.get(_key(message), (0, b""))
            if id_ in new:
                new.discard(id_)
                outcomes.append(Outcome.STORED)
            else:
                same = not digest or digest == sha256(message.raw).digest()  # without: the row was removed meanwhile
                outcomes.append(Outcome.DUPLICATE if same else Outcome.CONFLICTING_DUPLICATE)
        return outcomes

    async def _kept(self, keys: set[_Key]) -> dict[_Key, tuple[int, bytes]]:
        """Identifier and digest of the rows that have these keys."""
        columns = zip(*sorted(keys), strict=True)
        rows = await self._database.many(statements.KEPT.call(*(joined(column) for column in columns)))
        return {(row[0], row[1], row[2]): (row[3], bytes(row[4])) for row in rows}

    async def reject(self, rejected: Rejected) -> None:
        """See `ports.Inbox.reject`."""
        call = statements.REJECT.call(
            rejected.tenant, rejected.received_at, rejected.correlation_id, printable(rejected.listener),
            printable(rejected.peer), printable(rejected.reason), rejected.size, rejected.raw,
        )  # fmt: skip
        await self._database.many(call)

    async def claim(self, worker: str, limit: int) -> list[Claimed]:
        """See `ports.Inbox.claim`.  Goes on while all it found had to be put off, within a bound."""
        for _ in range(_PUT_OFF_ROUNDS):
            rows = await self._database.many(statements.CLAIM.call(worker, limit))
            put_off = [row[0] for row in rows if row[1] is None]
            if put_off:
                await self._look_again(put_off)
            if len(rows) > len(put_off) or not rows:
                return [_claimed(row) for row in rows if row[1] is not None]
        return []

    async def _look_again(self, ids: Sequence[int]) -> None:
        """Take back those put off whose predecessor ended meanwhile; see `statements`."""
        call = statements.LOOK_AGAIN.call(joined(ids))
        await _retried(lambda: self._database.many(call))

    async def give_back(self, worker: str, held: Sequence[int]) -> int:
        """See `ports.Inbox.give_back`."""
        call = statements.GIVE_BACK.call(worker, joined(held))
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
        call = script(note_call(settlements), _settle_call(settlements))
        rows = await _retried(lambda: self._database.many(call))
        settled = {(row[0], row[1]) for row in rows}
        return [(settlement.id, settlement.fence) in settled for settlement in settlements]

    async def recover_stale(self, older_than_seconds: float, backoff: Backoff) -> list[StaleRecovery]:
        """See `ports.Inbox.recover_stale`.  Rows that wait since the clock was set back go on as well."""
        longest = max(backoff.max_ms / 1000, PUT_OFF_SECONDS) + _CLOCK_SECONDS
        call = script(
            statements.PULL_IN.call(longest), statements.RECOVER_STALE.call(older_than_seconds, *_budget(backoff))
        )
        return [_recovery(row) for row in await _retried(lambda: self._database.many(call))]

    async def recover_worker(self, worker: str, backoff: Backoff) -> list[StaleRecovery]:
        """See `ports.Inbox.recover_worker`."""
        call = statements.RECOVER_WORKER.call(worker, *_budget(backoff))
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


def _store_call(batch: Sequence[Received]) -> str:
    """A message alone as it is; else a line for each, and all payloads.  MALFORMED where a name forbids that."""
    if len(batch) == 1:
        return _store_one_call(batch[0])
    kinds, payloads = _payloads(batch)
    for mark in _MARKS:
        lines = [
            mark.join((
                message.tenant, str((message.received_at - _EPOCH) // _MICROSECOND), message.source_protocol,
                message.source_system, message.source_id, message.message_type, message.correlation_id,
                "" if message.ordering_key is None else str(message.ordering_key),
                message.listener, message.charset, message.raw_content_type, kind,
            ))
            for message, kind in zip(batch, kinds, strict=True)
        ]  # fmt: skip
        text = joined(lines)
        if text.count(mark) == len(batch) * _MARKS_IN_LINE:
            return statements.STORE.call(text, payloads, Joined(mark))
    raise Problem(Category.MALFORMED, "a name holds every control character and cannot be stored")


def _store_one_call(message: Received) -> str:
    """What senders wrote is held to the same rule as in a batch: a message is never refused for being alone."""
    kinds, payload = _payloads((message,))
    return statements.STORE_ONE.call_texts(
        message.tenant, message.received_at.isoformat(), message.source_protocol, message.source_system,
        message.source_id, message.message_type, message.correlation_id,
        "" if message.ordering_key is None else str(message.ordering_key),
        message.listener, message.charset, message.raw_content_type, kinds, payload,
    )  # fmt: skip


def _payloads(batch: Sequence[Received]) -> tuple[str, Joined]:
    """The kind of each, and all of them: t, as text, where the bytes are UTF-8 that a statement may hold; else x."""
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


def _settle_call(settlements: Sequence[Settlement]) -> str:
    return statements.SETTLE.call(
        joined(settlement.id for settlement in settlements),
        joined(settlement.fence for settlement in settlements),
        joined(_end_state(settlement) for settlement in settlements),
        joined(settlement.attempt_count for settlement in settlements),
        joined(printable(settlement.error) for settlement in settlements),
        joined(settlement.next_attempt_at for settlement in settlements),
        joined(settlement.map_url for settlement in settlements),
        joined(settlement.transform_ms for settlement in settlements),
    )


def _end_state(settlement: Settlement) -> str:
    if settlement.status is Status.TRANSFORMING:
        raise Problem(Category.INTERNAL, "a message cannot be settled as TRANSFORMING")
    return settlement.status.value


def _claimed(row: Row) -> Claimed:
    id_, fence, correlation_id, received_at, system, source_id, kind, raw, *rest = row
    return Claimed(id_, fence, correlation_id, received_at, system, source_id, kind, bytes(raw), *rest)


def _recovery(row: Row) -> StaleRecovery:
    return StaleRecovery(row[0], row[1], row[2], row[3], row[4], row[5], Status(row[6]))


def _budget(backoff: Backoff) -> tuple[float, float, float, int]:
    return backoff.base_ms, backoff.factor, backoff.max_ms, backoff.max_attempts


async def _retried(work: Callable[[], Awaitable[list[Row]]]) -> list[Row]:
    """Run again what lost to another writer (a deadlock was broken): these statements may be repeated."""
    for _ in range(_RETRIES):
        try:
            return await work()
        except WriteConflict:
            continue
    return await work()


_: type[Inbox] = PostgresInbox
