"""The channel to Kafka against Apache Kafka: acknowledged by all replicas, in order by key, every failure in words."""

from __future__ import annotations

import atexit
import shutil
from pathlib import Path

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread

from ipf.config.brokers import KAFKA, brokers
from ipf.wire.channels.brokers import BrokerChannel
from ipf.wire.channels.kafka import KafkaPublisher
from tests.brokers.kafka_server import MISSING, KafkaServer, installed
from tests.faults.scenario import scratch
from tests.wire.certificates import Authority
from tests.wire.channels.broker_cases import CORRELATION, SECONDS, BrokerCase, note

GROUP = "brokers"

PASSWORD = "hidden-password"
_shared: list[tuple[KafkaServer, Authority]] = []


async def shared() -> tuple[KafkaServer, Authority]:
    """One server for all tests of this process, which takes seconds to start, and who signed its certificate."""
    if not _shared:
        place = scratch()
        authority = Authority(place)
        key, certificate = authority.sign("localhost")
        pem = place / "server.pem"
        pem.write_text(Path(key).read_text() + Path(certificate).read_text())
        server = KafkaServer(place / "kafka", (pem, "ipf", PASSWORD))
        atexit.register(shutil.rmtree, place, True)
        atexit.register(server.kill)
        await server.start()
        _shared.append((server, authority))
    return _shared[0]


class KafkaTests(BrokerCase):
    if installed() is None:
        skip = MISSING

    async def setUp(self) -> None:
        super().setUp()
        self.server, self.authority = await self.aside(shared())
        self.topic = f"fhir.{self._testMethodName}"
        await self.aside(self.server.add_topic(self.topic, 3))
        self.host = f"kafka://{self.server.servers}"
        self.endpoint = f"{self.host}/{self.topic}"
        self.sender = self.channel(self.host)

    def channel(self, url: str, seconds: float = SECONDS) -> BrokerChannel:
        channel = BrokerChannel(
            KAFKA, brokers(url), lambda broker: KafkaPublisher(broker, seconds, reactor), seconds, reactor
        )
        self.addCleanup(channel.close)
        return channel

    async def numbers(self, topic: str) -> list[str]:
        """The event numbers of a topic, partition by partition."""
        stored = await deferToThread(self.server.stored, topic)
        return [dict(one.headers())["X-Ipf-Event-Number"].decode() for one in stored]

    async def test_an_acknowledged_message_is_in_the_topic(self) -> None:
        sent = await self.sender.send(note(self.endpoint, topic_url="http://example.org/topic"))
        self.assertEqual((sent.succeeded, sent.error, sent.http_status), (True, None, None))
        (stored,) = await deferToThread(self.server.stored, self.topic)
        self.assertEqual((stored.key(), stored.value()), (b"Patient/7", b'{"resourceType":"Observation"}'))
        headers = {name: value.decode() for name, value in stored.headers()}
        self.assertTrue(headers.pop("traceparent"))
        self.assertEqual(
            headers,
            {
                "X-Route": "north",
                "Content-Type": "application/fhir+json",
                "X-Ipf-Subscription": "Subscription/s1",
                "X-Ipf-Notification-Type": "event-notification",
                "X-Ipf-Key": "Patient/7",
                "X-Ipf-Event-Number": "1",
                "X-Ipf-Topic": "http://example.org/topic",
                "X-Correlation-Id": CORRELATION,
            },
        )

    async def test_a_message_without_body_is_no_tombstone(self) -> None:
        """A null value would delete the key from a compacted topic."""
        self.assertTrue((await self.sender.send(note(self.endpoint, body=None))).succeeded)
        (stored,) = await deferToThread(self.server.stored, self.topic)
        self.assertEqual(stored.value(), b"")

    async def test_a_partition_keeps_the_order_of_a_patient(self) -> None:
        """Also of messages that are in flight at the same time."""
        notes = [note(self.endpoint, number, key=f"Patient/{number % 7}") for number in range(1, 301)]
        work = [Deferred.fromCoroutine(self.sender.send(one)) for one in notes]
        self.assertTrue(all(one.succeeded for one in await gatherResults(work)))
        stored = await deferToThread(self.server.stored, self.topic)
        by_patient: dict[bytes, list[int]] = {}
        partitions: dict[bytes, set[int]] = {}
        for one in stored:
            by_patient.setdefault(one.key(), []).append(int(dict(one.headers())["X-Ipf-Event-Number"]))
            partitions.setdefault(one.key(), set()).add(one.partition())
        self.assertEqual(len(stored), 300)
        self.assertGreater(len({one.partition() for one in stored}), 1)
        self.assertTrue(all(len(found) == 1 for found in partitions.values()))
        self.assertTrue(all(found == sorted(found) for found in by_patient.values()))

    async def test_refusals(self) -> None:
        """What no repetition mends: a topic that does not exist, a message that is too large for its topic."""
        await self.aside(self.server.add_topic("small", max_message_bytes="2000"))
        for notification, text in (
            (note(f"{self.host}/nowhere"), "Unknown topic"),
            (note(f"{self.host}/small", body=b"x" * 5000), "Message size too large"),
            (note(self.endpoint, body=b"x" * 3_000_000), "Message size too large"),
        ):
            sent = await self.sender.send(notification)
            self.assertEqual((sent.succeeded, sent.is_refused), (False, True), sent.error)
            self.assertIn(text, str(sent.error))
        self.assertTrue((await self.sender.send(note(f"{self.host}/small", 2))).succeeded)
        self.assertEqual(await self.numbers("small"), ["2"])

    async def test_a_broker_that_is_down_and_back(self) -> None:
        """What was given up is not sent later: only the message that was acknowledged is stored."""
        impatient = self.channel(self.host, 2.0)
        await self.delivered(impatient, note(self.endpoint))
        self.server.kill()
        await self.refused(impatient, note(self.endpoint, 2), "Connection refused")
        await self.aside(self.server.start())
        await self.delivered(impatient, note(self.endpoint, 2))
        self.assertEqual(list(dict.fromkeys(await self.numbers(self.topic))), ["1", "2"])

    async def test_a_broker_that_does_not_answer(self) -> None:
        """The attempt fails at its time limit, and the next one succeeds when the broker answers again."""
        impatient = self.channel(self.host, 2.0)
        await self.delivered(impatient, note(self.endpoint))
        await self.aside(self.server.pause())
        sent = await impatient.send(note(self.endpoint, 2))
        self.assertFalse(sent.succeeded)
        self.server.go_on()
        await self.delivered(impatient, note(self.endpoint, 2))
        self.assertEqual(list(dict.fromkeys(await self.numbers(self.topic))), ["1", "2"])

    async def test_tls_and_password(self) -> None:
        """Only with the authority of the certificate, and with the password; no error shows one."""
        stranger = Authority(self.folder, "stranger")
        secure = f"127.0.0.1:{self.server.secure_port}"
        for login, ca, is_sent in (
            (f"ipf:{PASSWORD}", self.authority.path, True),
            ("ipf:wrong-pass", self.authority.path, False),
            (f"ipf:{PASSWORD}", stranger.path, False),
        ):
            sent = await self.channel(f"kafka+tls://{login}@{secure}?ca={ca}", SECONDS if is_sent else 4.0).send(
                note(f"kafka://{secure}/{self.topic}")
            )
            self.assertEqual(sent.succeeded, is_sent, sent.error)
            self.assertNotIn(PASSWORD, str(sent.error))
            self.assertNotIn("wrong-pass", str(sent.error))
