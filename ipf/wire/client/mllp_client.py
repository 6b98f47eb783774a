"""MLLP client: sends one message at a time on a kept connection, and waits for its acknowledgement.

What arrives: messages.  What leaves: acknowledgements, assigned by MSA-2; others are logged and ignored.  Without an
acknowledgement in time the connection is closed, since a late one could be taken for that of the next message.

Source: HL7 Transport Specification: MLLP release 1; HL7 v2.9 section 2.9.2.
"""

from __future__ import annotations

from typing import Any

from OpenSSL.SSL import Error as TLSError
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from ipf.hl7.answers import AckAnswer, answers_of
from ipf.hl7.framing import Framer, frame
from ipf.ports.messages.forwards import Destination, NotSent
from ipf.wire.client.client_tls import client_tls
from ipf.wire.client.failures import describe
from ipf.wire.client.http_client import within

log = Logger()

CONNECT_SECONDS = 20.0
_LARGEST_ANSWER = 1024 * 1024


class MllpClient:
    """The connection to one destination; opened with the first message, and again after it was lost."""

    def __init__(self, reactor: Any, destination: Destination) -> None:
        self._reactor = reactor
        self._destination = destination
        self._open: _Connection | None = None

    async def send(self, message: bytes, control_id: str) -> AckAnswer:
        """Send a message; its acknowledgement.  NotSent."""
        try:
            if self._open is None or self._open.is_lost:
                self._open = await within(CONNECT_SECONDS, self._reactor, self._connected())
            return await within(self._destination.ack_seconds, self._reactor, self._open.exchange(message, control_id))
        except (OSError, ValueError, TLSError) as unreadable:
            await self.close()
            raise NotSent(f"the TLS files cannot be used: {type(unreadable).__name__}") from unreadable
        except NotSent:
            await self.close()
            raise
        except Exception as failure:
            await self.close()
            raise NotSent(describe(failure)) from failure

    async def close(self) -> None:
        """Close the connection."""
        opened, self._open = self._open, None
        if opened is not None and opened.transport is not None:
            opened.transport.abortConnection()

    async def _connected(self) -> _Connection:
        one = self._destination
        endpoint: Any = HostnameEndpoint(self._reactor, one.host, one.port, timeout=CONNECT_SECONDS)
        if one.tls:
            endpoint = wrapClientTLS(client_tls(one.host, one.ca, one.certificate, one.key), endpoint)
        connection: _Connection = await endpoint.connect(Factory.forProtocol(_Connection))
        return connection


class _Connection(Protocol):
    """One connection.  `is_lost`: it cannot be used any more."""

    transport: Any

    def __init__(self) -> None:
        self.is_lost = False
        self._framer = Framer(_LARGEST_ANSWER)
        self._expected = ""
        self._waiting: Deferred[AckAnswer] | None = None

    async def exchange(self, message: bytes, control_id: str) -> AckAnswer:
        """Send a message, and wait for its acknowledgement.  NotSent: the connection was closed before."""
        self._expected, self._waiting = control_id, Deferred()
        self.transport.write(frame(message))
        return await self._waiting

    def dataReceived(self, data: bytes) -> None:
        """Twisted: a part of an acknowledgement."""
        for event in self._framer.feed(data):
            for answer in answers_of(event) if isinstance(event, bytes) else ():
                self._take(answer)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: the connection is closed."""
        self.is_lost = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.called:
            waiting.errback(NotSent("the receiver closed the connection before its acknowledgement"))

    def _take(self, answer: AckAnswer) -> None:
        if self._waiting is None or answer.control_id != self._expected:
            log.warn("event=unexpected_acknowledgement code={code}", event="unexpected_acknowledgement",
                     code=answer.code)  # fmt: skip
            return
        waiting, self._waiting = self._waiting, None
        if not waiting.called:
            waiting.callback(answer)
