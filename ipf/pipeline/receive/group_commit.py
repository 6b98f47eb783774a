"""Natural group commit: many senders, few commits, no timer.

A batch starts at the end of the reactor's turn, so that all messages of one pass over the sockets share it (at once,
when the batch before it was a single message).  While it is being committed, whatever arrives queues; when it ends,
the next batch is all of that.  A second batch beside one in flight starts only when as many messages wait as the
smallest one in flight holds: a commit costs the database nearly the same whatever its size, so a small one beside a
large one takes more from the large one than it gives.  A lone sender waits for nothing but its own commit, and under
load one fsync serves hundreds of messages.

What waits here is not durable and was not acknowledged: a crash loses nothing that a sender believes to be taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from ipf.errors import StoreUnreachable
from ipf.ports import Inbox, Outcome, Received

log = Logger()

Done = Callable[[Outcome | Exception], None]
"""Takes what became of one message: its outcome, or the exception that kept it out of the store."""


class _Waiting:
    """A message on its way into the inbox."""

    __slots__ = ("done", "received", "since", "size", "source")

    def __init__(self, received: Received, source: object, done: Done, since: float) -> None:
        self.received = received
        self.size = len(received.raw)
        self.source = source
        self.done: Done | None = done
        self.since = since

    def settle(self, result: Outcome | Exception) -> None:
        """Tell the sender's side, once."""
        done, self.done = self.done, None
        if done is not None:
            try:
                done(result)
            except Exception:
                log.failure("an acknowledgement could not be made", correlation_id=self.received.correlation_id)


class _Flight(NamedTuple):
    """A batch that is being committed."""

    rows: int
    sources: set[object]


SLOW_SECONDS = 0.5
"""A message that has waited so long goes beside a batch in flight, however small its own would be."""


