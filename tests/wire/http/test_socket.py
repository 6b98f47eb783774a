"""HTTP over real sockets: large answers to a slow reader; and the idle timeout, on a clock."""

from __future__ import annotations

from typing import Any

from twisted.internet import defer, protocol, reactor
from twisted.trial.unittest import TestCase

from ipf.ports import Answer
from ipf.wire.http.app import resource
from ipf.wire.http.site import site
from tests.waiting import turns, until
from tests.wire.http.test_limits import BoundedConnection
from tests.wire.http.test_site import Handlers, refuse

_reactor: Any = reactor
LARGE = bytes(range(256)) * 40_000  # ten megabytes: more than any socket takes at once


class SlowReader(protocol.Protocol):
    """Sends two requests on one connection; reads when `transport` is resumed."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.ended: defer.Deferred[bytes] = defer.Deferred()

    def connectionMade(self) -> None:
        transport: Any = self.transport
        transport.pauseProducing()
        transport.write(b"GET /fhir/a HTTP/1.1\r\nHost: x\r\n\r\n")
        transport.write(b"GET /fhir/b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    def dataReceived(self, data: bytes) -> None:
        self.chunks.append(data)

    def connectionLost(self, reason: Any = None) -> None:
        self.ended.callback(b"".join(self.chunks))


class SocketTests(TestCase):
    async def test_answers_larger_than_the_socket_takes(self) -> None:
        """Every byte once, in order, also of the answer behind it."""
        handlers = Handlers(Answer(200, LARGE))
        port: Any = _reactor.listenTCP(0, site({"fhir": resource(handlers.at_once, refuse)}), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        reader = SlowReader()
        _reactor.connectTCP("127.0.0.1", port.getHost().port, _Factory(reader))
        await until(lambda: handlers.requests, "the first request is answered")
        await turns()
        reader.transport.resumeProducing()  # type: ignore[union-attr]  # TCP has it
        data = await reader.ended
        first, second = data.split(b"HTTP/1.1 200 OK\r\n")[1:]
        self.assertEqual([part.partition(b"\r\n\r\n")[2] == LARGE for part in (first, second)], [True, True])
        await turns()


class _Factory(protocol.ClientFactory):
    def __init__(self, reader: SlowReader) -> None:
        self._reader = reader

    def buildProtocol(self, addr: Any) -> SlowReader:
        return self._reader


class IdleTimeoutTests(TestCase):
    def test_an_idle_connection_is_closed(self) -> None:
        connection = BoundedConnection(Handlers(), timeout=10.0)
        for _ in range(3):
            connection.clock.advance(9)
            connection.get("/fhir/Patient")
        connection.clock.advance(9.5)
        self.assertFalse(connection.transport.disconnecting)
        connection.clock.advance(1)
        self.assertTrue(connection.transport.disconnecting)

    def test_a_slow_handler_is_not_idle(self) -> None:
        """The idle time counts from the end of the answer."""
        handlers = Handlers()
        slow = BoundedConnection(handlers, handlers.later, timeout=10.0)
        slow.send(b"GET /fhir/a HTTP/1.1\r\nHost: x\r\n\r\n")
        slow.clock.advance(60)
        self.assertFalse(slow.transport.disconnecting)
        handlers.waiting[0].callback(None)
        slow.clock.advance(9)
        self.assertFalse(slow.transport.disconnecting)
        slow.clock.advance(2)
        self.assertTrue(slow.transport.disconnecting)
