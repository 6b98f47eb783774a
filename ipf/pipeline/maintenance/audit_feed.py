"""The feed of the audit trail to a syslog server: each record of the chain, in order, at least once.

One process of all replicas holds the lease and sends.  Syslog has no acknowledgement.  What counts as received is a
stream that the receiver has ended with this side, which it does after it has read everything (RFC 5425 section 4.4).
The stage therefore ends its stream from time to time (`Pace`) and opens another; only then the durable position moves.
A stream that breaks, a crash and a lost lease repeat what was sent since: there are duplicates after a break, and no
gap.

No request waits for the feed.  While the receiver is slow the stage waits; while it is away the stage retries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from ipf.errors import StoreUnreachable
from ipf.pipeline.equal_failures import EqualFailures, reason_of
from ipf.ports import Clock, Json
from ipf.ports.audit.feed import AuditFeedStore, FedRecord, LogStream, OpenStream, StreamLost
from ipf.ports.threads import RunInThread, run_inline
from ipf.telemetry import audit_feed_metrics as metrics
from ipf.telemetry.logs import event_line

log = Logger()

BATCH = 100
LEASE_SECONDS = 120.0
RENEW_SECONDS = 20.0
MOST_UNCONFIRMED = 5000

Render = Callable[[Sequence[FedRecord]], bytes]
"""Frames of records."""


class Pace(NamedTuple):
    """Seconds.  `checkpoint`: after which a stream is ended; `first_wait`, `longest_wait`: after a failed attempt."""

    checkpoint: float = 30.0
    first_wait: float = 1.0
    longest_wait: float = 60.0


PACE = Pace()


class AuditFeed:
    """`step` sends what there is, `stop` ends the stream.  `seconds`: a monotonic clock."""

    def __init__(
        self,
        store: AuditFeedStore,
        open_stream: OpenStream,
        render: Render,
        surfaces: Sequence[str],
        worker: str,
        now: Clock,
        seconds: Callable[[], float],
        run_in_thread: RunInThread = run_inline,
        pace: Pace = PACE,
    ) -> None:
        self._store = store
        self._open_stream = open_stream
        self._render = render
        self._surfaces = surfaces
        self._worker = worker
        self._now = now
        self._seconds = seconds
        self._run_in_thread = run_in_thread
        self._pace = pace
        self._stream: LogStream | None = None
        self._opened_at = self._retry_at = self._held_at = float("-inf")
        self._sent = self._confirmed = 0
        self._failures = 0
        self._reason = ""
        self._equal = EqualFailures()
        self._is_sender = False
        self._behind = 0.0

    async def step(self) -> bool:
        """Send one batch; True when there may be more.  StoreUnreachable."""
        if self._seconds() < self._retry_at:
            return False
        if not await self._hold():
            return False
        if self._stream is None:
            self._sent = self._confirmed
        try:
            has_more = await self._send()
            if self._is_due():
                await self._confirm()
        except StreamLost as lost:
            self._wait(str(lost))
            return False
        except (StoreUnreachable, CancelledError):
            raise
        except Exception as error:
            log.failure("event=audit_feed_failed", event="audit_feed_failed")
            self._wait(reason_of(error))
            return False
        return has_more

    async def _hold(self) -> bool:
        """Whether this process sends."""
        if self._seconds() - self._held_at < RENEW_SECONDS:
            return self._is_sender
        self._held_at = self._seconds()
        held = await self._store.hold(self._worker, LEASE_SECONDS)
        self._is_sender = held is not None
        if held is not None:
            self._confirmed = held if self._stream is None else self._confirmed
            return True
        self._drop()
        if self._behind:
            self._note_behind(0.0)
        return False

    async def _send(self) -> bool:
        records = await self._store.after(self._sent, self._surfaces, BATCH)
        if not records:
            self._note_behind(0.0)
            return False
        wanted = [one for one in records if one.audit is not None]
        if wanted:
            oldest = min(one.audit.recorded_at for one in wanted if one.audit is not None)
            self._note_behind(max((self._now() - oldest).total_seconds(), 0.0))
            frames = await self._run_in_thread(lambda: self._frames(wanted))
            if self._stream is None:
                self._stream = await self._open_stream()
                self._opened_at = self._seconds()
            await self._stream.send(frames)
            metrics.records_sent(len(wanted))
        self._sent = records[-1].position
        return len(records) == BATCH

    def _frames(self, records: Sequence[FedRecord]) -> bytes:
        """The frames of records.  One that cannot be rendered is left out, with its position in the log."""
        try:
            frames = self._render(records)
        except Exception as error:
            if len(records) > 1:
                return b"".join([self._frames((one,)) for one in records])
            position = records[0].position
            log.failure("event=audit_feed_left_out position={position}", event="audit_feed_left_out", position=position)
            self._equal.failed(reason_of(error))
            return b""
        self._equal.worked()
        return frames

    def _is_due(self) -> bool:
        if self._stream is None:
            return self._sent > self._confirmed  # records of no wanted surface, which need no stream
        is_old = self._seconds() - self._opened_at >= self._pace.checkpoint
        return is_old or self._sent - self._confirmed >= MOST_UNCONFIRMED

    async def _confirm(self) -> None:
        """End the stream, and note what the receiver has."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            await stream.close()
        if self._failures:
            log.info(event_line("audit_feed_resumed", failures=self._failures))
            self._failures, self._reason = 0, ""
        if await self._store.advance(self._worker, self._sent):
            self._confirmed = self._sent
        else:
            self._held_at = float("-inf")  # another process may have taken over

    def _wait(self, reason: str) -> None:
        self._drop()
        wait = min(self._pace.first_wait * 2 ** min(self._failures, 10), self._pace.longest_wait)
        if reason != self._reason:
            log.warn(event_line("audit_feed_interrupted", reason=reason, position=self._confirmed))
        self._failures, self._reason = self._failures + 1, reason
        self._retry_at = self._seconds() + wait

    def _drop(self) -> None:
        """What was sent on this stream will be sent again."""
        if self._stream is not None:
            self._stream.abort()
            self._stream = None

    def _note_behind(self, seconds: float) -> None:
        self._behind = seconds
        metrics.seconds_behind(seconds)

    async def stop(self) -> None:
        """End the stream and the lease.  What the receiver does not confirm is sent again after the next start."""
        try:
            if self._stream is not None:
                await self._confirm()
        except StreamLost as lost:
            log.warn(event_line("audit_feed_interrupted", reason=str(lost), position=self._confirmed))
        if self._is_sender:
            await self._store.hold(self._worker, 0.0)
            self._is_sender, self._held_at = False, float("-inf")

    async def health(self) -> Json:
        """The details of the health component.  RuntimeError: the log server does not take the records."""
        if self._reason:
            raise RuntimeError(f"the log server does not take audit records: {self._reason}")
        if self._equal.problem is not None:
            raise RuntimeError(f"audit records cannot be rendered: {self._equal.problem}")
        if not self._is_sender:
            return {"sender": False}
        return {"sender": True, "position": self._confirmed, "seconds_behind": round(self._behind)}
