"""The channel to NATS against nats-server: acknowledged by a stream, stored once, every failure in words."""

from __future__ import annotations

from pathlib import Path

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults

from ipf.config.brokers import NATS, brokers
from ipf.wire.channels.brokers import BrokerChannel
from ipf.wire.channels.nats import LoopThread, NatsPublisher
from tests.brokers.nats_server import NatsServer
from tests.wire.certificates import Authority
from tests.wire.channels.broker_cases import CORRELATION, SECONDS, BrokerCase, note

GROUP = "brokers"


class NatsCase(BrokerCase):
    """A server with the stream FHIR, and a channel to it."""

    async def serve(self, configuration: str = "", login: dict[str, str] | None = None) -> NatsServer:
        server = NatsServer(self.folder / "nats", configuration, login)
        self.addCleanup(server.kill)
        await self.aside(server.start())
        return server

    def channel(self, url: str, seconds: float = SECONDS) -> BrokerChannel:
        loop = LoopThread(reactor)
        channel = BrokerChannel(
            NATS, brokers(url), lambda broker: NatsPublisher(broker, seconds, loop), seconds, reactor
        )
        self.addCleanup(loop.stop)
        self.addCleanup(channel.close)
        return channel


class PlainTests(NatsCase):
    async def setUp(self) -> None:
        super().setUp()
        self.server = await self.serve("max_payload: 100000")
        await self.aside(self.server.add_stream("FHIR", "fhir.>"))
        self.host = f"nats://127.0.0.1:{self.server.port}"
        self.sender = self.channel(self.host)

    async def test_an_acknowledged_message_is_in_the_stream(self) -> None:
        sent = await self.sender.send(note(f"{self.host}/fhir.patients", topic_url="http://example.org/topic"))
        self.assertEqual((sent.succeeded, sent.error, sent.http_status), (True, None, None))
        (stored,) = await self.aside(self.server.stored("FHIR"))
        self.assertEqual((stored.subject, stored.data), ("fhir.patients", b'{"resourceType":"Observation"}'))
        self.assertEqual(
            stored.headers,
            {
                "X-Route": "north",
                "Content-Type": "application/fhir+json",
                "X-Ipf-Subscription": "Subscription/s1",
                "X-Ipf-Notification-Type": "event-notification",
                "X-Ipf-Key": "Patient/7",
                "X-Ipf-Event-Number": "1",
                "X-Ipf-Topic": "http://example.org/topic",
                "X-Correlation-Id": CORRELATION,
                "traceparent": stored.headers["traceparent"],
                "Nats-Msg-Id": "s1/1/x",
            },
        )

    async def test_a_repeated_attempt_is_stored_once(self) -> None:
        for message_id in ("s1/1/x", "s1/1/x", "s1/1/resent", "", ""):
            self.assertTrue((await self.sender.send(note(f"{self.host}/fhir.a", message_id=message_id))).succeeded)
        self.assertEqual(await self.aside(self.server.count("FHIR")), 4)

    async def test_order_is_the_order_of_sending(self) -> None:
        """Also of messages that are in flight at the same time."""
        work = [
            Deferred.fromCoroutine(self.sender.send(note(f"{self.host}/fhir.a", number))) for number in range(1, 301)
        ]
        self.assertTrue(all(one.succeeded for one in await gatherResults(work)))
        stored = await self.aside(self.server.stored("FHIR"))
        self.assertEqual([one.headers["X-Ipf-Event-Number"] for one in stored], [str(one) for one in range(1, 301)])

    async def test_refusals(self) -> None:
        """What no repetition mends: no stream (plain NATS acknowledges nothing), a message that is too large."""
        for notification, text in (
            (note(f"{self.host}/other.subject"), "NATS: no stream stores this subject"),
            (
                note(f"{self.host}/fhir.a", body=b"x" * 100_001),
                "NATS: the message is larger than 100000 bytes, the limit of the server",
            ),
        ):
            sent = await self.sender.send(notification)
            self.assertEqual((sent.succeeded, sent.is_refused, sent.error), (False, True, text))
        self.assertEqual(await self.aside(self.server.count("FHIR")), 0)

    async def test_a_full_stream_refuses_for_now(self) -> None:
        await self.aside(self.server.add_stream("FULL", "full.>", max_msgs=1, discard="new"))
        self.assertTrue((await self.sender.send(note(f"{self.host}/full.a"))).succeeded)
        sent = await self.sender.send(note(f"{self.host}/full.a", 2))
        self.assertEqual((sent.succeeded, sent.is_refused), (False, False))
        self.assertIn("maximum messages exceeded", str(sent.error))

    async def test_a_server_that_is_down_and_back(self) -> None:
        """A connection that was lost is made again by the next message."""
        self.assertTrue((await self.sender.send(note(f"{self.host}/fhir.a"))).succeeded)
        self.server.kill()
        await self.refused(self.sender, note(f"{self.host}/fhir.a", 2), "NATS: not connected: ")
        await self.aside(self.server.start())
        await self.delivered(self.sender, note(f"{self.host}/fhir.a", 2))
        stored = await self.aside(self.server.stored("FHIR"))
        self.assertEqual([one.headers["X-Ipf-Event-Number"] for one in stored], ["1", "2"])

    async def test_a_server_that_does_not_answer(self) -> None:
        """The attempt fails at its time limit; what the server took in meanwhile is not stored twice."""
        impatient = self.channel(self.host, 1.0)
        await self.delivered(impatient, note(f"{self.host}/fhir.a"))
        await self.aside(self.server.pause())
        sent = await impatient.send(note(f"{self.host}/fhir.a", 2))
        self.assertEqual((sent.succeeded, sent.error), (False, "no acknowledgement within 1 s"))
        self.server.go_on()
        await self.delivered(impatient, note(f"{self.host}/fhir.a", 2))
        stored = await self.aside(self.server.stored("FHIR"))
        self.assertEqual([one.headers["X-Ipf-Event-Number"] for one in stored], ["1", "2"])

    async def test_unknown_brokers(self) -> None:
        sent = await self.sender.send(note("nats://127.0.0.1:1/fhir.a"))
        self.assertEqual(sent.error, "this server knows no broker with the hosts of the endpoint (IPF_BROKERS)")

    async def test_credentials_are_never_sent_without_tls(self) -> None:
        """A server that says it has no TLS gets nothing when the operator wants TLS."""
        secure = self.channel(f"nats+tls://ipf:hidden-password@127.0.0.1:{self.server.port}")
        sent = await secure.send(note(f"{self.host}/fhir.a"))
        self.assertFalse(sent.succeeded)
        self.assertIn("secure connection not available", str(sent.error))
        self.assertNotIn("hidden-password", str(sent.error))