class GroupCommit:
    """Natural group commit over `Inbox.store`: a batch is what came in one turn of the reactor, or while one ran.

    `timer`: the reactor; :meth:`submit` stores at the end of the turn (`callLater(0)`), and within the call only what
    comes alone after a batch of one.
    `writers`: the most batches in flight at once; the first starts whatever its size, a further one only when at least
    as many messages wait as the smallest one in flight holds, else when one in flight ends.  `batch_rows`,
    `batch_bytes`: the most that shares a commit.  `waiting_rows`, `waiting_bytes`: above either, :attr:`full` asks the
    wire to stop reading.  `patience`: seconds that a message may wait for its commit before its sender is told
    StoreUnreachable; a commit that still succeeds makes the sender's repeat a duplicate.  `committed`: called after
    each commit that stored something (rings the notifier).

    Messages of one `source` (a connection) are never in two batches at once, so their rows are numbered in order of
    receipt.  A batch that the store refuses for another reason than being away is tried again row by row.
    """

    def __init__(
        self,
        inbox: Inbox,
        timer: IReactorTime,
        *,
        writers: int = 2,
        batch_rows: int = 200,
        batch_bytes: int = 1024 * 1024,
        waiting_rows: int = 4000,
        waiting_bytes: int = 64 * 1024 * 1024,
        patience: float = 10.0,
        committed: Callable[[], None] = lambda: None,
    ) -> None:
        self.patience = patience
        self._inbox = inbox
        self._timer = timer
        self._writers = writers
        self._batch_rows = batch_rows
        self._batch_bytes = batch_bytes
        self._waiting_rows = waiting_rows
        self._waiting_bytes = waiting_bytes
        self._committed = committed
        self._queue: deque[_Waiting] = deque()
        self._queued_bytes = 0
        self._in_hand: deque[_Waiting] = deque()  # all that may be unanswered, in order of arrival
        self._busy: list[_Flight] = []
        self._due = False  # a launch is set for the end of this turn
        self._alone = False  # the last batch was one message, so there is probably no other in this turn
        self._launching = False
        self._answering = False
        self._wake: list[Callable[[], None]] = []
        self._idle: list[Deferred[None]] = []
        self._expiry: IDelayedCall | None = None

    @property
    def backlog(self) -> int:
        """Messages that wait for a writer."""
        return len(self._queue)

    @property
    def full(self) -> bool:
        """The store is behind: stop reading."""
        return len(self._queue) >= self._waiting_rows or self._queued_bytes >= self._waiting_bytes

    def when_room(self, resume: Callable[[], None]) -> None:
        """Call `resume` once, when half of what made it full is written."""
        self._wake.append(resume)

    def submit(self, received: Received, source: object, done: Done) -> None:
        """Store this message with the next batch; `done` gets its outcome, or the exception that kept it out.

        `done` is called once, never within this call.
        """
        waiting = _Waiting(received, source, done, self._timer.seconds())
        self._queue.append(waiting)
        self._in_hand.append(waiting)
        self._queued_bytes += waiting.size
        if self._expiry is None:
            self._expiry = self._timer.callLater(self.patience, self._expire)
        if self._alone and not (self._busy or self._due or self._answering):
            self._launch()
        elif not self._due:
            self._due = True
            self._timer.callLater(0, self._launch)

    async def drained(self) -> None:
        """Return when nothing is queued or in flight; the caller sets the bound, since a store may hang."""
        if self._queue or self._busy:
            idle: Deferred[None] = Deferred()
            self._idle.append(idle)
            await idle
        if self._expiry is not None and self._expiry.active():
            self._expiry.cancel()
        self._expiry = None

    def _may_start(self) -> bool:
        """A further batch beside those in flight pays only when it is not smaller, unless they take too long."""
        busy = self._busy
        if not busy or len(busy) >= self._writers:
            return not busy
        if len(self._queue) >= min(flight.rows for flight in busy):
            return True
        return self._timer.seconds() - self._queue[0].since > SLOW_SECONDS

    def _launch(self) -> None:
        """Start what may start: at the end of a turn with submissions, and whenever a batch ends."""
        self._due = False
        if self._launching:
            return
        self._launching = True
        while self._queue and self._may_start():
            batch = self._take()
            if not batch:
                break
            self._alone = len(batch) == 1
            flight = _Flight(len(batch), {waiting.source for waiting in batch})
            self._busy.append(flight)
            Deferred.fromCoroutine(self._write(batch, flight))
        self._launching = False

    def _take(self) -> list[_Waiting]:
        """The next batch: in order, up to the bounds, leaving out sources that another batch in flight holds."""
        batch: list[_Waiting] = []
        left: list[_Waiting] = []
        size = 0
        queue, most = self._queue, self._batch_rows
        held: set[object] = set().union(*[flight.sources for flight in self._busy])
        while queue and len(batch) < most and len(left) < most:
            waiting = queue[0]
            if waiting.done is None:  # given up meanwhile
                queue.popleft()
                self._queued_bytes -= waiting.size
                continue
            if waiting.source in held:
                left.append(queue.popleft())
                continue
            if batch and size + waiting.size > self._batch_bytes:
                break
            size += waiting.size
            batch.append(queue.popleft())
        queue.extendleft(reversed(left))
        self._queued_bytes -= size
        return batch

    async def _write(self, batch: list[_Waiting], flight: _Flight) -> None:
        """Write one batch, start the next, then answer: PostgreSQL works while the acknowledgements go out."""
        results: Sequence[Outcome | Exception]
        try:
            results = await self._inbox.store([waiting.received for waiting in batch])
        except StoreUnreachable as away:
            results = [away] * len(batch)
        except Exception as refused:
            results = [refused] if len(batch) == 1 else await self._one_by_one(batch)
        self._busy.remove(flight)
        self._launch()
        self._answering = True
        for waiting, result in zip(batch, results, strict=True):
            waiting.settle(result)
        self._answering = False
        if Outcome.STORED in results:
            self._committed()
        self._after()

    async def _one_by_one(self, batch: list[_Waiting]) -> list[Outcome | Exception]:
        """A row that cannot be stored must not keep the others out."""
        results: list[Outcome | Exception] = []
        for waiting in batch:
            try:
                results += await self._inbox.store([waiting.received])
            except StoreUnreachable as away:
                results += [away] * (len(batch) - len(results))
                break
            except Exception as refused:
                results.append(refused)
        return results

    def _after(self) -> None:
        in_hand = self._in_hand
        while in_hand and in_hand[0].done is None:
            in_hand.popleft()
        if self._wake and len(self._queue) * 2 <= self._waiting_rows and self._queued_bytes * 2 <= self._waiting_bytes:
            wake, self._wake = self._wake, []
            for resume in wake:
                resume()
        if self._idle and not self._queue and not self._busy:
            idle, self._idle = self._idle, []
            for one in idle:
                one.callback(None)

    def _expire(self) -> None:
        """Answer those that waited too long; one timer for all, and none while nobody waits."""
        self._expiry = None
        now = self._timer.seconds()
        in_hand = self._in_hand
        while in_hand and (in_hand[0].done is None or now - in_hand[0].since >= self.patience):
            in_hand.popleft().settle(StoreUnreachable("the store does not answer in time"))
        if in_hand:
            self._expiry = self._timer.callLater(in_hand[0].since + self.patience - now, self._expire)
        self._queue = deque(waiting for waiting in self._queue if waiting.done is not None)
        self._queued_bytes = sum(waiting.size for waiting in self._queue)
        if not self._busy:
            self._launch()
        self._after()
