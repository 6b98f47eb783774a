"""Channels to message brokers: one notification in, one message with key and headers out, an acknowledgement back.

The parts that Kafka, NATS and AMQP share.  A publisher (`kafka.py`, `nats.py`, `amqp.py`) holds the connection to one
broker and is made at the first message to it.  A message is delivered when the broker has acknowledged that it is
stored.  No failure of a broker raises: it becomes `Delivered.error`, whose text holds nothing of the message and no
secret.

The value is the body of the notification, empty without one (never null, which deletes from compacted topics).

Source: interface specification "Notification shapes", "Correlation"; docs/reference/subscriptions.md, "Message brokers"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime

from ipf.config.brokers import Broker, endpoint_of, missing_library
from ipf.ports import Channel, Delivered, Notification
from ipf.telemetry import correlation
from ipf.wire.client.failures import TimeLimitExceeded, was_cancelled
from ipf.wire.client.http_client import within

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class BrokerMessage:
    """A message for a broker.  `id` tells a repetition; "": it is none of any other."""

    target: str
    key: str
    value: bytes
    headers: Headers
    id: str = ""


class BrokerFailure(Exception):
    """The broker did not store a message.  `is_refused`: it never will; other messages may be stored."""

    def __init__(self, text: str, *, is_refused: bool = False) -> None:
        super().__init__(text)
        self.is_refused = is_refused


class Publisher(Protocol):
    """The connection to one broker."""

    async def publish(self, message: BrokerMessage) -> None:
        """Returns when the broker has acknowledged.  Raises BrokerFailure."""

    def reason(self) -> str | None:
        """What the connection failed with, since the last acknowledgement."""

    def close(self) -> None:
        """Disconnect; messages that are not acknowledged fail."""


class BrokerChannel:
    """`Channel` to the brokers of one kind.  `open_publisher` makes the connection to one of them."""

    def __init__(
        self,
        kind: str,
        brokers: Sequence[Broker],
        open_publisher: Callable[[Broker], Publisher],
        timeout_seconds: float,
        clock: IReactorTime,
    ) -> None:
        self._kind = kind
        self._brokers = brokers
        self._open_publisher = open_publisher
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._publishers: dict[str, Publisher] = {}

    @property
    def unavailable(self) -> str | None:
        """The reason why this installation cannot speak to brokers of this kind."""
        return missing_library(self._kind)

    def destination(self, endpoint: str) -> str:
        """The name of the broker, so that all its topics share one circuit breaker; of an unknown one the endpoint."""
        try:
            broker = endpoint_of(endpoint).broker(self._brokers)
        except ValueError:
            broker = None
        return endpoint if broker is None else broker.name

    async def send(self, notification: Notification) -> Delivered:
        """Publish, and wait for the acknowledgement or for the time limit."""
        started = self._clock.seconds()
        seconds = min(notification.timeout_seconds or self._timeout_seconds, self._timeout_seconds)
        failure = await self._failure(notification, seconds)
        milliseconds = round((self._clock.seconds() - started) * 1000)
        if failure is None:
            return Delivered(None, milliseconds, None, is_done=True)
        return Delivered(None, milliseconds, str(failure), is_refused=failure.is_refused)

    async def _failure(self, notification: Notification, seconds: float) -> BrokerFailure | None:
        if self.unavailable is not None:
            return BrokerFailure(self.unavailable)
        endpoint = endpoint_of(notification.url)
        broker = endpoint.broker(self._brokers)
        if broker is None:
            return BrokerFailure("this server knows no broker with the hosts of the endpoint (IPF_BROKERS)")
        publisher = self._publishers.get(broker.name)
        if publisher is None:
            publisher = self._publishers[broker.name] = self._open_publisher(broker)
        body = notification.body or b""
        message = BrokerMessage(
            endpoint.target, notification.key, body, headers_of(notification), notification.message_id
        )
        try:
            await within(seconds, self._clock, publisher.publish(message))
        except BrokerFailure as failed:
            return failed
        except TimeLimitExceeded:
            reason = publisher.reason()
            return BrokerFailure(f"no acknowledgement within {seconds:g} s" + (f": {reason}" if reason else ""))
        except Exception as failed:
            if was_cancelled(failed):
                raise CancelledError() from failed
            return BrokerFailure(f"not sent: {type(failed).__name__}")
        return None

    def close(self) -> None:
        """Disconnect from all brokers."""
        while self._publishers:
            self._publishers.popitem()[1].close()


_: type[Channel] = BrokerChannel


def headers_of(notification: Notification) -> list[tuple[str, str]]:
    """The headers of a message: the registered ones, the subscription, the events, and what rest hooks have as well."""
    found = [*notification.headers]
    names = {name.lower() for name, _ in found}
    if notification.body and "content-type" not in names:
        found.append(("Content-Type", notification.content_type or "application/fhir+json"))
    found += [
        ("X-Ipf-Subscription", f"Subscription/{notification.subscription_id}"),
        ("X-Ipf-Notification-Type", notification.kind),
        ("X-Ipf-Key", notification.key),
    ]
    if notification.events:
        found.append(("X-Ipf-Event-Number", str(notification.events[0].number)))
    if len(notification.events) > 1:
        found.append(("X-Ipf-To-Event-Number", str(notification.events[-1].number)))
    if notification.topic_url and notification.content != "empty":
        found.append(("X-Ipf-Topic", notification.topic_url))
    if correlation.HEADER.lower() not in names:
        found.append((correlation.HEADER, notification.correlation_id))
    parent = correlation.traceparent(notification.correlation_id)
    return found if parent is None else [*found, (correlation.TRACEPARENT, parent)]