class SecureTests(NatsCase):
    async def setUp(self) -> None:
        super().setUp()
        self.authority = Authority(self.folder)
        key, certificate = self.authority.sign("localhost")
        login = 'authorization { user: ipf, password: "right/pass word" }'
        tls = f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}'
        self.server = NatsServer(self.folder / "nats", f"{login}\n{tls}")
        self.addCleanup(self.server.kill)
        await self.aside(self.server.start())

    def to(self, login: str, ca: Path, seconds: float = SECONDS) -> BrokerChannel:
        return self.channel(f"nats+tls://{login}127.0.0.1:{self.server.port}?ca={ca}", seconds)

    async def test_tls_and_password(self) -> None:
        """Only with the authority of the certificate, and with the password; no error shows one."""
        stranger = Authority(self.folder, "stranger")
        endpoint = f"nats://127.0.0.1:{self.server.port}/fhir.a"
        sent = await self.to("ipf:right%2Fpass%20word@", self.authority.path).send(note(endpoint))
        self.assertEqual(sent.error, "NATS: no stream stores this subject")  # connected
        for login, ca, text in (  # the server may hang up before its reason is read
            ("ipf:wrong-pass@", self.authority.path, "not connected"),
            ("", self.authority.path, "not connected"),
            ("ipf:right%2Fpass%20word@", stranger.path, "certificate verify failed"),
        ):
            sent = await self.to(login, ca, 10.0).send(note(endpoint))
            self.assertFalse(sent.succeeded)
            self.assertIn(text, str(sent.error))
            self.assertNotIn("pass ", str(sent.error))
            self.assertNotIn("wrong-pass", str(sent.error))
