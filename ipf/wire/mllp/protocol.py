"""MLLP over Twisted: bytes to the framer, messages to the receiver, acknowledgements to the peer.

A connection sends answers in the order of the frames, decides when to read, and ends on errors and timeouts.  A peer
may send further messages before the first is answered (pipelining), up to `Limits.outstanding`.  Reading pauses at that
limit, while the store is behind, and while the peer does not read its answers.

A connection ends as follows:

* The peer closes its sending side: all complete messages are stored and answered, then the connection is closed.
* Reset: complete messages are stored.  Their answers are lost; the sender's repetition is a duplicate.
* A frame stalls (`frame_timeout`) or never ends (`frame_total`), bytes outside of frames or of an oversized frame
  exceed their limits, or unfinished frames take too much memory: the rest is stored as a reject, then the connection is
  closed.
* :meth:`MllpFactory.stop`: reading ends, received messages are answered, then the connection is closed.

A connection that is being closed is aborted after another `frame_timeout`, when the peer does not read its answers.

On TCP and unix sockets an answer is written to the socket directly while the socket accepts it whole.  After the first
partial write, and always on TLS, answers go through the buffer of the transport.

Source: HL7 Transport Specification: MLLP.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IHalfCloseableProtocol,
    IPushProducer,
    IReactorTime,
    ITCPTransport,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.tcp import Connection as TcpConnection
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ipf.hl7.framing import Event, Framer, Junk, Oversize, Unfinished, frame
from ipf.wire.mllp.limits import Limits
from ipf.wire.mllp.receiver import FrameReceiver

log = Logger()


class PendingAnswer:
    """One answer in the queue of answers of a connection.  Called with the answer when it is known."""

    __slots__ = ("answer", "connection", "ready")

    def __init__(self, connection: MllpProtocol) -> None:
        self.connection = connection
        self.ready = False
        self.answer: bytes | None = None

    def __call__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.ready = True
        self.connection.answered()


@implementer(IHalfCloseableProtocol, IPushProducer)
class MllpProtocol(Protocol):
    """One connection: frames go to the receiver in order of arrival, answers to the peer in the order of the frames."""

    transport: Any  # ITransport lacks the producer and consumer interfaces of TCP, TLS and unix sockets

    def __init__(self, factory: MllpFactory, peer: str) -> None:
        self.peer = peer
        self._factory = factory
        self._receiver = factory.receiver
        self._clock = factory.clock
        self._limits = factory.limits
        self._framer = Framer(factory.limits.message)
        self._arrived: deque[Event] = deque()
        self._pending: deque[PendingAnswer] = deque()
        self._unfinished_bytes = 0
        self._processing = False
        self._direct = False
        self._reading = True
        self._peer_is_slow = False
        self._awaits_room = False
        self._closing = False  # no more input
        self._closed = False  # the transport was told to close
        self._lost = False
        self._timer: IDelayedCall | None = None
        self._last_byte = 0.0
        self._frame_began: float | None = None

    def connectionMade(self) -> None:
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)
            self.transport.setTcpKeepAlive(True)
        self._direct = isinstance(self.transport, TcpConnection)  # not TLS: there the transport encrypts
        self.transport.registerProducer(self, True)
        self._factory.opened(self)
        self._last_byte = self._clock.seconds()
        self._start_timer(self._last_byte)

    def dataReceived(self, data: bytes) -> None:
        if self._closing:
            return
        framer = self._framer
        events = framer.feed(data)
        if events:
            self._arrived.extend(events)
            self._process()
        if framer.inside or framer.junk_size or self._unfinished_bytes or self._limits.idle is not None:
            self._check_unfinished(bool(events))

    def readConnectionLost(self) -> None:
        self._end_input("the connection was closed in the middle of a frame")

    def writeConnectionLost(self) -> None:
        self._end_input("the peer closed its receiving side")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._lost = True
        self._end_input("the connection was lost in the middle of a frame")
        self._count_unfinished(0)
        self._stop_timer()
        self._factory.closed(self)

    def pauseProducing(self) -> None:
        self._peer_is_slow = True
        self._update_reading()

    def resumeProducing(self) -> None:
        self._peer_is_slow = False
        self._process()

    def stopProducing(self) -> None:
        self._peer_is_slow = False

    def answered(self) -> None:
        """An answer is known: send all answers that are next in order."""
        pending = self._pending
        ready = []
        while pending and pending[0].ready:
            answer = pending.popleft().answer
            if answer is not None:
                ready.append(frame(answer))
        if ready and not self._lost:
            self._send(ready[0] if len(ready) == 1 else b"".join(ready))
        if self._arrived or self._closing or not self._reading:
            self._process()

    def _send(self, data: bytes) -> None:
        """Write to the socket directly while it accepts all bytes: waiting for epoll costs as much as the answer."""
        if self._direct:
            sent = self.transport.writeSomeData(data)
            if sent == len(data):
                return
            self._direct = False  # from now on the transport buffers, and keeps the order
            if isinstance(sent, int):  # else an error, which the transport reports at its own write
                data = data[sent:]
        self.transport.write(data)

    def stop(self) -> None:
        """Read no more, answer the received messages, close."""
        self._framer.finish()
        self._end_input("")

    @property
    def unanswered(self) -> int:
        """The number of messages without an answer."""
        return len(self._pending) + len(self._arrived)

    def _process(self) -> None:
        """Pass on the arrived frames as far as the limits allow; an answer may arrive within the call."""
        if self._processing:
            return
        self._processing = True
        try:
            while self._arrived and not self._must_wait():
                self._dispatch(self._arrived.popleft())
        finally:
            self._processing = False
        self._update_reading()

    def _dispatch(self, event: Event) -> None:
        if isinstance(event, bytes):
            answer = PendingAnswer(self)
            self._pending.append(answer)
            self._receiver.receive(event, self.peer, self, answer)
        elif isinstance(event, Oversize):
            answer = PendingAnswer(self)
            self._pending.append(answer)
            self._receiver.oversize(event, self.peer, answer)
        else:
            reason = "bytes outside of a frame" if isinstance(event, Junk) else "a new frame began in the middle of it"
            self._receiver.lost(event, self.peer, reason)

    def _must_wait(self) -> bool:
        if len(self._pending) >= self._limits.outstanding:
            return True
        if not self._receiver.full:
            return False
        if not self._awaits_room:
            self._awaits_room = True
            self._receiver.when_room(self._has_room)
        return True

    def _has_room(self) -> None:
        self._awaits_room = False
        self._process()

    def _update_reading(self) -> None:
        """Pause or resume reading; close when everything is answered."""
        if self._lost:
            return
        if self._closing:
            if not self._arrived and not self._pending and not self._closed:
                self._closed = True
                self._stop_timer()
                self._timer = self._clock.callLater(self._limits.frame_timeout, self.transport.abortConnection)
                self.transport.unregisterProducer()
                self.transport.loseConnection()
            return
        reading = not self._arrived and not self._peer_is_slow and not self._must_wait()
        if reading != self._reading:
            self._reading = reading
            if reading:
                self._last_byte = self._clock.seconds()
                self.transport.resumeProducing()
            else:
                self.transport.pauseProducing()

    def _end_input(self, reason: str) -> None:
        """Read no more: store the unfinished rest as a reject, answer the received messages, then close."""
        if not self._closing:
            self._closing = True
            for event in self._framer.finish():
                if isinstance(event, Unfinished | Junk):
                    self._receiver.lost(
                        event, self.peer, "bytes outside of a frame" if isinstance(event, Junk) else reason
                    )
            self._count_unfinished(0)
            if not self._lost:
                self.transport.pauseProducing()
        self._process()

    def _count_unfinished(self, count: int) -> None:
        self._factory.unfinished_bytes += count - self._unfinished_bytes
        self._unfinished_bytes = count

    def _check_unfinished(self, has_complete: bool) -> None:
        """Apply the limits of unfinished frames; called only for connections that have one."""
        framer = self._framer
        now = self._clock.seconds()
        self._last_byte = now
        if not framer.inside:
            self._frame_began = None
        elif has_complete or self._frame_began is None:
            self._frame_began = now
        self._count_unfinished(framer.held)
        if framer.pending > self._limits.discard:
            self._end_input("the frame does not end")
        elif framer.junk_size > self._limits.junk:
            self._end_input("bytes outside of a frame")
        elif self._factory.unfinished_bytes > self._limits.memory and framer.inside:
            self._end_input("unfinished frames of all connections take too much memory")
        elif framer.inside and self._timer is None:
            self._start_timer(now)

    def _start_timer(self, now: float) -> None:
        """One timer for each connection that has a deadline."""
        deadline = self._deadline()
        if deadline is not None:
            self._timer = self._clock.callLater(max(deadline - now, 0.001), self._timer_fired)

    def _deadline(self) -> float | None:
        """The time at which the connection times out, as far as is known now."""
        if self._frame_began is not None:
            return min(self._last_byte + self._limits.frame_timeout, self._frame_began + self._limits.frame_total)
        return self._last_byte + self._limits.idle if self._limits.idle is not None else None

    def _stop_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def _timer_fired(self) -> None:
        self._timer = None
        if self._closing:
            return
        now = self._clock.seconds()
        if not self._reading or self._pending:  # the peer waits for this side
            self._last_byte = now
            if self._frame_began is not None and not self._reading:
                self._frame_began = now
        deadline = self._deadline()
        if deadline is None or deadline > now:
            self._start_timer(now)
            return
        reason = "the frame was not continued" if self._frame_began is not None else "the connection was idle"
        log.info(
            "event=mllp_timeout listener={listener} peer={peer} reason={reason}",
            event="mllp_timeout",
            listener=self._factory.name,
            peer=self.peer,
            reason=reason,
        )
        self._end_input(reason)


class MllpFactory(Factory):
    """The connections of one listener.  `connections_changed` is called with their number."""

    noisy = False

    def __init__(
        self,
        name: str,
        receiver: FrameReceiver,
        clock: IReactorTime,
        limits: Limits | None = None,
        connections_changed: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.name = name
        self.receiver = receiver
        self.clock = clock
        self.limits = limits or Limits()
        self.unfinished_bytes = 0  # bytes of unfinished frames, all connections
        self.connections_changed = connections_changed
        self._connections: set[MllpProtocol] = set()
        self._stopping = False
        self._all_closed: Deferred[None] | None = None
        self._warned_at = float("-inf")

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def buildProtocol(self, addr: IAddress | None) -> MllpProtocol | None:
        peer = f"{addr.host}:{addr.port}" if isinstance(addr, IPv4Address | IPv6Address) else str(addr)
        if self._stopping or len(self._connections) >= self.limits.connections:
            self._warn_refused(peer)
            return None
        return MllpProtocol(self, peer)

    def opened(self, connection: MllpProtocol) -> None:
        """A connection was made."""
        self._connections.add(connection)
        self.connections_changed(len(self._connections))

    def closed(self, connection: MllpProtocol) -> None:
        """A connection was closed."""
        self._connections.discard(connection)
        self.connections_changed(len(self._connections))
        if self._all_closed is not None and not self._connections:
            self._all_closed.callback(None)
            self._all_closed = None

    async def stop(self, timeout_seconds: float = 10.0) -> None:
        """Answer the received messages and close all connections; abort them after `timeout_seconds`."""
        self._stopping = True
        for connection in list(self._connections):
            connection.stop()
        if not self._connections:
            return
        closed: Deferred[None] = Deferred()
        self._all_closed = closed
        timer = self.clock.callLater(timeout_seconds, self._abort)
        await closed
        if timer.active():
            timer.cancel()

    def _abort(self) -> None:
        for connection in list(self._connections):
            log.warn(
                "event=mllp_abort listener={listener} peer={peer} unanswered={unanswered}",
                event="mllp_abort",
                listener=self.name,
                peer=connection.peer,
                unanswered=connection.unanswered,
            )
            connection.transport.abortConnection()

    def _warn_refused(self, peer: str) -> None:
        now = self.clock.seconds()
        if now - self._warned_at < 10 or self._stopping:
            return
        self._warned_at = now
        log.warn(
            "event=mllp_refused listener={listener} peer={peer} connections={connections}",
            event="mllp_refused",
            listener=self.name,
            peer=peer,
            connections=len(self._connections),
        )
