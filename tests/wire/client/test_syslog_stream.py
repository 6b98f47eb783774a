"""The TLS stream to a syslog server: a real server in a process of its own, which is slow, killed, or another one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from ipf.ports.audit.feed import LogStream, StreamLost
from ipf.wire.client.syslog_stream import SyslogServer, open_stream
from tests.syslog_server import SyslogProcess
from tests.waiting import free_port, turns, until


def frame(message: bytes) -> bytes:
    """A message in its frame."""
    return b"%d %s" % (len(message), message)


class StreamTests(TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        self.process = SyslogProcess(self.folder)
        self.addCleanup(self.process.kill)
        process = self.process
        self.server = SyslogServer("localhost", process.port, process.ca, process.certificate, process.key)

    async def refused(self, server: SyslogServer) -> str:
        """Why the stream is not confirmed."""
        try:
            stream = await open_stream(reactor, server)
            await stream.send(frame(b"a"))
            await stream.close()
        except StreamLost as lost:
            return str(lost)
        raise AssertionError("confirmed")

    async def test_a_closed_stream_is_read(self) -> None:
        self.process.start()
        for number in range(3):
            stream = await open_stream(reactor, self.server)
            for part in range(50):
                await stream.send(frame(b"%d.%d" % (number, part)) + frame(b"x" * 20_000))
            await stream.close()
            found = [one for one in self.process.messages() if len(one) < 20]  # at once: close has waited
            self.assertEqual(found, [b"%d.%d" % (one, part) for one in range(number + 1) for part in range(50)])

    async def test_a_slow_server_is_waited_for(self) -> None:
        """One that reads nothing for a while: the sender is held back, and `close` waits too."""
        self.process.start()
        stream = await open_stream(reactor, self.server)
        messages = [b"%d " % number + b"x" * 100_000 for number in range(200)]
        self.process.suspend()
        sending = Deferred.fromCoroutine(self.send(stream, messages))
        await until(lambda: stream._room is not None, "the sender is held back")  # type: ignore[attr-defined]
        self.assertFalse(sending.called)
        self.process.resume()
        await sending
        self.assertEqual(self.process.messages(), messages)

    async def send(self, stream: LogStream, messages: list[bytes]) -> None:
        """All of them, and close."""
        for one in messages:
            await stream.send(frame(one))
        await stream.close()

    async def test_a_killed_server_confirms_nothing(self) -> None:
        self.process.start()
        stream = await open_stream(reactor, self.server)
        self.process.suspend()
        await stream.send(frame(b"x" * 60_000))
        closing = Deferred.fromCoroutine(stream.close())
        await turns(10)
        self.assertFalse(closing.called)
        self.process.kill()
        with self.assertRaises(StreamLost):
            await closing
        with self.assertRaises(StreamLost):
            await stream.send(frame(b"y"))

    async def test_refusals(self) -> None:
        other = SyslogProcess(self.folder / "other")
        self.assertEqual(await self.refused(self.server), "connection refused")
        self.process.start()
        server = self.server
        for changed, reason in (
            (replace(server, ca=other.ca), "TLS: "),
            (replace(server, ca=None), "TLS: certificate verify failed"),
            (replace(server, ca=self.folder / "none"), "cannot be used: FileNotFoundError"),
            (replace(server, key=other.key), "cannot be used: VerifyError"),
            (replace(server, certificate=None), "TLS: "),
            (replace(server, certificate=other.certificate, key=other.key), "TLS: "),
            (replace(server, host="127.0.0.2"), "connection refused"),
        ):
            self.assertIn(reason, await self.refused(changed))
        self.assertEqual(self.process.messages(), [])

    async def test_a_certificate_for_another_name_is_refused(self) -> None:
        """The name of the server is verified: only its own certificate has it."""
        process = self.process
        process._own = (str(process.key), str(process.certificate))  # for the name ipf
        process.start()
        self.assertIn("TLS", await self.refused(self.server))

    async def test_a_server_without_tls_confirms_nothing(self) -> None:
        for answer in (None, b"hello\n"):
            port = free_port()
            listening = reactor.listenTCP(port, Factory.forProtocol(lambda said=answer: Silent(said)), 50, "127.0.0.1")
            self.assertTrue(await self.refused(replace(self.server, port=port)))
            await listening.stopListening()


class Silent(Protocol):
    """Ends the connection when it has read, without TLS."""

    def __init__(self, said: bytes | None) -> None:
        self._said = said

    def dataReceived(self, data: bytes) -> None:
        """See `Protocol`."""
        if self._said:
            self.transport.write(self._said)
        self.transport.loseConnection()

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008
        """See `Protocol`."""
