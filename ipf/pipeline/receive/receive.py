"""Receive: a frame from a sender becomes a committed row, and only then an acknowledgement.

What arrives: the bytes of one frame, from `wire/mllp/protocol.py`, through a :class:`ListenerReceiver`.  What leaves:
a row of
the inbox,
a ring of its notifier, and the acknowledgement.  What survives a crash: everything that was acknowledged; anything else
the sender sends again, and the inbox knows it by (source_system, source_id).

* Taken (AA): stored, or stored before.  The same key with other content is a sender's fault: AA, a WARN line, a count.
* Refused (AR): no HL7 v2, a part missing, too large.  Kept among the rejects, never dropped silently.
* Not taken (AE): the store cannot be reached, or the type needs a map that is not installed; the sender tries again.
* An acknowledgement that is sent to us is kept among the rejects and never answered, or two engines would thank each
  other for ever.

Messages are written by `group_commit.py`: what came while the last commit ran goes into the next one.  Callbacks,
not coroutines, lead from the socket to the commit and back, since this runs for every message.

Source: interface specification "Ingest rules" and "HL7 ACK codes"; decisions section 4; HL7 v2.9 section 2.9.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.hl7.ack import accepted, acknowledge, acknowledgement_code
from ipf.hl7.charset import DEFAULT_CODEC, DEFAULT_FALLBACK, decode, sniff
from ipf.hl7.framing import KEPT_HEAD, Junk, Oversize, Unfinished
from ipf.hl7.header import Header, missing_part, scan_header
from ipf.hl7.ordering import ordering_key
from ipf.pipeline.receive.group_commit import GroupCommit
from ipf.ports import DEFAULT_TENANT, Clock, Inbox, Outcome, Received, Rejected

log = Logger()

Answer = Callable[[bytes | None], None]
"""Takes the acknowledgement to send, without framing; None = none is due.  Called exactly once for each frame."""
Observe = Callable[[str, str], None]
"""Counts (result, source_system); results: stored, duplicate, conflicting_duplicate, rejected, map_missing,
unavailable, failed, acknowledgement."""

_LONGEST_KEY = 255
_CONFLICTING = Outcome.CONFLICTING_DUPLICATE  # to look it up costs more than the comparison


@dataclass(frozen=True, slots=True)
class Listener:
    """What is particular to one MLLP port.  `fallback_charset`: codec for bytes that are not what MSH-18 says.

    `mapped_types`: message types that the vendor profile of a message has a map for.
    """

    name: str
    fallback_charset: str = DEFAULT_FALLBACK
    tenant: str = DEFAULT_TENANT
    mapped_types: frozenset[str] = frozenset()


Place = Callable[[bytes, Header, Listener], Listener]
"""What a vendor profile makes of a message: the listener as it is for this one; it may give the header a control id."""


class Receiver:
    """The rules of ingest, without sockets.

    `ordering`: `patient`, `sender` or `none` (IPF_ORDERING).  `map_missing(message_type)`: True when this type is
    refused for want of a map (IPF_REQUIRE_MAP_TYPES).  `observe`: counts results.  `place`: set while there are vendor
    profiles.
    """

    def __init__(
        self,
        inbox: Inbox,
        commit: GroupCommit,
        timer: IReactorTime,
        *,
        now: Clock,
        new_correlation_id: Callable[[], str],
        ordering: str = "patient",
        map_missing: Callable[[str], bool] = lambda message_type: False,
        observe: Observe = lambda result, source_system: None,
    ) -> None:
        self.commit = commit
        self.place: Place | None = None
        self._inbox = inbox
        self._timer = timer
        self._now = now
        self._new_correlation_id = new_correlation_id
        self._ordering = ordering
        self._map_missing = map_missing
        self._observe = observe
        self._control_prefix = secrets.token_hex(4)
        self._control_numbers = itertools.count(1)

    def door(self, listener: Listener) -> ListenerReceiver:
        """The entrance for the connections of one listener."""
        return ListenerReceiver(self, listener)

    async def receive(self, frame: bytes, listener: Listener, peer: str) -> bytes | None:
        """One message in, its acknowledgement out (None = none is due), when it is decided."""
        answered: Deferred[bytes | None] = Deferred()
        self.take(frame, listener, peer, answered, answered.callback)
        return await answered

    def take(self, frame: bytes, listener: Listener, peer: str, source: object, answer: Answer) -> None:
        """Read the header, and store, refuse or drop; `answer` is called when that is durable."""
        try:
            header = scan_header(frame)
        except Problem as problem:
            self._refuse(problem, None, frame, len(frame), listener, peer, answer)
            return
        if header.is_acknowledgement:
            self._drop(frame, listener, peer, answer)
            return
        if self.place is not None:
            listener = self.place(frame, header, listener)
        unfit = missing_part(header) or _unusable(header)
        if unfit is not None:
            self._refuse(unfit, header, frame, len(frame), listener, peer, answer)
            return
        if self._map_missing(header.message_type) and header.message_type not in listener.mapped_types:
            self._lacks_map(header, listener, peer, answer)
            return
        received = Received(
            self._new_correlation_id(),
            self._now(),
            header.source_system,
            header.source_id,
            header.message_type,
            frame,
            _codec(frame, header, listener),
            listener=listener.name,
            tenant=listener.tenant,
            ordering_key=ordering_key(frame, header, self._ordering, listener.tenant),
        )
        self.commit.submit(received, source, partial(self._stored, header, received, peer, answer))

    def oversize(self, event: Oversize, listener: Listener, peer: str, answer: Answer) -> None:
        """Refuse a frame of which only the head is there."""
        try:
            header = scan_header(event.head)
        except Problem:
            header = None
        if header is not None and self.place is not None:
            listener = self.place(event.head, header, listener)
        problem = Problem(Category.TOO_LARGE, f"the message is too large ({event.size} bytes)")
        self._refuse(problem, header, event.head, event.size, listener, peer, answer)

    def lost(self, event: Unfinished | Junk, listener: Listener, peer: str, reason: str) -> None:
        """Keep what came without being a frame; nobody is answered."""
        self._observe("rejected", "")
        rejected = self._rejected(reason, event.head, event.size, listener, peer)
        Deferred.fromCoroutine(self._keep(rejected))

    def _stored(
        self, header: Header, received: Received, peer: str, answer: Answer, result: Outcome | Exception
    ) -> None:
        if isinstance(result, Outcome):
            self._observe(str(result), received.source_system)
            if result is _CONFLICTING:
                _warn("conflicting_duplicate", received, peer, "another content came with this id before")
            answer(accepted(header, now=self._now(), control_id=self._next_control_id()))
        elif isinstance(result, StoreUnreachable):
            self._observe("unavailable", received.source_system)
            _warn("not_taken", received, peer, result.text)
            answer(self._acknowledge(header, "AE", result))
        else:
            self._failed(header, received, peer, answer, result)

    def _failed(self, header: Header, received: Received, peer: str, answer: Answer, failure: Exception) -> None:
        """The store is there and will not have this row: kept for the operator, AE to the sender."""
        self._observe("failed", received.source_system)
        log.error(
            "event=store_failed source_system={source_system} source_id={source_id} error={error}",
            event="store_failed",
            correlation_id=received.correlation_id,
            source_system=received.source_system,
            source_id=received.source_id,
            error=type(failure).__name__,
        )
        rejected = Rejected(
            received.received_at,
            received.correlation_id,
            received.listener,
            peer,
            f"it could not be stored: {type(failure).__name__}",
            received.raw[:KEPT_HEAD],
            len(received.raw),
            received.tenant,
        )
        problem = Problem(Category.INTERNAL, "the message could not be stored")
        Deferred.fromCoroutine(self._keep_and_answer(rejected, header, problem, answer))

    def _lacks_map(self, header: Header, listener: Listener, peer: str, answer: Answer) -> None:
        """Nothing is stored, so that the message is new when it comes again after the map was installed."""
        message_type = header.message_type
        self._observe("map_missing", header.source_system)
        log.warn(
            "event=map_missing source_system={source_system} source_id={source_id} message_type={message_type} "
            "listener={listener} peer={peer}",
            event="map_missing",
            source_system=header.source_system,
            source_id=header.source_id,
            message_type=message_type,
            listener=listener.name,
            peer=peer,
        )
        problem = Problem(Category.UNMAPPED, f"no StructureMap for {message_type} is installed", "MSH-9")
        answer(self._acknowledge(header, "AE", problem))

    def _drop(self, frame: bytes, listener: Listener, peer: str, answer: Answer) -> None:
        self._observe("acknowledgement", "")
        reason = "an acknowledgement is not taken in, nor answered"
        Deferred.fromCoroutine(self._keep(self._rejected(reason, frame, len(frame), listener, peer)))
        answer(None)

    def _refuse(
        self,
        problem: Problem,
        header: Header | None,
        raw: bytes,
        size: int,
        listener: Listener,
        peer: str,
        answer: Answer,
    ) -> None:
        self._observe("rejected", header.source_system if header is not None else "")
        rejected = self._rejected(str(problem), raw, size, listener, peer, header)
        Deferred.fromCoroutine(self._keep_and_answer(rejected, header, problem, answer))

    def _rejected(
        self, reason: str, raw: bytes, size: int, listener: Listener, peer: str, header: Header | None = None
    ) -> Rejected:
        rejected = Rejected(
            self._now(),
            self._new_correlation_id(),
            listener.name,
            peer,
            reason,
            raw[:KEPT_HEAD],
            size,
            listener.tenant,
        )
        log.warn(
            "event=rejected listener={listener} peer={peer} source_system={source_system} source_id={source_id} "
            "size={size} reason={reason}",
            event="rejected",
            source_system=header.source_system[:_LONGEST_KEY] if header is not None else None,
            source_id=header.source_id[:_LONGEST_KEY] if header is not None else None,
            correlation_id=rejected.correlation_id,
            listener=listener.name,
            peer=peer,
            size=size,
            reason=reason,
        )
        return rejected

    async def _keep(self, rejected: Rejected) -> bool:
        """Store a reject, within the patience; False when that did not work."""
        try:
            await within(self._timer, self.commit.patience, self._inbox.reject(rejected))
        except Exception:
            log.failure("a reject could not be kept", correlation_id=rejected.correlation_id)
            return False
        return True

    async def _keep_and_answer(
        self, rejected: Rejected, header: Header | None, problem: Problem, answer: Answer
    ) -> None:
        """A refusal is final (AR) only when the operator can see it; else the sender shall try again (AE)."""
        kept = await self._keep(rejected)
        code = problem.rendering.ack_code
        answer(
            self._acknowledge(header, code, problem) if kept else self._acknowledge(header, "AE", StoreUnreachable())
        )

    def _next_control_id(self) -> str:
        return f"{self._control_prefix}{next(self._control_numbers)}"

    def _acknowledge(self, header: Header | None, code: str, problem: Problem) -> bytes | None:
        asked = code
        if header is not None and len(header.fields) > 15:
            wanted = acknowledgement_code(header.accept_ack, header.application_ack, code)
            if wanted is None:
                return None
            asked = wanted
        return acknowledge(
            header,
            asked,
            text=problem.text,
            error_code=problem.rendering.err_code,
            location=problem.place,
            now=self._now(),
            control_id=self._next_control_id(),
        )


class ListenerReceiver:
    """One listener's entrance to the receiver, as `wire/mllp/protocol.py` needs it."""

    __slots__ = ("listener", "receiver")

    def __init__(self, receiver: Receiver, listener: Listener) -> None:
        self.receiver = receiver
        self.listener = listener

    @property
    def full(self) -> bool:
        """The store is behind: stop reading."""
        return self.receiver.commit.full

    def when_room(self, resume: Callable[[], None]) -> None:
        """Call `resume` once when there is room again."""
        self.receiver.commit.when_room(resume)

    def receive(self, frame: bytes, peer: str, source: object, answer: Answer) -> None:
        """Take one message."""
        self.receiver.take(frame, self.listener, peer, source, answer)

    def oversize(self, event: Oversize, peer: str, answer: Answer) -> None:
        """Refuse a frame above the limit."""
        self.receiver.oversize(event, self.listener, peer, answer)

    def lost(self, event: Unfinished | Junk, peer: str, reason: str) -> None:
        """Keep what is no frame."""
        self.receiver.lost(event, self.listener, peer, reason)


