"""MLLP over Twisted: bytes to the framer, messages to the door, acknowledgements back.

A thin skin.  It owns what only a connection can know: that answers go out in the order of the frames, when to stop
reading, when to give up.  One connection may have several messages on their way (pipelining), up to a bound; reading
pauses at that bound, while the store is behind, and while the peer does not read its answers.

How connections end:

* The peer closes its sending side: what it sent is still taken and answered, then we close.
* Reset: messages that came whole are still taken; their answers have nowhere to go (a repeat is a duplicate).
* A frame that does not go on (`frame_timeout`) or never ends (`frame_total`), bytes outside of frames or of an
  oversized frame beyond all bounds, or too much memory in unfinished frames: the rest is kept as a reject and we close.
* :meth:`MllpFactory.stop`: nothing more is read, what is in hand is answered, then we close.

A peer that does not even read its last answers is cut off after another `frame_timeout`.

Over TCP (and unix sockets) answers go straight to the socket for as long as it takes each of them whole; from the first
that it does not, the transport's buffer has them all.  Over TLS the transport always has them.

Source: HL7 Transport Specification: MLLP; house.md habits 2 and 3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any
from typing import Protocol as Interface

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

log = Logger()

Answer = Callable[[bytes | None], None]


class Sink(Interface):
    """Where messages go: `ListenerReceiver` of `pipeline/receive/receive.py`.  `answer` is called once for each
    frame, in any
    order."""

    @property
    def full(self) -> bool:
        """Stop reading."""

    def when_room(self, resume: Callable[[], None]) -> None:
        """Call `resume` once when there is room again."""

    def receive(self, frame: bytes, peer: str, source: object, answer: Answer) -> None:
        """Take one message.  Rows of one `source` are stored in order of this call."""

    def oversize(self, event: Oversize, peer: str, answer: Answer) -> None:
        """Refuse a frame above the limit."""

    def lost(self, event: Unfinished | Junk, peer: str, reason: str) -> None:
        """Keep what is no frame; there is no answer."""


class _Slot:
    """The place of one answer in the order of answers; called with the answer."""

    __slots__ = ("answer", "connection", "ready")

    def __init__(self, connection: Mllp) -> None:
        self.connection = connection
        self.ready = False
        self.answer: bytes | None = None

    def __call__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.ready = True
        self.connection.answered()


@implementer(IHalfCloseableProtocol, IPushProducer)
class Mllp(Protocol):
    """One connection: frames go to the sink in order of arrival, answers to the peer in the order of their frames.

    An answer is sent within the call that completes it, when the transport is a TCP connection whose socket has room.
    """

    transport: Any  # TCP, TLS or unix socket: a producer and a consumer as well, which ITransport does not say

    def __init__(self, factory: MllpFactory, peer: str) -> None:
        self.peer = peer
        self._owner = factory
        self._sink = factory.sink
        self._clock = factory.clock
        self._limits = factory.limits
        self._framer = Framer(factory.limits.message)
        self._arrived: deque[Event] = deque()
        self._slots: deque[_Slot] = deque()
        self._held = 0
        self._working = False
        self._direct = False
        self._reading = True
        self._peer_is_slow = False
        self._waiting_for_room = False
        self._closing = False  # no more input
        self._closed = False  # told the transport so
        self._lost = False
        self._watch: IDelayedCall | None = None
        self._last_byte = 0.0
        self._frame_began: float | None = None

    def connectionMade(self) -> None:
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)
            self.transport.setTcpKeepAlive(True)
        self._direct = isinstance(self.transport, TcpConnection)  # not TLS, whose bytes the transport makes
        self.transport.registerProducer(self, True)
        self._owner.opened(self)
        self._last_byte = self._clock.seconds()
        self._attend(self._last_byte)

    def dataReceived(self, data: bytes) -> None:
        if self._closing:
            return
        framer = self._framer
        events = framer.feed(data)
        if events:
            self._arrived.extend(events)
            self._work()
        if framer.inside or framer.junk_size or self._held or self._limits.idle is not None:
            self._keep_watch(bool(events))

    def readConnectionLost(self) -> None:
        self._give_up("the connection was closed in the middle of a frame")

    def writeConnectionLost(self) -> None:
        self._give_up("the peer stopped listening")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._lost = True
        self._give_up("the connection was lost in the middle of a frame")
        self._account(0)
        self._stop_watch()
        self._owner.closed(self)

    def pauseProducing(self) -> None:
        self._peer_is_slow = True
        self._regulate()

    def resumeProducing(self) -> None:
        self._peer_is_slow = False
        self._work()

    def stopProducing(self) -> None:
        self._peer_is_slow = False

    def answered(self) -> None:
        """An answer is there: send all that are next in order."""
        slots = self._slots
        ready = []
        while slots and slots[0].ready:
            answer = slots.popleft().answer
            if answer is not None:
                ready.append(frame(answer))
        if ready and not self._lost:
            self._send(ready[0] if len(ready) == 1 else b"".join(ready))
        if self._arrived or self._closing or not self._reading:
            self._work()

    def _send(self, data: bytes) -> None:
        """Send at once as long as the socket takes all: asking epoll first costs as much as the rest of an answer."""
        if self._direct:
            sent = self.transport.writeSomeData(data)
            if sent == len(data):
                return
            self._direct = False  # from now on the transport has a buffer, and must keep the order
            if isinstance(sent, int):  # else an error, which the transport meets again and reports as a lost connection
                data = data[sent:]
        self.transport.write(data)

    def stop(self) -> None:
        """Read nothing more, answer what is in hand, close."""
        self._framer.finish()
        self._give_up("")

    @property
    def unanswered(self) -> int:
        """Messages that wait for their answer."""
        return len(self._slots) + len(self._arrived)

    def _work(self) -> None:
        """Hand over what arrived, as far as the bounds allow; an answer may come back within the call."""
        if self._working:
            return
        self._working = True
        try:
            while self._arrived and not self._held_up():
                self._hand_over(self._arrived.popleft())
        finally:
            self._working = False
        self._regulate()

    def _hand_over(self, event: Event) -> None:
        if isinstance(event, bytes):
            slot = _Slot(self)
            self._slots.append(slot)
            self._sink.receive(event, self.peer, self, slot)
        elif isinstance(event, Oversize):
            slot = _Slot(self)
            self._slots.append(slot)
            self._sink.oversize(event, self.peer, slot)
        else:
            reason = "bytes outside of a frame" if isinstance(event, Junk) else "a new frame began in the middle of it"
            self._sink.lost(event, self.peer, reason)

    def _held_up(self) -> bool:
        if len(self._slots) >= self._limits.outstanding:
            return True
        if not self._sink.full:
            return False
        if not self._waiting_for_room:
            self._waiting_for_room = True
            self._sink.when_room(self._room)
        return True

    def _room(self) -> None:
        self._waiting_for_room = False
        self._work()

    def _regulate(self) -> None:
        """Read or do not read; close when all is done."""
        if self._lost:
            return
        if self._closing:
            if not self._arrived and not self._slots and not self._closed:
                self._closed = True
                self._stop_watch()
                self._watch = self._clock.callLater(self._limits.frame_timeout, self.transport.abortConnection)
                self.transport.unregisterProducer()
                self.transport.loseConnection()
            return
        reading = not self._arrived and not self._peer_is_slow and not self._held_up()
        if reading != self._reading:
            self._reading = reading
            if reading:
                self._last_byte = self._clock.seconds()
                self.transport.resumeProducing()
            else:
                self.transport.pauseProducing()

    def _give_up(self, reason: str) -> None:
        """No more input: keep what is left of it, finish what is in hand, then close."""
        if not self._closing:
            self._closing = True
            for event in self._framer.finish():
                if isinstance(event, Unfinished | Junk):
                    self._sink.lost(event, self.peer, "bytes outside of a frame" if isinstance(event, Junk) else reason)
            self._account(0)
            if not self._lost:
                self.transport.pauseProducing()
        self._work()

    def _account(self, held: int) -> None:
        self._owner.held += held - self._held
        self._held = held

    def _keep_watch(self, something_complete: bool) -> None:
        """Bounds of what is unfinished; only for connections that have something unfinished."""
        framer = self._framer
        now = self._clock.seconds()
        self._last_byte = now
        if not framer.inside:
            self._frame_began = None
        elif something_complete or self._frame_began is None:
            self._frame_began = now
        self._account(framer.held)
        if framer.pending > self._limits.discard:
            self._give_up("the frame has no end")
        elif framer.junk_size > self._limits.junk:
            self._give_up("bytes outside of a frame")
        elif self._owner.held > self._limits.memory and framer.inside:
            self._give_up("too much is unfinished on all connections together")
        elif framer.inside and self._watch is None:
            self._attend(now)

    def _attend(self, now: float) -> None:
        """One timer, and only where something can run out."""
        due = self._due()
        self._watch = self._clock.callLater(max(due - now, 0.001), self._look) if due is not None else None

    def _due(self) -> float | None:
        """When patience ends, as far as is known now."""
        if self._frame_began is not None:
            return min(self._last_byte + self._limits.frame_timeout, self._frame_began + self._limits.frame_total)
        return self._last_byte + self._limits.idle if self._limits.idle is not None else None

    def _stop_watch(self) -> None:
        if self._watch is not None and self._watch.active():
            self._watch.cancel()

    def _look(self) -> None:
        self._watch = None
        if self._closing:
            return
        now = self._clock.seconds()
        if not self._reading or self._slots:  # it is we who keep it waiting
            self._last_byte = now
            if self._frame_began is not None and not self._reading:
                self._frame_began = now
        due = self._due()
        if due is None or due > now:
            self._attend(now)
            return
        waiting = "the frame did not go on" if self._frame_began is not None else "idle for too long"
        log.info(
            "event=mllp_timeout listener={listener} peer={peer} reason={reason}",
            event="mllp_timeout",
            listener=self._owner.name,
            peer=self.peer,
            reason=waiting,
        )
        self._give_up(waiting)


class MllpFactory(Factory):
    """All connections of one listener.  `connections_changed` is told how many there are."""

    noisy = False

    def __init__(
        self,
        name: str,
        sink: Sink,
        clock: IReactorTime,
        limits: Limits | None = None,
        connections_changed: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.name = name
        self.sink = sink
        self.clock = clock
        self.limits = limits or Limits()
        self.held = 0  # bytes of unfinished frames, all connections
        self.connections_changed = connections_changed
        self._connections: set[Mllp] = set()
        self._stopping = False
        self._all_closed: Deferred[None] | None = None
        self._warned_at = float("-inf")

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections)

    def buildProtocol(self, addr: IAddress | None) -> Mllp | None:
        peer = f"{addr.host}:{addr.port}" if isinstance(addr, IPv4Address | IPv6Address) else str(addr)
        if self._stopping or len(self._connections) >= self.limits.connections:
            self._warn_refused(peer)
            return None
        return Mllp(self, peer)

    def opened(self, connection: Mllp) -> None:
        """A connection was made."""
        self._connections.add(connection)
        self.connections_changed(len(self._connections))

    def closed(self, connection: Mllp) -> None:
        """A connection is gone."""
        self._connections.discard(connection)
        self.connections_changed(len(self._connections))
        if self._all_closed is not None and not self._connections:
            self._all_closed.callback(None)
            self._all_closed = None

    async def stop(self, patience: float = 10.0) -> None:
        """Answer what is in hand and close all connections; after `patience` seconds close them as they are."""
        self._stopping = True
        for connection in list(self._connections):
            connection.stop()
        if not self._connections:
            return
        closed: Deferred[None] = Deferred()
        self._all_closed = closed
        limit = self.clock.callLater(patience, self._abort)
        await closed
        if limit.active():
            limit.cancel()

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
