"""The MLLP client, against a real listener: acknowledgements, silence, and connections that end."""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import TestCase

from ipf.hl7.answers import AckAnswer
from ipf.hl7.framing import Framer, frame
from ipf.ports.messages.forwards import Destination, NotSent
from ipf.wire.client.mllp_client import MllpClient
from tests.waiting import free_port

MESSAGE = b"MSH|^~\\&|A|B|C|D|2026||ADT^A01|7|P|2.5\r"


def ack(control_id: str, code: str = "AA") -> bytes:
    return f"MSH|^~\\&|C|D|A|B|2026||ACK|1|P|2.5\rMSA|{code}|{control_id}|text\r".encode()


class Receiver(Protocol):
    """Answers as the factory says: bytes; None: closes."""

    factory: Any
    transport: Any

    def connectionMade(self) -> None:
        """Twisted: connected."""
        self.framer = Framer()
        self.factory.connections += 1

    def dataReceived(self, data: bytes) -> None:
        """Twisted: a part of a message."""
        for event in self.framer.feed(data):
            self.factory.messages.append(event)
            for answer in self.factory.answers.pop(0):
                if answer is None:
                    self.transport.loseConnection()
                else:
                    self.transport.write(answer)


class ClientTests(TestCase):
    def setUp(self) -> None:
        self.factory: Any = Factory.forProtocol(Receiver)
        self.factory.messages, self.factory.answers, self.factory.connections = [], [], 0
        self.port = reactor.listenTCP(0, self.factory, interface="127.0.0.1")  # type: ignore[attr-defined]
        self.addCleanup(self.port.stopListening)
        self.client = self.opened(self.port.getHost().port)

    def opened(self, port: int, ack_seconds: float = 30.0) -> MllpClient:
        client = MllpClient(reactor, Destination("lab", "127.0.0.1", port, ack_seconds=ack_seconds))
        self.addCleanup(lambda: Deferred.fromCoroutine(client.close()))
        return client

    async def test_acknowledgements(self) -> None:
        """On one connection; one of another message is ignored, and so is a further one."""
        self.factory.answers = [
            [frame(ack("6")), frame(ack("7"))[:9], frame(ack("7"))[9:], frame(ack("7", "AE"))],
            [frame(ack("8", "AR"))],
        ]
        self.assertEqual(await self.client.send(MESSAGE, "7"), AckAnswer("AA", "7", "text"))
        self.assertEqual(await self.client.send(MESSAGE.replace(b"|7|", b"|8|"), "8"), AckAnswer("AR", "8", "text"))
        self.assertEqual((self.factory.messages[0], self.factory.connections), (MESSAGE, 1))

    async def test_no_acknowledgement(self) -> None:
        """Closed, cut off, or silent: the next message has a connection of its own."""
        for answers, reason in (
            ([None], "closed the connection"),
            ([frame(ack("7"))[:20], None], "closed the connection"),
            ([], "no answer within 0.2 s"),
        ):
            client = self.opened(self.port.getHost().port, 0.2 if not answers else 30.0)
            self.factory.answers = [answers, [frame(ack("7"))]]
            failure = await self.assertFailure(Deferred.fromCoroutine(client.send(MESSAGE, "7")), NotSent)
            self.assertIn(reason, str(failure))
            self.assertEqual((await client.send(MESSAGE, "7")).code, "AA")

    async def test_nobody_listens(self) -> None:
        client = self.opened(free_port())
        failure = await self.assertFailure(Deferred.fromCoroutine(client.send(MESSAGE, "7")), NotSent)
        self.assertEqual(str(failure), "connection refused")
