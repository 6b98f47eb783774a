"""Channels to subscribers: one module each, implementing `ports.Channel`, by `Subscription.channel.type`.

A new channel is a module in this package and a line in `open_channels`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from ipf.config.brokers import AMQP, KAFKA, NATS, Broker
from ipf.config.settings import Settings
from ipf.ports import Channel, Channels
from ipf.security.vault import Vault
from ipf.wire.channels.amqp import AmqpPublisher
from ipf.wire.channels.brokers import BrokerChannel, Publisher
from ipf.wire.channels.email import Email, MailServer
from ipf.wire.channels.kafka import KafkaPublisher
from ipf.wire.channels.message import Message
from ipf.wire.channels.nats import LoopThread, NatsPublisher
from ipf.wire.channels.rest_hook import BODY_LIMIT, CONNECTIONS_PER_HOST, RestHook
from ipf.wire.channels.signed import SignedChannel
from ipf.wire.channels.websocket_resource import Websocket
from ipf.wire.client.http_client import HttpClient
from ipf.wire.client.resolver import AddressRule

Stop = Callable[[], None]


def open_channels(
    settings: Settings, reactor: Any, source: str, forbids: AddressRule | None, at_stop: Callable[[Stop], object]
) -> Channels:
    """All channels of this process.

    `source`: the endpoint that messages name as their source.  `forbids`: addresses that may not be connected to.
    `at_stop` takes what is to be called when nothing is sent any more.
    """
    seconds = settings.delivery_timeout_ms / 1000
    vault = Vault(settings.secret_key)
    http = HttpClient(
        reactor, seconds, body_limit=BODY_LIMIT, connections_per_host=CONNECTIONS_PER_HOST, forbids=forbids
    )
    rest_hook = SignedChannel(
        RestHook(http, seconds, reactor), vault, settings.signing_secret, lambda: datetime.now(UTC)
    )
    server = MailServer.of(settings.smtp_url) if settings.smtp_url else None
    return {
        "rest-hook": rest_hook,
        "websocket": Websocket(),
        "message": Message(rest_hook, source),
        "email": Email(reactor, server, seconds),
        **_broker_channels(settings, reactor, vault, at_stop),
    }


def _broker_channels(
    settings: Settings, reactor: Any, vault: Vault, at_stop: Callable[[Stop], object]
) -> dict[str, Channel]:
    """The channels to message brokers."""
    seconds, loop = settings.delivery_timeout_ms / 1000, LoopThread(reactor)
    at_stop(loop.stop)

    def to_kafka(broker: Broker) -> Publisher:
        return KafkaPublisher(broker, seconds, reactor)

    def to_nats(broker: Broker) -> Publisher:
        return NatsPublisher(broker, seconds, loop)

    def to_amqp(broker: Broker) -> Publisher:
        return AmqpPublisher(broker, seconds, reactor)

    found: dict[str, Channel] = {}
    for kind, open_publisher in {KAFKA: to_kafka, NATS: to_nats, AMQP: to_amqp}.items():
        own = [one for one in settings.brokers if one.kind == kind]
        channel = BrokerChannel(kind, own, open_publisher, seconds, reactor)
        at_stop(channel.close)
        found[kind] = SignedChannel(channel, vault, settings.signing_secret, lambda: datetime.now(UTC))
    return found
