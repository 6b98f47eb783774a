"""Group commit of received messages: many senders share few commits, without a timer.

A batch starts at the end of the reactor turn, so that all messages of one pass over the sockets share it (at once when
the previous batch was a single message).  Messages that arrive during a commit form the next batch.  A second batch
starts while one is in flight only when it is at least as large as the smallest one in flight: a commit costs the
database nearly the same whatever its size.  A single sender waits for its own commit only; under load one fsync serves
hundreds of messages.

Queued messages are neither durable nor acknowledged: a crash loses nothing that was acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from ipf.errors import StoreUnreachable
from ipf.ports import Outcome, Received
from ipf.ports.messages.inbox import MessageStore

log = Logger()

OnDone = Callable[[Outcome | Exception], None]
"""Receives the outcome of one message, or the exception that prevented storing it."""


class _QueuedMessage:
    """A message that waits for its commit."""

    __slots__ = ("arrived_at", "done", "received", "size", "source")

    def __init__(self, received: Received, source: object, done: OnDone, arrived_at: float) -> None:
        self.received = received
        self.size = len(received.raw)
        self.source = source
        self.done: OnDone | None = done
        self.arrived_at = arrived_at

    def finish(self, result: Outcome | Exception) -> None:
        """Call `done`, once."""
        done, self.done = self.done, None
        if done is not None:
            try:
                done(result)
            except Exception:
                log.failure("the acknowledgement failed", correlation_id=self.received.correlation_id)


class _InFlight(NamedTuple):
    """The size and the sources of a batch in flight."""

    rows: int
    sources: set[object]


SLOW_SECONDS = 0.5
"""After this wait a message starts a further batch, however small."""


class GroupCommit:
    """Group commit over `MessageStore.store`.

    `timer`: the reactor.  `writers`: maximum number of batches in flight.  `batch_rows`, `batch_bytes`: maximum size of
    a batch.  `waiting_rows`, `waiting_bytes`: above either, :attr:`full` tells the listener to stop reading.
    `timeout`: seconds after which a waiting message fails with StoreUnreachable; when its commit succeeds later, the
    sender's repeat is a duplicate.  `committed`: called after each commit that stored a message (notifies the convert
    stage).

    Messages of one `source` (a connection) are never in two batches at once, so their rows are numbered in order of
    receipt.  When the store is reachable but refuses a batch, each row is stored on its own.
    """

    def __init__(
        self,
        inbox: MessageStore,
        timer: IReactorTime,
        *,
        writers: int = 2,
        batch_rows: int = 200,
        batch_bytes: int = 1024 * 1024,
        waiting_rows: int = 4000,
        waiting_bytes: int = 64 * 1024 * 1024,
        timeout: float = 10.0,
        committed: Callable[[], None] = lambda: None,
    ) -> None:
        self.timeout = timeout
        self._inbox = inbox
        self._timer = timer
        self._writers = writers
        self._batch_rows = batch_rows
        self._batch_bytes = batch_bytes
        self._waiting_rows = waiting_rows
        self._waiting_bytes = waiting_bytes
        self._committed = committed
        self._queue: deque[_QueuedMessage] = deque()
        self._queued_bytes = 0
        self._unanswered: deque[_QueuedMessage] = deque()  # in order of arrival; finished ones are removed lazily
        self._in_flight: list[_InFlight] = []
        self._is_scheduled = False  # a start is scheduled for the end of this turn
        self._last_was_single = False  # then this turn probably has no further message
        self._is_starting = False
        self._is_answering = False
        self._resume_callbacks: list[Callable[[], None]] = []
        self._idle: list[Deferred[None]] = []
        self._expiry: IDelayedCall | None = None

    @property
    def backlog(self) -> int:
        """Number of messages that wait for a batch."""
        return len(self._queue)

    @property
    def full(self) -> bool:
        """The store is behind: stop reading."""
        return len(self._queue) >= self._waiting_rows or self._queued_bytes >= self._waiting_bytes

    def when_room(self, resume: Callable[[], None]) -> None:
        """Call `resume` once the queue is at most half full."""
        self._resume_callbacks.append(resume)

    def submit(self, received: Received, source: object, done: OnDone) -> None:
        """Store the message with the next batch.  `done` is called once, never within this call."""
        message = _QueuedMessage(received, source, done, self._timer.seconds())
        self._queue.append(message)
        self._unanswered.append(message)
        self._queued_bytes += message.size
        if self._expiry is None:
            self._expiry = self._timer.callLater(self.timeout, self._expire)
        if self._last_was_single and not (self._in_flight or self._is_scheduled or self._is_answering):
            self._start_batches()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._timer.callLater(0, self._start_batches)

    async def drained(self) -> None:
        """Return when nothing is queued or in flight; the caller sets a time limit."""
        if self._queue or self._in_flight:
            idle: Deferred[None] = Deferred()
            self._idle.append(idle)
            await idle
        if self._expiry is not None and self._expiry.active():
            self._expiry.cancel()
        self._expiry = None

    def _may_start(self) -> bool:
        """Whether to start another batch: it is not the smallest, or its first message waited too long."""
        in_flight = self._in_flight
        if not in_flight or len(in_flight) >= self._writers:
            return not in_flight
        if len(self._queue) >= min(running.rows for running in in_flight):
            return True
        return self._timer.seconds() - self._queue[0].arrived_at > SLOW_SECONDS

    def _start_batches(self) -> None:
        """Start batches; called at the end of a turn with submissions, and when a batch ends."""
        self._is_scheduled = False
        if self._is_starting:
            return
        self._is_starting = True
        while self._queue and self._may_start():
            batch = self._next_batch()
            if not batch:
                break
            self._last_was_single = len(batch) == 1
            running = _InFlight(len(batch), {message.source for message in batch})
            self._in_flight.append(running)
            Deferred.fromCoroutine(self._write(batch, running))
        self._is_starting = False

    def _next_batch(self) -> list[_QueuedMessage]:
        """The next batch: in order, up to the size limits, without sources of batches in flight."""
        batch: list[_QueuedMessage] = []
        skipped: list[_QueuedMessage] = []
        size = 0
        queue, max_rows = self._queue, self._batch_rows
        busy_sources: set[object] = set().union(*[running.sources for running in self._in_flight])
        while queue and len(batch) < max_rows and len(skipped) < max_rows:
            message = queue[0]
            if message.done is None:  # timed out
                queue.popleft()
                self._queued_bytes -= message.size
                continue
            if message.source in busy_sources:
                skipped.append(queue.popleft())
                continue
            if batch and size + message.size > self._batch_bytes:
                break
            size += message.size
            batch.append(queue.popleft())
        queue.extendleft(reversed(skipped))
        self._queued_bytes -= size
        return batch

    async def _write(self, batch: list[_QueuedMessage], running: _InFlight) -> None:
        """Write a batch, start the next, then call back: PostgreSQL works while acknowledgements are sent."""
        results: Sequence[Outcome | Exception]
        try:
            results = await self._inbox.store([message.received for message in batch])
        except StoreUnreachable as unreachable:
            results = [unreachable] * len(batch)
        except Exception as error:
            results = [error] if len(batch) == 1 else await self._one_by_one(batch)
        self._in_flight.remove(running)
        self._start_batches()
        self._is_answering = True
        for message, result in zip(batch, results, strict=True):
            message.finish(result)
        self._is_answering = False
        if Outcome.STORED in results:
            self._committed()
        self._signal_room_and_idle()

    async def _one_by_one(self, batch: list[_QueuedMessage]) -> list[Outcome | Exception]:
        """Store each row on its own, so that one bad row does not block the others."""
        results: list[Outcome | Exception] = []
        for message in batch:
            try:
                results += await self._inbox.store([message.received])
            except StoreUnreachable as unreachable:
                results += [unreachable] * (len(batch) - len(results))
                break
            except Exception as error:
                results.append(error)
        return results

    def _signal_room_and_idle(self) -> None:
        unanswered = self._unanswered
        while unanswered and unanswered[0].done is None:
            unanswered.popleft()
        if (
            self._resume_callbacks
            and len(self._queue) * 2 <= self._waiting_rows
            and self._queued_bytes * 2 <= self._waiting_bytes
        ):
            resume_callbacks, self._resume_callbacks = self._resume_callbacks, []
            for resume in resume_callbacks:
                resume()
        if self._idle and not self._queue and not self._in_flight:
            idle, self._idle = self._idle, []
            for waiter in idle:
                waiter.callback(None)

    def _expire(self) -> None:
        """Fail messages that waited longer than the timeout; one timer serves all messages."""
        self._expiry = None
        now = self._timer.seconds()
        unanswered = self._unanswered
        while unanswered and (unanswered[0].done is None or now - unanswered[0].arrived_at >= self.timeout):
            unanswered.popleft().finish(StoreUnreachable("the store did not respond in time"))
        if unanswered:
            self._expiry = self._timer.callLater(unanswered[0].arrived_at + self.timeout - now, self._expire)
        self._queue = deque(message for message in self._queue if message.done is not None)
        self._queued_bytes = sum(message.size for message in self._queue)
        if not self._in_flight:
            self._start_batches()
        self._signal_room_and_idle()
