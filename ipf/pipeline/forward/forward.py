"""Sends the messages of one destination, one after another.

What arrives: a destination, its ledger, and a connection.  What leaves: each pending message, framed, and the end of
each attempt in the ledger.  AA and CA: sent.  AR and CR: a dead letter at once, since the same message would be refused
again.  AE, CE, no acknowledgement in time, no connection: tried again after 1 second, then twice as long, at most 5
minutes, and the messages behind it wait.  After `max_attempts` it is a dead letter, and after UNFORESEEN_ATTEMPTS when
something fails with it that nobody foresaw.

Crash: an attempt whose end was not written is made again.  Source: HL7 v2.9 section 2.9;
docs/how-to/forward-messages.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.hl7.answers import GOOD, AckAnswer
from ipf.hl7.header import scan_header
from ipf.pipeline.equal_failures import reason_of
from ipf.pipeline.forward.changes import changed, matches
from ipf.ports.messages.forwards import Candidate, Destination, Forwarded, ForwardStatus, ForwardStore, NotSent, Pending

log = Logger()

LEASE_SECONDS = 90.0  # longer than an acknowledgement may take
LOOK_SECONDS = 0.5
FILLED_AT_ONCE = 500
WHOLE_AT_ONCE = 20  # messages that are read whole for a condition
UNFORESEEN_ATTEMPTS = 5
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 300.0
_REFUSED = ("AR", "CR")


class Connection(Protocol):
    """A connection to a destination, opened when it is needed."""

    async def send(self, message: bytes, control_id: str) -> AckAnswer:
        """Send a message; its acknowledgement.  NotSent."""

    async def close(self) -> None:
        """Close the connection."""


class ForwardMetrics(Protocol):
    """Metrics of forwarding."""

    def forwarded(self, destination: str, outcome: str) -> None:
        """An attempt ended: sent, failed, or refused."""


@dataclass(slots=True)
class Forwarder:
    """One destination.  `worker`: the name of its lease.  `pause`: waits so many seconds.  `seconds`: a clock."""

    destination: Destination
    store: ForwardStore
    connection: Connection
    worker: str
    pause: Callable[[float], Awaitable[object]]
    seconds: Callable[[], float]
    metrics: ForwardMetrics
    stopping: bool = False

    async def run(self) -> None:
        """Send until the service stops, an operator pauses, or another process has the lease."""
        name = self.destination.name
        fence = await self.store.begin(name, self.worker, LEASE_SECONDS, self.destination.since)
        if fence is None:
            return
        renewed = self.seconds()
        is_whole = bool(self.destination.where)
        at_once = WHOLE_AT_ONCE if is_whole else FILLED_AT_ONCE
        while not self.stopping:
            looked = await self.store.fill(name, fence, self._matches, at_once, whole=is_whole)
            wait = await self._send_pending(fence)
            if looked is None or wait is None:
                return
            if looked < at_once and wait:
                await self.pause(min(wait, LOOK_SECONDS))
            if self.seconds() - renewed > LEASE_SECONDS / 3:
                renewed = self.seconds()
                if not await self.store.renew(name, fence, LEASE_SECONDS):
                    return
        await self.store.release(self.worker)

    def _matches(self, message: Candidate) -> bool:
        try:
            return matches(self.destination, message)
        except Exception:
            return True  # the same failure at the attempt makes it a dead letter

    async def _send_pending(self, fence: int) -> float | None:
        """Send what is due, at most as many as are filled at once; the seconds to wait, None: the lease was lost."""
        for _ in range(FILLED_AT_ONCE):
            pending = await self.store.next(self.destination.name)
            if pending is None or self.stopping:
                return LOOK_SECONDS
            if pending.wait_seconds > 0:
                return pending.wait_seconds
            end = await self._attempt(pending)
            if not await self._settle(fence, end):
                return None
        return 0.0

    async def _settle(self, fence: int, end: Forwarded) -> bool:
        """Write the end of an attempt; whether the lease is still held.

        The ledger does not take the end of a message that an operator has skipped or deleted meanwhile.
        """
        name = self.destination.name
        try:
            is_settled = await self.store.settle(name, fence, end, LEASE_SECONDS)
        except (StoreUnreachable, CancelledError):
            raise
        except Exception:  # the text of the receiver: without its end the message would be sent again and again
            log.failure("event=forward_end_refused destination={destination}", event="forward_end_refused",
                        destination=name)  # fmt: skip
            plain = replace(end, code="", text="the answer of the receiver could not be written")
            is_settled = await self.store.settle(name, fence, plain, LEASE_SECONDS)
        if is_settled:
            return True
        return await self.store.renew(name, fence, LEASE_SECONDS)

    async def _attempt(self, pending: Pending) -> Forwarded:
        try:
            message = changed(self.destination, pending.raw, pending.charset)
            answer = await self.connection.send(message, scan_header(message).source_id)
        except Problem as problem:
            return self._ended(pending, ForwardStatus.DEAD_LETTER, "refused", "", str(problem))
        except NotSent as failure:
            return self._failed(pending, "", str(failure))
        except CancelledError:
            raise
        except Exception as error:
            return self._failed_unforeseen(pending, error)
        if answer.code in GOOD:
            return self._ended(pending, ForwardStatus.SENT, "sent", answer.code, answer.text)
        if answer.code in _REFUSED:
            return self._ended(pending, ForwardStatus.DEAD_LETTER, "refused", answer.code, answer.text)
        return self._failed(pending, answer.code, answer.text or "the receiver reports an error")

    def _failed(self, pending: Pending, code: str, text: str) -> Forwarded:
        attempts = pending.attempts + 1
        if self.destination.max_attempts and attempts >= self.destination.max_attempts:
            return self._ended(pending, ForwardStatus.DEAD_LETTER, "refused", code, text)
        wait = min(FIRST_RETRY_SECONDS * 2 ** min(pending.attempts, 20), LONGEST_RETRY_SECONDS)
        self._tell("forward_failed", pending, f"{code} {text}".strip())
        self.metrics.forwarded(self.destination.name, "failed")
        return Forwarded(pending.message_id, ForwardStatus.PENDING, code, text, wait)

    def _failed_unforeseen(self, pending: Pending, error: Exception) -> Forwarded:
        """Tried again some times, since the cause may be around the message; then the next one is sent."""
        log.failure("event=forward_failed destination={destination}", event="forward_failed",
                    destination=self.destination.name)  # fmt: skip
        if pending.attempts + 1 >= UNFORESEEN_ATTEMPTS:
            return self._ended(pending, ForwardStatus.DEAD_LETTER, "refused", "", reason_of(error))
        return self._failed(pending, "", reason_of(error))

    def _ended(self, pending: Pending, status: ForwardStatus, outcome: str, code: str, text: str) -> Forwarded:
        self.metrics.forwarded(self.destination.name, outcome)
        if status is ForwardStatus.DEAD_LETTER:
            self._tell("forward_dead_letter", pending, f"{code} {text}".strip())
        return Forwarded(pending.message_id, status, code, text)

    def _tell(self, event: str, pending: Pending, reason: str) -> None:
        log.warn(f"event={event} destination={{destination}} message_id={{message_id}} reason={{reason}}", event=event,
                 destination=self.destination.name, message_id=pending.message_id, reason=reason,
                 correlation_id=pending.correlation_id)  # fmt: skip
