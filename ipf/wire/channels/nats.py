"""Messages to NATS JetStream, with nats-py.

A message is delivered when a stream has acknowledged it; plain NATS, without a stream for the subject, acknowledges
nothing and is a refusal.  `Nats-Msg-Id` lets the stream drop repetitions of a message within its duplicate window, so a
message whose acknowledgement was lost is stored once.

nats-py needs asyncio: one thread runs its loop for all brokers.  A connection is not repaired but replaced by the next
message, so what waited in a lost connection is not sent later.

Source: https://docs.nats.io/nats-concepts/jetstream; https://nats-io.github.io/nats.py/
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from ipf.config.brokers import Broker
from ipf.wire.channels.brokers import BrokerFailure, BrokerMessage

if TYPE_CHECKING:
    from nats.aio.client import Client

MESSAGE_ID = "Nats-Msg-Id"
_CLOSING_SECONDS = 2.0
T = TypeVar("T")


class LoopThread:
    """An asyncio loop in a thread of its own, started at its first use."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> Deferred[T]:
        """The result of `work`, in the reactor's thread; cancelling the Deferred cancels it."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="ipf-nats", daemon=True).start()
        running = asyncio.run_coroutine_threadsafe(work, self._loop)

        def cancel(_: Deferred[T]) -> None:
            running.cancel()

        found: Deferred[T] = Deferred(cancel)
        running.add_done_callback(lambda done: self._reactor.callFromThread(_settle, found, done))
        return found

    def stop(self) -> None:
        """End the thread, after connections that are being closed."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._end(self._loop), self._loop)

    async def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            await asyncio.wait(left, timeout=_CLOSING_SECONDS)
        loop.stop()


class NatsPublisher:
    """`Publisher` to one NATS cluster."""

    def __init__(self, broker: Broker, timeout_seconds: float, loop: LoopThread) -> None:
        self._broker = broker
        self._timeout_seconds = timeout_seconds
        self._loop = loop
        self._client: Client | None = None
        self._lost: asyncio.Future[None] | None = None
        self._connecting: asyncio.Lock | None = None
        self._reason: str | None = None

    def reason(self) -> str | None:
        """See `Publisher.reason`."""
        return self._reason

    async def publish(self, message: BrokerMessage) -> None:
        """See `Publisher.publish`."""
        await self._loop.run(self._publish(message))

    def close(self) -> None:
        """See `Publisher.close`."""
        self._loop.run(self._close()).addErrback(lambda _: None)

    # -- in the thread of the loop

    async def _publish(self, message: BrokerMessage) -> None:
        from nats.errors import Error, MaxPayloadError
        from nats.js.errors import APIError, NoStreamResponseError

        headers = dict(message.headers)
        if message.id:
            headers[MESSAGE_ID] = message.id
        client, lost = await self._connected()
        stream = client.jetstream(timeout=self._timeout_seconds + _CLOSING_SECONDS)  # the channel's limit comes first
        sending = asyncio.ensure_future(stream.publish(message.target, message.value, headers=headers))
        try:
            waiting: set[asyncio.Future[Any]] = {sending, lost}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise BrokerFailure(f"NATS: the connection was lost{self._detail()}")
            await sending
        except NoStreamResponseError:
            raise BrokerFailure("NATS: no stream stores this subject", is_refused=True) from None
        except MaxPayloadError:
            text = f"NATS: the message is larger than {client.max_payload} bytes, the limit of the server"
            raise BrokerFailure(text, is_refused=True) from None
        except APIError as refused:
            is_refused = 400 <= (refused.code or 0) < 500
            raise BrokerFailure(f"NATS: {refused.code} {refused.description}", is_refused=is_refused) from None
        except (Error, OSError) as failed:
            raise BrokerFailure(f"NATS: {_text(failed)}") from None
        finally:
            sending.cancel()
        self._reason = None

    async def _connected(self) -> tuple[Client, asyncio.Future[None]]:
        """A connection, and what is done when it is lost."""
        self._connecting = self._connecting or asyncio.Lock()
        async with self._connecting:
            if self._client is None or self._lost is None or not self._client.is_connected:
                self._lost = asyncio.get_running_loop().create_future()
                self._client = await self._connect(self._lost)
            return self._client, self._lost

    async def _connect(self, lost: asyncio.Future[None]) -> Client:
        from nats.errors import Error

        async def on_error(error: Exception) -> None:
            self._reason = _text(error)

        async def on_closed() -> None:
            if not lost.done():
                lost.set_result(None)

        client = _client(self._broker)
        try:
            await client.connect(
                [f"{'tls' if self._broker.is_tls else 'nats'}://{server}" for server in self._broker.servers],
                **_credentials(self._broker),
                name="ipf",
                tls=_tls(self._broker),
                error_cb=on_error,
                closed_cb=on_closed,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=max(int(self._timeout_seconds), 1),
                inbox_prefix="_INBOX.ipf",
            )
        except (Error, OSError, ValueError) as failed:
            await client.close()
            self._reason = self._reason or _text(failed)
            raise BrokerFailure(f"NATS: not connected{self._detail()}") from None
        return client

    async def _close(self) -> None:
        if self._client is not None:
            await self._client.close()

    def _detail(self) -> str:
        return f": {self._reason}" if self._reason else ""


def _client(broker: Broker) -> Client:
    """A client that sends no credentials without TLS, where the operator wants TLS.

    The library asks for TLS when the first line of the server says so; whoever changes that line could turn it off.
    """
    from nats.aio.client import Client
    from nats.errors import SecureConnWantedError

    class TlsClient(Client):
        def _connect_command(self) -> bytes:
            if not self._server_info.get("tls_required"):
                raise SecureConnWantedError
            return super()._connect_command()

    return TlsClient() if broker.is_tls else Client()


def _credentials(broker: Broker) -> dict[str, Any]:
    if broker.password is None:
        return {"token": broker.user} if broker.user is not None else {}
    return {"user": broker.user, "password": broker.password}


def _tls(broker: Broker) -> ssl.SSLContext | None:
    if not broker.is_tls:
        return None
    context = ssl.create_default_context(cafile=broker.ca)
    if broker.certificate is not None:
        context.load_cert_chain(broker.certificate, broker.key)
    return context


def _text(error: Exception) -> str:
    """The text of an error of the connection: it holds hosts and subjects, nothing of a message."""
    return (str(error).removeprefix("nats: ") or type(error).__name__)[:300]


def _settle(found: Deferred[Any], done: Future[Any]) -> None:
    if found.called:
        return  # cancelled by the time limit
    try:
        found.callback(done.result())
    except CancelledError:
        found.errback(BrokerFailure("NATS: the connection was closed"))
    except BaseException:
        found.errback(Failure())
