"""Twisted endpoints of outbound HTTP connections: address rule, TLS, and a limit for the size of a response.

The address rule is applied to every address that a host name resolves to (`resolver.py`), and again to the peer of the
open connection.  The size limit counts the bytes of a response as they arrive, headers included: twisted.web limits the
length of a header line but not the number of lines.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import error
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import connectionDone
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.client import URI, BrowserLikePolicyForHTTPS
from twisted.web.error import SchemeNotSupported
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from ipf.wire.client.failures import AddressForbidden, ResponseTooLarge, UnusableUrl
from ipf.wire.client.resolver import AddressRule, PermittedAddressResolver, ReactorWithResolver


def _any_address(host: str, address: str, port: int) -> str | None:
    return None


@implementer(IAgentEndpointFactory)
class HttpEndpointFactory:
    """Makes the endpoint for a URL.  `response_limit`: bytes of one response; `forbids`: None = no address."""

    def __init__(
        self, reactor: Any, connect_seconds: float, response_limit: int, forbids: AddressRule | None = None
    ) -> None:
        self.reactor = reactor
        self.connect_seconds = connect_seconds
        self.response_limit = response_limit
        self.forbids = forbids or _any_address
        self.tls = BrowserLikePolicyForHTTPS()

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """Twisted: the endpoint for this URL.  SchemeNotSupported unless http or https; UnusableUrl."""
        if uri.scheme not in (b"http", b"https"):
            raise SchemeNotSupported(f"unsupported scheme {uri.scheme!r}")
        if not uri.host or b"@" in uri.host or not 0 < uri.port < 65536:
            raise UnusableUrl
        return HttpEndpoint(uri, self)


@implementer(IStreamClientEndpoint)
class HttpEndpoint:
    """An endpoint that connects to permitted addresses only and limits the size of responses.

    Twisted's agent asks for an endpoint with every request, so the work is done when it connects.
    """

    def __init__(self, uri: URI, factory: HttpEndpointFactory) -> None:
        self._uri = uri
        self._factory = factory

    async def _connect(self, protocol_factory: IProtocolFactory) -> Any:
        uri, factory = self._uri, self._factory
        host = uri.host.decode("ascii")
        resolver = PermittedAddressResolver(factory.reactor, host, uri.port, factory.forbids)
        reactor: Any = ReactorWithResolver(factory.reactor, resolver)
        endpoint: IStreamClientEndpoint = HostnameEndpoint(reactor, host, uri.port, timeout=factory.connect_seconds)
        if uri.scheme == b"https":
            endpoint = wrapClientTLS(factory.tls.creatorForNetloc(uri.host, uri.port), endpoint)
        try:
            connection: Any = await endpoint.connect(ResponseLimitFactory(protocol_factory, factory.response_limit))
        except error.DNSLookupError as failure:
            if resolver.forbidden is not None:
                raise AddressForbidden(resolver.forbidden) from failure
            raise
        forbidden = resolver.forbids(connection.transport.getPeer())
        if forbidden is not None:
            connection.transport.abortConnection()
            raise AddressForbidden(forbidden)
        return connection.wrappedProtocol

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        """Twisted: connect.  AddressForbidden when no address of the host is permitted."""
        return Deferred.fromCoroutine(self._connect(protocolFactory))


class ResponseLimitProtocol(ProtocolWrapper):
    """Aborts a connection when a response exceeds the limit of its factory.

    Closing aborts as well: a client has nothing left to send then, and a peer that does not read must not keep the
    connection open.
    """

    factory: ResponseLimitFactory
    transport: Any
    _received = 0
    _is_exceeded = False

    def write(self, data: bytes) -> None:
        """Twisted: send; a new request begins a new response."""
        self._received = 0
        super().write(data)  # type: ignore[no-untyped-call]  # Twisted has no types here

    def writeSequence(self, data: Any) -> None:
        """Twisted: send; a new request begins a new response."""
        self._received = 0
        super().writeSequence(data)  # type: ignore[no-untyped-call]  # Twisted has no types here

    def dataReceived(self, data: bytes) -> None:
        """Twisted: some bytes of a response."""
        self._received += len(data)
        if self._received > self.factory.limit:
            self._is_exceeded = True
            self.loseConnection()
        else:
            super().dataReceived(data)  # type: ignore[no-untyped-call]  # Twisted has no types here

    def loseConnection(self) -> None:
        """Twisted: close."""
        self.disconnecting = 1
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: the connection is closed."""
        reason = Failure(ResponseTooLarge()) if self._is_exceeded else reason
        super().connectionLost(reason)  # type: ignore[no-untyped-call]  # Twisted has no types here


class ResponseLimitFactory(WrappingFactory[ResponseLimitProtocol]):
    """Makes `ResponseLimitProtocol`.  `limit`: bytes of one response, headers included."""

    noisy = False
    protocol = ResponseLimitProtocol

    def __init__(self, factory: Any, limit: int) -> None:
        factory.noisy = False  # Twisted logs two lines for each connection otherwise
        super().__init__(factory)  # type: ignore[no-untyped-call]  # Twisted has no types here
        self.limit = limit
