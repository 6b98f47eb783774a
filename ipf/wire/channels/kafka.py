"""Messages to Kafka, with confluent-kafka (librdkafka).

The producer is idempotent and asks for the acknowledgement of all in-sync replicas, so a message that is acknowledged
once is stored once, and messages to one partition are stored in the order in which they were sent.  What is not
acknowledged within the time limit of a delivery is dropped from the queue of the producer; the ledger sends it again.

librdkafka has threads of its own.  One more takes its reports of deliveries and hands them to the reactor.

Source: https://docs.confluent.io/platform/current/clients/confluent-kafka-python/html/index.html;
https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md and INTRODUCTION.md ("Idempotent Producer")
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from ipf.config.brokers import Broker
from ipf.wire.channels.brokers import BrokerFailure, BrokerMessage
from ipf.wire.channels.opening import Opening

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

log = Logger()

POLL_SECONDS = 0.5
LARGEST_MESSAGE = 1_000_000_000
"""The limit of librdkafka: the broker decides what is too large."""


class KafkaPublisher:
    """`Publisher` to one Kafka cluster.  `timeout_seconds`: how long a message may wait in the producer."""

    def __init__(self, broker: Broker, timeout_seconds: float, reactor: Any) -> None:
        self._broker = broker
        self._timeout_seconds = timeout_seconds
        self._reactor = reactor
        self._opening: Opening[Producer] = Opening(self._open)
        self._broken: list[Producer] = []
        self._reason: str | None = None
        self._is_closed = threading.Event()

    def reason(self) -> str | None:
        """See `Publisher.reason`."""
        return self._reason

    async def publish(self, message: BrokerMessage) -> None:
        """See `Publisher.publish`."""
        producer = await self._opening.get()
        from confluent_kafka import KafkaException

        stored: Deferred[None] = Deferred()
        headers: Any = [(name, value.encode()) for name, value in message.headers]

        def report(error: KafkaError | None, _: object) -> None:  # in the thread of `_take_reports`
            self._reactor.callFromThread(self._settle, stored, error)

        try:
            producer.produce(message.target, message.value, message.key.encode(), headers=headers, on_delivery=report)
        except KafkaException as refused:
            raise failure_of(refused.args[0]) from None
        except BufferError:
            raise BrokerFailure("the queue of the Kafka client is full") from None
        await stored

    def close(self) -> None:
        """See `Publisher.close`."""
        self._is_closed.set()

    async def _open(self) -> Producer:
        """A producer, made in a thread: reading certificates and loading the library take time."""
        producer: Producer = await deferToThread(self._make)
        threading.Thread(target=self._take_reports, args=(producer,), name="ipf-kafka", daemon=True).start()
        return producer

    def _make(self) -> Producer:
        from confluent_kafka import KafkaException, Producer

        try:
            return Producer(configuration(self._broker, self._timeout_seconds, self._on_error))
        except KafkaException as refused:
            raise BrokerFailure(f"the Kafka client cannot be made: {_text(refused.args[0])}") from None

    def _take_reports(self, producer: Producer) -> None:
        """Take the reports of one producer until it is replaced or closed.  Runs in a thread of its own."""
        while not self._is_closed.is_set() and (producer not in self._broken or len(producer)):
            producer.poll(POLL_SECONDS)
        producer.purge()
        producer.poll(0)

    def _on_error(self, error: KafkaError) -> None:
        """librdkafka: a connection failed, or the producer is of no more use.  Runs in the thread above."""
        self._reason = _text(error)
        if error.fatal():
            self._reactor.callFromThread(self._replace)

    def _replace(self) -> None:
        """The next message gets another producer."""
        if self._opening.value is not None:
            self._broken.append(self._opening.value)
            self._opening.drop(self._opening.value)

    def _settle(self, stored: Deferred[None], error: KafkaError | None) -> None:
        if stored.called:
            return  # the time limit came first
        if error is None:
            self._reason = None
            stored.callback(None)
        else:
            stored.errback(failure_of(error, self._reason))


def configuration(broker: Broker, timeout_seconds: float, on_error: Any) -> dict[str, Any]:
    """The settings of a producer.  Its partitioner is that of Kafka's Java clients: equal keys, equal partitions."""
    milliseconds = max(int(timeout_seconds * 1000), 1)
    found: dict[str, Any] = {
        "bootstrap.servers": ",".join(broker.servers),
        "client.id": "ipf",
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 0,
        "partitioner": "murmur2_random",
        "message.max.bytes": LARGEST_MESSAGE,
        "message.timeout.ms": milliseconds,
        "request.timeout.ms": milliseconds,
        "topic.metadata.propagation.max.ms": milliseconds // 2,
        "reconnect.backoff.max.ms": 1000,
        "log_level": 2,
        "error_cb": on_error,
    }
    protocol = "SASL_" if broker.user else ""
    found["security.protocol"] = protocol + ("SSL" if broker.is_tls else "PLAINTEXT")
    if broker.user:
        found |= {"sasl.mechanism": broker.sasl, "sasl.username": broker.user, "sasl.password": broker.password}
    files = {
        "ssl.ca.location": broker.ca,
        "ssl.certificate.location": broker.certificate,
        "ssl.key.location": broker.key,
    }
    return found | {name: path for name, path in files.items() if path is not None}


def failure_of(error: KafkaError, reason: str | None = None) -> BrokerFailure:
    """What a report says.  An answer of the broker that no repetition changes is a refusal; so is an unknown topic."""
    from confluent_kafka import KafkaError

    unknown = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)
    code = error.code()
    is_refused = code in unknown or (code > 0 and not error.retriable())
    detail = f": {reason}" if reason and code == KafkaError._MSG_TIMED_OUT else ""
    return BrokerFailure(f"Kafka: {_text(error)}{detail}", is_refused=is_refused)


def _text(error: KafkaError) -> str:
    """The text of an error: it holds hosts and topics, nothing of a message."""
    return str(error.str())[:300]
