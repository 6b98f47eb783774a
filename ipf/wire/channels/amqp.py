"""Messages to AMQP 0-9-1 brokers such as RabbitMQ, with pika, on Twisted's reactor.

A message is persistent and mandatory, and delivered when the broker confirms it (publisher confirms): it is then in
every queue that it is routed to, and on disk where the queue is durable.  A message that no queue takes is a refusal.
One channel of one connection keeps the order of sending.  A lost connection is replaced by the next message.

pika hands a returned message to the oldest one that the next confirmation covers, which may be another one.  So this
module tells returned messages by their id.

Source: https://www.rabbitmq.com/docs/confirms; https://www.rabbitmq.com/docs/publishers; AMQP 0-9-1, basic.publish
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from twisted.internet.endpoints import HostnameEndpoint, connectProtocol, wrapClientTLS

from ipf.config.brokers import Broker, Host
from ipf.wire.channels.brokers import BrokerFailure, BrokerMessage
from ipf.wire.channels.opening import Opening
from ipf.wire.client.client_tls import client_tls
from ipf.wire.client.failures import TimeLimitExceeded, describe, was_cancelled
from ipf.wire.client.http_client import within

if TYPE_CHECKING:
    from pika.adapters.twisted_connection import TwistedChannel, TwistedProtocolConnection

_PERSISTENT = 2
_HEARTBEAT_SECONDS = 30
_LOGGER = logging.getLogger("pika")
_LOGGER.addHandler(logging.NullHandler())
_LOGGER.propagate = False  # its warnings have the first bytes of messages


class AmqpPublisher:
    """`Publisher` to one AMQP broker."""

    def __init__(self, broker: Broker, timeout_seconds: float, reactor: Any) -> None:
        self._broker = broker
        self._timeout_seconds = timeout_seconds
        self._reactor = reactor
        self._opening: Opening[TwistedChannel] = Opening(self._open)
        self._connection: TwistedProtocolConnection | None = None
        self._returned: set[str] = set()

    def reason(self) -> str | None:
        """See `Publisher.reason`."""
        return None

    async def publish(self, message: BrokerMessage) -> None:
        """See `Publisher.publish`."""
        channel = await self._opening.get()
        from pika import exceptions

        id = message.id or str(uuid4())
        self._returned.discard(id)
        properties = properties_of(message, id)
        try:
            await channel.basic_publish(
                self._broker.exchange, message.target, message.value, properties, mandatory=True
            )
        except exceptions.UnroutableError:
            pass  # confirmed; which message was returned is known by its id
        except exceptions.NackError:
            raise BrokerFailure("AMQP: the broker did not store the message") from None
        except Exception as failed:
            if was_cancelled(failed):
                raise
            self._drop(channel)
            raise failure_of(failed) from None
        if id in self._returned:
            self._returned.discard(id)
            raise BrokerFailure("AMQP: no queue takes messages with this routing key", is_refused=True)

    def close(self) -> None:
        """See `Publisher.close`."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed:
            connection.close()

    def _drop(self, channel: TwistedChannel) -> None:
        self._opening.drop(channel)
        connection = channel.connection
        if connection.is_open:
            connection.close()

    def _on_return(self, returned: Any) -> None:
        self._returned.add(str(returned.properties.message_id))

    async def _open(self) -> TwistedChannel:
        """A channel to the first host that can be reached."""
        reasons = []
        for host in self._broker.hosts:
            try:
                return await within(self._timeout_seconds, self._reactor, self._connect(host))
            except BrokerFailure as failed:
                reasons.append(str(failed))
            except TimeLimitExceeded:
                reasons.append("no answer in time")
        raise BrokerFailure(f"AMQP: not connected: {'; '.join(reasons)}")

    async def _connect(self, host: Host) -> TwistedChannel:
        from pika import exceptions
        from pika.adapters.twisted_connection import TwistedProtocolConnection

        made = TwistedProtocolConnection(_parameters(self._broker), custom_reactor=self._reactor)
        ready: Any = made.ready
        try:
            await connectProtocol(self._endpoint(host), made)
            await ready
            channel: TwistedChannel = await made.channel()
            await channel.confirm_delivery()
        except exceptions.AMQPError as failed:
            raise BrokerFailure(_text(failed)) from None
        except Exception as failed:
            if made.transport is not None:
                made.transport.abortConnection()
            if was_cancelled(failed):
                raise
            raise BrokerFailure(describe(failed)) from None
        channel.add_on_return_callback(self._on_return)
        self._returned.clear()
        self._connection = made
        made.closed.addBoth(lambda _: self._opening.drop(channel))
        return channel

    def _endpoint(self, host: Host) -> Any:
        endpoint = HostnameEndpoint(self._reactor, host[0].strip("[]"), host[1])
        if not self._broker.is_tls:
            return endpoint
        files = (Path(one) if one else None for one in (self._broker.ca, self._broker.certificate, self._broker.key))
        return wrapClientTLS(client_tls(host[0].strip("[]"), *files), endpoint)


def properties_of(message: BrokerMessage, id: str) -> Any:
    """The properties of a message: the standard ones, and the headers."""
    from pika import BasicProperties

    by_name = {name.lower(): value for name, value in message.headers}
    return BasicProperties(
        content_type=by_name.get("content-type"),
        correlation_id=by_name.get("x-correlation-id"),
        message_id=id,
        delivery_mode=_PERSISTENT,
        headers=dict(message.headers),
    )


def _parameters(broker: Broker) -> Any:
    from pika import ConnectionParameters, PlainCredentials

    credentials = PlainCredentials(broker.user or "guest", broker.password or "guest", erase_on_connect=False)
    return ConnectionParameters(
        virtual_host=broker.vhost,
        credentials=credentials,
        heartbeat=_HEARTBEAT_SECONDS,
        client_properties={"connection_name": "ipf"},
    )


def failure_of(error: Exception) -> BrokerFailure:
    """What the end of a channel says.  A channel that the broker closed refused the message."""
    from pika import exceptions

    text = _text(error) if isinstance(error, exceptions.AMQPError) else describe(error)
    return BrokerFailure(f"AMQP: {text}", is_refused=isinstance(error, exceptions.ChannelClosedByBroker))


def _text(error: Exception) -> str:
    """The reason of the broker, which names exchanges and queues, and nothing of a message; else the kind of error."""
    text = getattr(error, "reply_text", "")
    return f"{text or type(error).__name__}"[:300]
