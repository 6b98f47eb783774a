"""The receive stage: a frame from a sender becomes a committed row, and only then an acknowledgement.

Input: the bytes of one frame, from `wire/mllp/protocol.py`, through a :class:`ListenerReceiver`.  Output: a row of the
inbox, a notification of the convert stage, and the acknowledgement.  Crash: acknowledged messages are durable; the
sender repeats the others, and the inbox recognises them by (source_system, source_id).

* AA, accepted: stored now or before.  The same key with other content is accepted with a warning and counted.
* AR, rejected: not HL7 v2, a missing field, too large.  The message is stored among the rejects.
* AE, not stored: the store is unreachable, or the required map is not installed.  The sender repeats the message.
* A received acknowledgement is stored among the rejects and never acknowledged.
* A batch (FHS, BHS) is received message by message and answered with a batch of acknowledgements (`batches.py`).

`group_commit.py` writes the messages.  The path from socket to commit uses callbacks, not coroutines, because it runs
for every message.

Source: interface specification "Ingest rules" and "HL7 ACK codes"; decisions section 4; HL7 v2.9 section 2.9.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.hl7.ack import accepted, acknowledge, acknowledgement_code, timestamp
from ipf.hl7.batches import content_of, is_batch
from ipf.hl7.charset import DEFAULT_FALLBACK
from ipf.hl7.framing import KEPT_HEAD, Junk, Oversize, Unfinished
from ipf.hl7.header import Header, missing_part, scan_header
from ipf.hl7.ordering import ordering_key
from ipf.hl7.queries import is_query
from ipf.pipeline.equal_failures import reason_of
from ipf.pipeline.receive.batches import Answers, answer_to, take_all
from ipf.pipeline.receive.checks import MAX_KEY_LENGTH, codec_for, invalid_key
from ipf.pipeline.receive.group_commit import GroupCommit
from ipf.pipeline.receive.timeouts import with_timeout
from ipf.ports import DEFAULT_TENANT, Clock, Outcome, Received, Rejected
from ipf.ports.messages.inbox import MessageStore
from ipf.ports.messages.sources import MLLP
from ipf.telemetry.logs import event_line

log = Logger()

SendAck = Callable[[bytes | None], None]
"""Sends the acknowledgement, without framing; None = none is due.  Called exactly once per frame."""
Observe = Callable[[str, str, str], None]
"""Counts (result, source_system, source_protocol); results: stored, duplicate, conflicting_duplicate, rejected,
map_missing, unavailable, failed, acknowledgement."""

_CONFLICTING = Outcome.CONFLICTING_DUPLICATE  # looking up an Enum member costs more than the comparison


@dataclass(frozen=True, slots=True)
class MllpListener:
    """The settings of one MLLP port, or of another way in (`protocol`: source_protocol of its messages).

    `fallback_charset`: codec for bytes that do not match MSH-18.
    `mapped_types`: message types for which the vendor profile of a message has a map.  `tells_all`: every outcome is
    acknowledged, whatever MSH-15 and MSH-16 say; for files, and for operators.
    """

    name: str
    fallback_charset: str = DEFAULT_FALLBACK
    tenant: str = DEFAULT_TENANT
    mapped_types: frozenset[str] = frozenset()
    tells_all: bool = False
    protocol: str = MLLP


ApplyProfile = Callable[[bytes, Header, MllpListener], MllpListener]
"""Applies a vendor profile: the listener settings for this message; it may set the control id of the header."""


class Receiver:
    """The rules of ingest, without sockets.

    `ordering`: `patient`, `sender` or `none` (IPF_ORDERING).  `map_missing(message_type)`: True when this type is
    refused because its map is missing (IPF_REQUIRE_MAP_TYPES, queries).  `observe`: counts results.
    `apply_profile`: set when vendor profiles are installed.
    """

    def __init__(
        self,
        inbox: MessageStore,
        commit: GroupCommit,
        timer: IReactorTime,
        *,
        now: Clock,
        new_correlation_id: Callable[[], str],
        ordering: str = "patient",
        map_missing: Callable[[str], bool] = lambda message_type: False,
        observe: Observe = lambda result, source_system, source_protocol: None,
    ) -> None:
        self.commit = commit
        self.apply_profile: ApplyProfile | None = None
        self._inbox = inbox
        self._timer = timer
        self._now = now
        self._new_correlation_id = new_correlation_id
        self._ordering = ordering
        self._map_missing = map_missing
        self._observe = observe
        self._control_prefix = secrets.token_hex(4)
        self._control_numbers = itertools.count(1)

    def for_listener(self, listener: MllpListener) -> ListenerReceiver:
        """The receiver of the connections of one listener."""
        return ListenerReceiver(self, listener)

    async def receive(self, frame: bytes, listener: MllpListener, peer: str) -> bytes | None:
        """The acknowledgement of one message; None = none is due."""
        answered: Deferred[bytes | None] = Deferred()
        self.take(frame, listener, peer, answered, answered.callback)
        return await answered

    def take(self, frame: bytes, listener: MllpListener, peer: str, source: object, send_ack: SendAck) -> None:
        """Store, reject or drop the message; `send_ack` is called when that is durable.

        A message with which something fails that is not foreseen is rejected: the connection goes on with the next.
        """
        try:
            self._take(frame, listener, peer, source, send_ack)
        except Exception as error:
            self._reject_unforeseen(error, frame, len(frame), listener, peer, send_ack)

    def _take(self, frame: bytes, listener: MllpListener, peer: str, source: object, send_ack: SendAck) -> None:
        """Read the header, then store, reject or drop the message."""
        if is_batch(frame):
            self._take_batch(frame, listener, peer, source, send_ack)
            return
        try:
            header = scan_header(frame)
        except Problem as problem:
            self._refuse(problem, None, frame, len(frame), listener, peer, send_ack)
            return
        if header.is_acknowledgement:
            self._drop_acknowledgement(frame, listener, peer, send_ack)
            return
        if listener.tells_all:
            header = header.in_original_mode()
        if self.apply_profile is not None:
            listener = self.apply_profile(frame, header, listener)
        refusal = missing_part(header) or invalid_key(header)
        if refusal is not None:
            self._refuse(refusal, header, frame, len(frame), listener, peer, send_ack)
            return
        if self._map_missing(header.message_type) and header.message_type not in listener.mapped_types:
            self._refuse_unmapped(header, listener, peer, send_ack)
            return
        received = Received(
            self._new_correlation_id(),
            self._now(),
            header.source_system,
            header.source_id,
            header.message_type,
            frame,
            codec_for(frame, header, listener.fallback_charset),
            source_protocol=listener.protocol,
            listener=listener.name,
            tenant=listener.tenant,
            ordering_key=ordering_key(frame, header, self._ordering, listener.tenant),
        )
        self.commit.submit(received, source, partial(self._on_stored, header, received, peer, send_ack))

    def _take_batch(self, frame: bytes, listener: MllpListener, peer: str, source: object, send_ack: SendAck) -> None:
        try:
            content = content_of(frame)
        except Problem as problem:
            self._refuse(problem, None, frame, len(frame), listener, peer, send_ack)
            return

        def take(message: bytes, answered: SendAck) -> None:
            self.take(message, listener, peer, source, answered)

        def done(answers: Answers) -> None:
            send_ack(answer_to(content, answers, timestamp(self._now()), self._next_control_id()))

        take_all(content, take, done)

    def oversize(self, event: Oversize, listener: MllpListener, peer: str, send_ack: SendAck) -> None:
        """Reject a frame above the size limit; only its head was read."""
        try:
            header = scan_header(event.head)
        except Problem:
            header = None
        if header is not None and self.apply_profile is not None:
            listener = self.apply_profile(event.head, header, listener)
        problem = Problem(Category.TOO_LARGE, f"the message is too large ({event.size} bytes)")
        self._refuse(problem, header, event.head, event.size, listener, peer, send_ack)

    def lost(self, event: Unfinished | Junk, listener: MllpListener, peer: str, reason: str) -> None:
        """Store bytes outside a complete frame among the rejects; no acknowledgement is sent."""
        self._observe("rejected", "", listener.protocol)
        rejected = self._rejected(reason, event.head, event.size, listener, peer)
        Deferred.fromCoroutine(self._store_reject(rejected))

    def _on_stored(
        self,
        header: Header,
        received: Received,
        peer: str,
        send_ack: SendAck,
        result: Outcome | Exception,
    ) -> None:
        if isinstance(result, Outcome):
            self._observe(str(result), received.source_system, received.source_protocol)
            if result is _CONFLICTING:
                _warn("conflicting_duplicate", received, peer, "the same id was received before with other content")
            send_ack(accepted(header, now=self._now(), control_id=self._next_control_id()))
        elif isinstance(result, StoreUnreachable):
            self._observe("unavailable", received.source_system, received.source_protocol)
            _warn("not_taken", received, peer, result.text)
            send_ack(self._acknowledge(header, "AE", result))
        else:
            self._reject_unstorable(header, received, peer, send_ack, result)

    def _reject_unstorable(
        self,
        header: Header,
        received: Received,
        peer: str,
        send_ack: SendAck,
        failure: Exception,
    ) -> None:
        """The store refuses this row: store it among the rejects and send AE."""
        self._observe("failed", received.source_system, received.source_protocol)
        log.error(
            "event=store_failed source_system={source_system} source_id={source_id} error={error}",
            event="store_failed",
            correlation_id=received.correlation_id,
            source_system=received.source_system,
            source_id=received.source_id,
            error=type(failure).__name__,
        )
        kept = f"it could not be stored: {type(failure).__name__}", received.raw[:KEPT_HEAD], len(received.raw)
        rejected = Rejected(
            received.received_at, received.correlation_id, received.listener, peer, *kept, received.tenant
        )
        problem = Problem(Category.INTERNAL, "the message could not be stored")
        Deferred.fromCoroutine(self._store_reject_and_acknowledge(rejected, header, problem, send_ack))

    def _reject_unforeseen(
        self, error: Exception, raw: bytes, size: int, listener: MllpListener, peer: str, send_ack: SendAck
    ) -> None:
        """Keep it among the rejects, and send AE: the sender may send the whole again."""
        log.failure("event=receive_failed listener={listener}", event="receive_failed", listener=listener.name)
        problem = Problem(Category.INTERNAL, reason_of(error))
        self._observe("failed", "", listener.protocol)
        try:
            header = scan_header(raw)
        except Exception:
            header = None
        rejected = self._rejected(problem.text, raw, size, listener, peer)
        Deferred.fromCoroutine(self._store_reject_and_acknowledge(rejected, header, problem, send_ack))

    def _refuse_unmapped(self, header: Header, listener: MllpListener, peer: str, send_ack: SendAck) -> None:
        """Send AE and store nothing, so that the repeat is a new message once the map is installed."""
        message_type = header.message_type
        self._observe("map_missing", header.source_system, listener.protocol)
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
        reason = f"no StructureMap for {message_type} is installed"
        if is_query(message_type):
            reason = f"queries are not served here: {message_type} is not stored and gets no answer"
        problem = Problem(Category.UNMAPPED, reason, "MSH-9")
        send_ack(self._acknowledge(header, "AE", problem))

    def _drop_acknowledgement(self, frame: bytes, listener: MllpListener, peer: str, send_ack: SendAck) -> None:
        self._observe("acknowledgement", "", listener.protocol)
        reason = "acknowledgements are neither stored as messages nor acknowledged"
        Deferred.fromCoroutine(self._store_reject(self._rejected(reason, frame, len(frame), listener, peer)))
        send_ack(None)

    def _refuse(
        self,
        problem: Problem,
        header: Header | None,
        raw: bytes,
        size: int,
        listener: MllpListener,
        peer: str,
        send_ack: SendAck,
    ) -> None:
        self._observe("rejected", header.source_system if header is not None else "", listener.protocol)
        rejected = self._rejected(str(problem), raw, size, listener, peer, header)
        Deferred.fromCoroutine(self._store_reject_and_acknowledge(rejected, header, problem, send_ack))

    def _rejected(
        self, reason: str, raw: bytes, size: int, listener: MllpListener, peer: str, header: Header | None = None
    ) -> Rejected:
        kept = raw[:KEPT_HEAD], size, listener.tenant, listener.tells_all
        rejected = Rejected(self._now(), self._new_correlation_id(), listener.name, peer, reason, *kept)
        names = (None, None) if header is None else (header.source_system, header.source_id)
        system, id = (name and name[:MAX_KEY_LENGTH] for name in names)
        text = "event=rejected listener={listener} peer={peer} source_system={source_system} source_id={source_id} "
        log.warn(
            text + "size={size} reason={reason}", event="rejected", source_system=system, source_id=id,
            correlation_id=rejected.correlation_id, listener=listener.name, peer=peer, size=size, reason=reason,
        )  # fmt: skip
        return rejected

    async def _store_reject(self, rejected: Rejected) -> Problem | None:
        """Store a reject within the timeout; why that failed."""
        try:
            await with_timeout(self._timer, self.commit.timeout, self._inbox.reject(rejected))
        except StoreUnreachable as problem:
            log.warn(event_line("reject_not_stored", reason=problem.text), correlation_id=rejected.correlation_id)
            return problem
        except Exception:
            log.failure("the reject could not be stored", correlation_id=rejected.correlation_id)
            return StoreUnreachable()
        return None

    async def _store_reject_and_acknowledge(
        self, rejected: Rejected, header: Header | None, problem: Problem, send_ack: SendAck
    ) -> None:
        """Send AR only when the reject is stored; else AE, so that the sender repeats the message."""
        failure = await self._store_reject(rejected)
        code = problem.rendering.ack_code if failure is None else "AE"
        send_ack(self._acknowledge(header, code, failure or problem))

    def _next_control_id(self) -> str:
        return f"{self._control_prefix}{next(self._control_numbers)}"

    def _acknowledge(self, header: Header | None, code: str, problem: Problem) -> bytes | None:
        requested_code = code
        if header is not None and len(header.fields) > 15:
            requested = acknowledgement_code(header.accept_ack, header.application_ack, code)
            if requested is None:
                return None
            requested_code = requested
        return acknowledge(
            header,
            requested_code,
            text=problem.text,
            error_code=problem.rendering.err_code,
            location=problem.place,
            now=self._now(),
            control_id=self._next_control_id(),
        )


class ListenerReceiver:
    """A Receiver for the connections of one listener, as `wire/mllp/protocol.py` needs it."""

    __slots__ = ("listener", "receiver")

    def __init__(self, receiver: Receiver, listener: MllpListener) -> None:
        self.receiver = receiver
        self.listener = listener

    @property
    def full(self) -> bool:
        """The store is behind: stop reading."""
        return self.receiver.commit.full

    def when_room(self, resume: Callable[[], None]) -> None:
        """Call `resume` once when there is room again."""
        self.receiver.commit.when_room(resume)

    def receive(self, frame: bytes, peer: str, source: object, send_ack: SendAck) -> None:
        """Receive one message."""
        self.receiver.take(frame, self.listener, peer, source, send_ack)

    def oversize(self, event: Oversize, peer: str, send_ack: SendAck) -> None:
        """Reject a frame above the size limit."""
        self.receiver.oversize(event, self.listener, peer, send_ack)

    def lost(self, event: Unfinished | Junk, peer: str, reason: str) -> None:
        """Store bytes outside a complete frame."""
        self.receiver.lost(event, self.listener, peer, reason)


def _warn(event: str, received: Received, peer: str, reason: str) -> None:
    """Log a warning about one message; repeats are counted."""
    log.warn(
        f"event={event} source_system={{source_system}} source_id={{source_id}} message_type={{message_type}} "
        "listener={listener} peer={peer} reason={reason}",
        event=event, correlation_id=received.correlation_id, source_system=received.source_system, peer=peer,
        source_id=received.source_id, message_type=received.message_type, listener=received.listener, reason=reason,
    )  # fmt: skip
