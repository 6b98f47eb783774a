"""The writer of audit records: a bounded queue, stored in batches outside the path of requests.

`AuditLog.note` takes a record without waiting.  The writer stores all records that have gathered, one statement for a
batch, at most every `pause` seconds: a commit costs the same for one record as for hundreds.  While the store is
unreachable records wait, up to `most`; further ones are dropped, counted and logged.  A request never fails or waits
for its audit record.

`AuditLog.note_exchange` takes what a record is made of.  The records are made in slices of SLICE bytes, between which
the reactor turns.  More than MOST_HELD bytes are never held: each exchange beyond makes the oldest ones give way.

What survives a crash: stored records.  A process that is killed loses the records of its last `pause` seconds; a stop
stores everything first.

Source: interface specification "FHIR AuditEvent resources", rule 5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.ports.audit.records import Audit, AuditStore
from ipf.ports.audit_exchange import MOST_WEIGHT, Exchange, MakeRecords, weight_of
from ipf.security.audit.strangers import LIMIT
from ipf.telemetry.logs import event_line

log = Logger()

BATCH = 500
"""Records of one statement, and as many entities and patients as `_MOST_NAMED`."""
MOST_HELD = 512 * 1024
"""Bytes of exchanges that are held until their records are made."""
SLICE = MOST_WEIGHT
"""Bytes of exchanges whose records are made in one turn of the reactor."""

_MOST_NAMED = 5000
PAUSE_SECONDS = 0.1
RETRY_SECONDS = 2.0
_WARN_SECONDS = 60.0


class Count(Protocol):
    """Metrics: so many records were `written`, `dropped` or `limited`."""

    def __call__(self, outcome: str, count: int) -> None:
        """Count them."""


class AuditLog:
    """The queue and its writer.  `most`: records that may wait; `clock`: callLater and seconds; `make`: makes the
    records of exchanges; `admit`: the record that is kept of one, or None."""

    def __init__(
        self,
        store: AuditStore,
        clock: Any,
        *,
        most: int = 50_000,
        count: Count = lambda outcome, count: None,
        pause: float = PAUSE_SECONDS,
        make: MakeRecords = lambda exchanges: [],
        admit: Callable[[Audit], Audit | None] = lambda audit: audit,
    ) -> None:
        self._store = store
        self._clock = clock
        self._most = most
        self._count = count
        self._pause = pause
        self._make = make
        self._admit = admit
        self._waiting: list[Audit] = []
        self._batches: deque[list[Audit]] = deque()
        self._exchanges: deque[tuple[Exchange, int]] = deque()
        self._held = self._slices = 0
        self._warned_at = float("-inf")
        self._timer: Any = None
        self._began = 0.0
        self._writing: Deferred[None] | None = None
        self._dropped = 0
        self._is_unreachable = False
        self._idle: list[Deferred[None]] = []

    @property
    def waiting(self) -> int:
        """Records that are not stored yet, without those of the statement that is running."""
        return len(self._exchanges) + self._kept

    @property
    def _kept(self) -> int:
        return len(self._waiting) + (sum(map(len, self._batches)) if self._batches else 0)

    def note(self, audit: Audit) -> None:
        """Keep a record; `ports.audit.records.AuditSink`."""
        self._keep([audit])
        self._wake()

    def note_exchange(self, exchange: Exchange) -> None:
        """Keep an exchange; its record is made with the next batch; `ports.audit.records.ExchangeSink`."""
        weight = weight_of(exchange)
        self._exchanges.append((exchange, weight))
        self._held += weight
        if self._held > MOST_HELD:
            self._make_slice(self._held - MOST_HELD)
        if self._timer is None:
            self._wake()

    def _make_slice(self, weight: int = SLICE) -> None:
        """Make the records of the oldest exchanges, at least of one, until they weigh so much."""
        taken: list[Exchange] = []
        while self._exchanges and (weight > 0 or not taken):
            exchange, own = self._exchanges.popleft()
            taken.append(exchange)
            weight -= own
            self._held -= own
        if taken:
            self._keep(self._make(taken))

    def _keep(self, audits: list[Audit]) -> None:
        noted = len(audits)
        audits = [kept for one in audits if (kept := self._admit(one)) is not None]
        if len(audits) < noted:
            self._leave_out(noted - len(audits))
        room = self._most - self._kept
        self._waiting.extend(audits if len(audits) <= room else audits[:room])
        if len(audits) > room:
            self._drop(len(audits) - room)

    def _wake(self) -> None:
        if self._timer is None and self._writing is None:
            self._timer = self._clock.callLater(self._pause, self._begin)

    async def stop(self, seconds: float) -> None:
        """Store what waits, within `seconds`; the rest is dropped and counted."""
        while self._exchanges:
            self._make_slice()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        timeout: Any = None
        if self._kept and self._writing is None:
            self._begin()
        if self._writing is not None:
            done: Deferred[None] = Deferred()
            self._idle.append(done)
            timeout = self._clock.callLater(seconds, self._give_up)
            await done
        if timeout is not None and timeout.active():
            timeout.cancel()
        if self._timer is not None:
            self._timer.cancel()
        if self._kept:
            self._drop(self._kept)
            self._waiting.clear()
            self._batches.clear()

    def _give_up(self) -> None:
        for done in self._release():
            done.callback(None)

    def _release(self) -> list[Deferred[None]]:
        idle, self._idle = self._idle, []
        return idle

    def _begin(self) -> None:
        """Make records, slice by slice, then write them."""
        self._make_slice()
        self._slices += 1
        if self._exchanges and self._slices < MOST_HELD // SLICE:  # else new ones come as fast
            self._timer = self._clock.callLater(0, self._begin)
            return
        self._slices = 0
        self._timer, self._began = None, self._clock.seconds()
        self._writing = Deferred.fromCoroutine(self._write())
        if self._writing is not None and self._writing.called:
            self._writing = None

    def _take(self) -> None:
        """Cut the records that have gathered into batches."""
        waiting, self._waiting = self._waiting, []
        named, batch = 0, list[Audit]()
        for one in waiting:
            named += len(one.entities) + len(one.patients)
            if batch and (len(batch) == BATCH or named > _MOST_NAMED):
                self._batches.append(batch)
                named, batch = len(one.entities) + len(one.patients), []
            batch.append(one)
        if batch:
            self._batches.append(batch)

    async def _write(self) -> None:
        """Store batch after batch; then sleep, or retry later when the store is unreachable.

        A batch that may have been stored already (its answer was lost) is stored again first, unchanged.  Records noted
        meanwhile wait for the next time, unless the process stops.
        """
        delay, is_behind = None, bool(self._batches)
        if not is_behind:
            self._take()
        while delay is None and self._batches:
            delay = await self._store_batch(self._batches.popleft())
            if not self._batches and (is_behind or self._idle):
                is_behind = False
                while self._idle and self._exchanges:
                    self._make_slice()
                self._take()
        self._writing = None
        if delay is None and self.waiting:
            delay = max(0.0, self._pause - (self._clock.seconds() - self._began))
        if delay is not None:
            self._timer = self._clock.callLater(delay, self._begin)
        for done in self._release():
            done.callback(None)

    async def _store_batch(self, batch: list[Audit]) -> float | None:
        """Seconds to wait before the next attempt, or None."""
        try:
            await self._store.append(batch)
        except StoreUnreachable as problem:
            if not self._is_unreachable:
                self._is_unreachable = True
                log.warn(event_line("audit_delayed", waiting=len(batch) + self._kept, reason=problem.text))
            self._batches.appendleft(batch)
            return RETRY_SECONDS
        except Exception as failed:
            reason = failed.text if isinstance(failed, Problem) else type(failed).__name__
            log.warn(event_line("audit_not_written", count=len(batch), reason=reason))
            await self._one_by_one(batch)
        else:
            self._count("written", len(batch))
        if self._is_unreachable or self._dropped:
            log.info(event_line("audit_written_again", dropped=self._dropped))
            self._is_unreachable, self._dropped = False, 0
        return None

    async def _one_by_one(self, batch: list[Audit]) -> None:
        """Store a refused batch in halves, so that only the record at fault is dropped."""
        if len(batch) == 1:
            self._drop(1)
            return
        half = len(batch) // 2
        for part in (batch[:half], batch[half:]):
            try:
                await self._store.append(part)
            except StoreUnreachable:
                self._batches.append(part)
            except Exception:
                await self._one_by_one(part)
            else:
                self._count("written", len(part))

    def _leave_out(self, count: int) -> None:
        """Count; a line a minute says it."""
        self._count("limited", count)
        if self._clock.seconds() - self._warned_at >= _WARN_SECONDS:
            self._warned_at = self._clock.seconds()
            log.warn(event_line("audit_limited", limit=LIMIT))

    def _drop(self, count: int) -> None:
        if self._dropped == 0:
            log.warn(event_line("audit_dropped", waiting=self._kept, most=self._most))
        self._dropped += count
        self._count("dropped", count)
