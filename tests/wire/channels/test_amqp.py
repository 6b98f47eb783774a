"""The channel to AMQP against RabbitMQ: confirmed by the broker, in order, every failure in words."""

from __future__ import annotations

import atexit
import logging
import shutil

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults

from ipf.config.brokers import AMQP, Broker, brokers
from ipf.wire.channels.amqp import AmqpPublisher
from ipf.wire.channels.brokers import BrokerChannel
from tests.brokers.rabbitmq_server import RabbitServer
from tests.faults.scenario import scratch
from tests.waiting import until
from tests.wire.certificates import Authority
from tests.wire.channels.broker_cases import CORRELATION, SECONDS, BrokerCase, note

GROUP = "brokers"

PASSWORD = "hidden-password"
_shared: list[tuple[RabbitServer, Authority]] = []


async def shared() -> tuple[RabbitServer, Authority]:
    """One server for all tests of this process, which takes seconds to start, and who signed its certificate."""
    if not _shared:
        place = scratch()
        authority = Authority(place)
        key, certificate = authority.sign("localhost")
        lines = (
            "listeners.ssl.1 = 127.0.0.1:SECURE_PORT", f"ssl_options.cacertfile = {authority.path}",
            f"ssl_options.certfile = {certificate}", f"ssl_options.keyfile = {key}",
            "default_user = ipf", f"default_pass = {PASSWORD}",
        )  # fmt: skip
        server = RabbitServer(place / "rabbitmq", "\n".join(lines), ("ipf", PASSWORD))
        atexit.register(shutil.rmtree, place, True)
        atexit.register(server.end)
        await server.start()
        _shared.append((server, authority))
    return _shared[0]