def _codec(raw: bytes, header: Header, listener: Listener) -> str:
    """The codec that the message is stored with: the one that reads all of it."""
    if raw[:3] != b"MSH":
        wide = sniff(raw)
        if wide is not None:
            return wide
    if raw.isascii() and not header.field(18):
        return DEFAULT_CODEC
    return decode(raw, header.charset_names, listener.fallback_charset).codec


def _unusable(header: Header) -> Problem | None:
    """Keys that no store can hold."""
    keys = header.source_id + header.source_system + header.message_type
    if len(keys) <= _LONGEST_KEY and "\x00" not in keys:
        return None
    for value, place in (
        (header.source_id, "MSH-10"),
        (header.source_system, "MSH-3.1"),
        (header.message_code, "MSH-9.1"),
        (header.trigger, "MSH-9.2"),
    ):
        if len(value) > _LONGEST_KEY:
            return Problem(Category.VALUE, f"the value is longer than {_LONGEST_KEY} characters", place)
        if "\x00" in value:
            return Problem(Category.VALUE, "the value holds a NUL character", place)
    return None


def _warn(event: str, received: Received, peer: str, reason: str) -> None:
    """A line about one message; many alike are counted, not written."""
    log.warn(
        f"event={event} source_system={{source_system}} source_id={{source_id}} message_type={{message_type}} "
        "listener={listener} peer={peer} reason={reason}",
        event=event,
        correlation_id=received.correlation_id,
        source_system=received.source_system,
        source_id=received.source_id,
        message_type=received.message_type,
        listener=received.listener,
        peer=peer,
        reason=reason,
    )


async def within(timer: IReactorTime, seconds: float, work: Awaitable[Any]) -> None:
    """Wait for `work` so long at most, then TimeoutError; the work itself is not cancelled and goes on."""

    async def run() -> None:
        await work

    finished: Deferred[None] = Deferred()
    limit = timer.callLater(seconds, finished.errback, TimeoutError())

    def end(result: Any) -> None:
        if limit.active():
            limit.cancel()
            finished.callback(result)

    Deferred.fromCoroutine(run()).addBoth(end)
    await finished
