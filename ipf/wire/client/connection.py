"""Exchanges over HTTP/1.1 as delivery makes them: a whole request out in one write, the status of its answer in.

A kept connection takes one request at a time.  A general client does more for a request than all the rest of a
delivery; nothing of that is needed here, where an answer is a status (`http_answer.py`).

A kept connection that the far end has closed meanwhile is found out only by writing to it: such a request is sent once
more on a fresh one, which at-least-once delivery allows.

Source: RFC 9112 section 9.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import NamedTuple

from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime, IStreamClientEndpoint, ITCPTransport
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from ipf.wire.client.response_parser import AnswerReader, NoHttp

KEPT_PER_PLACE = 256
KEPT_SECONDS = 30.0


class TooLate(Exception):
    """There was no answer within the time limit."""


class Answered(NamedTuple):
    """The status, and `Retry-After` as it was written."""

    status: int
    retry_after: bytes | None


class Exchange(Protocol):
    """One connection.  `ended(exchange)` is called when it may take another request, or is gone (`is_open`).

    One timer serves its time limits and the time that it is kept unused; it is set when it has to be, not with each
    request.  `reader`: of the newest answer.
    """

    def __init__(self, clock: IReactorTime, body_limit: int, ended: Callable[[Exchange], None]) -> None:
        self._clock = clock
        self._body_limit = body_limit
        self._ended = ended
        self._waiting: Deferred[Answered] | None = None
        self._until = 0.0
        self._timer: IDelayedCall | None = None
        self.reader = AnswerReader(body_limit)
        self.is_open = False
        self.gone: Deferred[None] = Deferred()

    def connectionMade(self) -> None:
        """Twisted: it is there."""
        self.is_open = True
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)

    def ask(self, request: bytes, until: float) -> Deferred[Answered]:
        """Send; fires when the answer is complete, or when its head is and nothing more comes until the limit.

        Fails with TooLate, NoHttp, or what ended the connection.  Cancelling closes it.
        """
        assert self.transport is not None
        waiting: Deferred[Answered] = Deferred(self._cancelled)
        self._waiting, self.reader = waiting, AnswerReader(self._body_limit)
        self._look_at(until)
        self.transport.write(request)
        return waiting

    def close(self) -> None:
        """Hang up; what is under way fails."""
        if self.is_open and self.transport is not None:
            self.is_open = False
            self.transport.abortConnection()  # type: ignore[attr-defined]  # TCP and TLS have it

    # -- what happens to it

    def dataReceived(self, data: bytes) -> None:
        """Twisted: a piece of the answer."""
        if self._waiting is None:
            self.close()  # nobody asked
            return
        try:
            complete = self.reader.feed(data)
        except NoHttp as refused:
            self.close()
            self._end(refused)
            return
        if complete:
            self._answered(self.reader.may_stay)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: it is gone."""
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ended(self)
        if self._waiting is not None:
            if self.reader.status is not None:
                self._answered(False)
            else:
                self._end(reason.value or ConnectionDone())
        self.gone.callback(None)

    def _answered(self, may_stay: bool) -> None:
        reader = self.reader
        assert reader.status is not None
        if may_stay and self.is_open:
            self._until = self._clock.seconds() + KEPT_SECONDS
            waiting, self._waiting = self._waiting, None
            self._ended(self)
        else:
            waiting, self._waiting = self._waiting, None
            self.close()
        assert waiting is not None
        waiting.callback(Answered(reader.status, reader.retry_after))

    def _end(self, error: BaseException) -> None:
        waiting, self._waiting = self._waiting, None
        assert waiting is not None
        waiting.errback(Failure(error))

    def _cancelled(self, waiting: Deferred[Answered]) -> None:
        self._waiting = None
        self.close()

    # -- its timer

    def _look_at(self, until: float) -> None:
        self._until = until
        if self._timer is None:
            self._timer = self._clock.callLater(max(0.0, until - self._clock.seconds()), self._look)
        elif self._timer.getTime() > until:
            self._timer.reset(max(0.0, until - self._clock.seconds()))

    def _look(self) -> None:
        self._timer = None
        if self._until > self._clock.seconds():
            self._look_at(self._until)
        elif self._waiting is None or self.reader.status is None:
            self.close()
            if self._waiting is not None:
                self._end(TooLate())
        else:
            self._answered(False)


class Exchanges:
    """Kept connections by place (`key`), the newest first, and as many new ones as are asked for at once."""

    def __init__(self, clock: IReactorTime, body_limit: int) -> None:
        self._clock = clock
        self._body_limit = body_limit
        self._idle: dict[Hashable, deque[Exchange]] = {}
        self._open: set[Exchange] = set()

    async def ask(self, key: Hashable, endpoint: IStreamClientEndpoint, request: bytes, until: float) -> Answered:
        """Send `request` and wait for its answer until then.  Raises TooLate, NoHttp, or what broke it off."""
        kept = self._take(key)
        if kept is not None:
            try:
                return await kept.ask(request, until)
            except (TooLate, NoHttp, CancelledError):
                raise
            except Exception:
                if kept.reader.began:
                    raise
        fresh = await self._connect(key, endpoint, until)
        return await fresh.ask(request, until)

    def _take(self, key: Hashable) -> Exchange | None:
        idle = self._idle.get(key)
        while idle:
            exchange = idle.pop()
            if exchange.is_open:
                return exchange
        return None

    async def _connect(self, key: Hashable, endpoint: IStreamClientEndpoint, until: float) -> Exchange:
        connecting: Deferred[Exchange] = endpoint.connect(_Exchanged(self, key))  # type: ignore[assignment]
        timer = self._clock.callLater(max(0.0, until - self._clock.seconds()), connecting.cancel)
        try:
            return await connecting
        except Exception as error:
            if not timer.active():
                raise TooLate() from error
            raise
        finally:
            if timer.active():
                timer.cancel()

    def made(self, key: Hashable) -> Exchange:
        """A connection that is about to be."""

        def ended(exchange: Exchange) -> None:
            idle = self._idle.setdefault(key, deque())
            if exchange.is_open and len(idle) < KEPT_PER_PLACE:
                idle.append(exchange)
                return
            exchange.close()
            self._open.discard(exchange)
            if exchange in idle:
                idle.remove(exchange)
            if not idle:
                del self._idle[key]

        exchange = Exchange(self._clock, self._body_limit, ended)
        self._open.add(exchange)
        return exchange

    async def close(self) -> None:
        """Hang up everywhere, and wait for it."""
        gone = [exchange.gone for exchange in self._open if exchange.is_open]
        for exchange in list(self._open):
            exchange.close()
        await DeferredList(gone)


class _Exchanged(Factory):
    """Twisted: makes the connection's protocol."""

    noisy = False

    def __init__(self, exchanges: Exchanges, key: Hashable) -> None:
        self._exchanges = exchanges
        self._key = key

    def buildProtocol(self, addr: IAddress | None) -> Exchange:
        """Twisted: a connection is made."""
        return self._exchanges.made(self._key)