class AmqpTests(BrokerCase):
    async def setUp(self) -> None:
        super().setUp()
        self.server, self.authority = await self.aside(shared())
        self.queue = f"fhir.{self._testMethodName}"
        await self.aside(self.server.add_queue(self.queue))
        self.host = f"amqp://127.0.0.1:{self.server.port}"
        self.endpoint = f"{self.host}/{self.queue}"
        self.url = f"amqp://ipf:{PASSWORD}@127.0.0.1:{self.server.port}"
        self.sender = self.channel(self.url)

    def channel(self, url: str, seconds: float = SECONDS) -> BrokerChannel:
        made: list[AmqpPublisher] = []

        def open_publisher(broker: Broker) -> AmqpPublisher:
            made.append(AmqpPublisher(broker, seconds, reactor))
            return made[-1]

        async def close() -> None:
            connections = [one._connection for one in made if one._connection is not None]
            channel.close()
            await until(lambda: all(one.is_closed for one in connections), "all connections are closed")

        channel = BrokerChannel(AMQP, brokers(url), open_publisher, seconds, reactor)
        self.addCleanup(lambda: Deferred.fromCoroutine(close()))
        return channel

    async def numbers(self) -> list[str]:
        """The event numbers in the queue."""
        return [one.headers["X-Ipf-Event-Number"] for one, _ in await self.aside(self.server.stored(self.queue))]

    async def test_a_confirmed_message_is_in_the_queue(self) -> None:
        sent = await self.sender.send(note(self.endpoint, topic_url="http://example.org/topic"))
        self.assertEqual((sent.succeeded, sent.error, sent.http_status), (True, None, None))
        ((properties, body),) = await self.aside(self.server.stored(self.queue))
        self.assertEqual(body, b'{"resourceType":"Observation"}')
        self.assertEqual(
            (properties.content_type, properties.correlation_id, properties.message_id, properties.delivery_mode),
            ("application/fhir+json", CORRELATION, "s1/1/x", 2),
        )
        self.assertTrue(properties.headers.pop("traceparent"))
        self.assertEqual(
            properties.headers,
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

    async def test_order_is_the_order_of_sending(self) -> None:
        """Also of messages that are in flight at the same time; those that no queue takes are known among them."""
        work = []
        for number in range(1, 301):
            endpoint = f"{self.host}/nowhere" if number % 10 == 0 else self.endpoint
            work.append(Deferred.fromCoroutine(self.sender.send(note(endpoint, number))))
        sent = await gatherResults(work)
        lost = [number for number, one in enumerate(sent, 1) if not one.succeeded]
        self.assertEqual(lost, list(range(10, 301, 10)))
        self.assertEqual(await self.numbers(), [str(one) for one in range(1, 301) if one % 10])

    async def test_refusals(self) -> None:
        """What no repetition mends: no queue, no exchange.  Nothing of a message is logged."""
        lines: list[logging.LogRecord] = []
        handler = logging.Handler()
        handler.emit = lines.append  # type: ignore[method-assign]
        logging.getLogger().addHandler(handler)
        self.addCleanup(logging.getLogger().removeHandler, handler)
        sent = await self.sender.send(note(f"{self.host}/nowhere", body=b"the text of a patient"))
        self.assertEqual((sent.succeeded, sent.is_refused), (False, True))
        self.assertEqual(sent.error, "AMQP: no queue takes messages with this routing key")
        self.assertEqual(lines, [])
        other = self.channel(f"{self.url}?exchange=fhir")
        sent = await other.send(note(self.endpoint))
        self.assertEqual((sent.succeeded, sent.is_refused), (False, True))
        self.assertEqual(sent.error, "AMQP: NOT_FOUND - no exchange 'fhir' in vhost '/'")
        sent = await self.channel(f"{self.url}?vhost=/north").send(note(self.endpoint))
        self.assertIn("AMQP: not connected", str(sent.error))

    async def test_a_full_queue_refuses_for_now(self) -> None:
        await self.aside(self.server.add_queue("fhir.full", x_max_length=1, x_overflow="reject-publish"))
        self.assertTrue((await self.sender.send(note(f"{self.host}/fhir.full"))).succeeded)
        sent = await self.sender.send(note(f"{self.host}/fhir.full", 2))
        self.assertEqual((sent.is_refused, sent.error), (False, "AMQP: the broker did not store the message"))

    async def test_a_server_that_is_down_and_back(self) -> None:
        """A connection that was lost is made again by the next message, and what was confirmed is still there."""
        await self.delivered(self.sender, note(self.endpoint))
        self.server.kill()
        await self.refused(self.sender, note(self.endpoint, 2), "AMQP: not connected: connection refused")
        await self.aside(self.server.start())
        await self.delivered(self.sender, note(self.endpoint, 2))
        self.assertEqual(list(dict.fromkeys(await self.numbers())), ["1", "2"])

    async def test_a_server_that_does_not_answer(self) -> None:
        """The attempt fails at its time limit, and the next one succeeds when the server answers again."""
        impatient = self.channel(self.url, 1.0)
        await self.delivered(impatient, note(self.endpoint))
        await self.aside(self.server.pause())
        sent = await impatient.send(note(self.endpoint, 2))
        self.assertEqual((sent.succeeded, sent.error), (False, "no acknowledgement within 1 s"))
        self.server.go_on()
        await self.delivered(impatient, note(self.endpoint, 2))
        self.assertEqual(list(dict.fromkeys(await self.numbers())), ["1", "2"])

    async def test_tls_and_password(self) -> None:
        """Only with the authority of the certificate, and with the password; no error shows one."""
        stranger = Authority(self.folder, "stranger")
        secure = f"127.0.0.1:{self.server.secure_port}"
        for login, ca, is_sent in (
            (f"ipf:{PASSWORD}", self.authority.path, True),
            ("ipf:wrong-pass", self.authority.path, False),
            (f"ipf:{PASSWORD}", stranger.path, False),
        ):
            sent = await self.channel(f"amqp+tls://{login}@{secure}?ca={ca}").send(
                note(f"amqp://{secure}/{self.queue}")
            )
            self.assertEqual(sent.succeeded, is_sent, sent.error)
            self.assertNotIn(PASSWORD, str(sent.error))
            self.assertNotIn("wrong-pass", str(sent.error))
