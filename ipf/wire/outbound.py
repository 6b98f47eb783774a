"""Connections that the service opens: cached endpoints, an address rule, and failures put into words.

Shared by every outbound HTTP client of this room.  Making an endpoint costs as much as half a request, so those in use
are kept.  A name may resolve to an address that the endpoint policy forbids; the rule is asked for the address of the
connection itself, before anything is sent on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from OpenSSL.SSL import Error as TLSError
from service_identity import VerificationError
from twisted.internet import error
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.python.failure import Failure
from twisted.web.client import URI, BrowserLikePolicyForHTTPS, ResponseFailed
from twisted.web.error import SchemeNotSupported
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

ENDPOINTS_KEPT = 4096


class AddressForbidden(Exception):
    """The endpoint's name resolves to an address that the endpoint policy does not permit."""


@implementer(IAgentEndpointFactory)
class Endpoints:
    """Twisted's endpoint for a URL, made once for each scheme, host and port."""

    def __init__(
        self, reactor: Any, connect_seconds: float, permits_address: Callable[[str], bool] | None = None
    ) -> None:
        self._reactor = reactor
        self._connect_seconds = connect_seconds
        self._permits_address = permits_address
        self._tls = BrowserLikePolicyForHTTPS()
        self._kept: dict[tuple[bytes, bytes, int], IStreamClientEndpoint] = {}

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """Twisted: the endpoint for this URL.  SchemeNotSupported unless http or https."""
        key = (uri.scheme, uri.host, uri.port)
        endpoint = self._kept.get(key)
        if endpoint is None:
            if len(self._kept) >= ENDPOINTS_KEPT:
                self._kept.clear()
            endpoint = self._kept[key] = self._make(uri)
        return endpoint

    def _make(self, uri: URI) -> IStreamClientEndpoint:
        if uri.scheme not in (b"http", b"https"):
            raise SchemeNotSupported(f"unsupported scheme {uri.scheme!r}")
        endpoint: IStreamClientEndpoint = HostnameEndpoint(
            self._reactor, uri.host.decode("ascii"), uri.port, timeout=self._connect_seconds
        )
        if uri.scheme == b"https":
            endpoint = wrapClientTLS(self._tls.creatorForNetloc(uri.host, uri.port), endpoint)
        if self._permits_address is not None:
            endpoint = GuardedEndpoint(endpoint, self._permits_address)
        return endpoint


@implementer(IStreamClientEndpoint)
class GuardedEndpoint:
    """An endpoint whose connections are cut before use when their address is not permitted."""

    def __init__(self, endpoint: IStreamClientEndpoint, permits_address: Callable[[str], bool]) -> None:
        self._endpoint = endpoint
        self._permits_address = permits_address

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        """Twisted: connect.  AddressForbidden when the peer's address is not permitted."""
        return self._endpoint.connect(protocolFactory).addCallback(self._check)

    def _check(self, protocol: Any) -> Any:
        if not self._permits_address(protocol.transport.getPeer().host):
            protocol.transport.abortConnection()
            raise AddressForbidden()
        return protocol


def was_cancelled(failure: Exception) -> bool:
    """Whether this is what cancelling an outbound request leads to."""
    return any(isinstance(each, (CancelledError, error.ConnectingCancelledError)) for each in _causes(failure))


def why(failure: Exception) -> str:
    """The reason of a failed request for a person: what kind of failure, and nothing that was sent."""
    causes = _causes(failure)
    for kinds, text in _REASONS:
        for cause in causes:
            if isinstance(cause, kinds):
                return text
    tls = next((each for each in causes if isinstance(each, TLSError)), None)
    if tls is not None:
        return f"TLS: {_tls_reason(tls)}"
    return "no valid HTTP answer" if isinstance(failure, ResponseFailed) else f"not sent: {type(failure).__name__}"


_REASONS: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((AddressForbidden,), "the endpoint's name resolves to an address that is not permitted"),
    ((error.ConnectionRefusedError,), "connection refused"),
    ((error.DNSLookupError, error.UnknownHostError), "the host name cannot be resolved"),
    ((error.TimeoutError, error.TCPTimedOutError), "the connection could not be made in time"),
    ((error.NoRouteError,), "no route to the host"),
    ((VerificationError, error.VerifyError), "TLS: the certificate is not for this host"),
    ((SchemeNotSupported, UnicodeError), "the endpoint is no usable http or https URL"),
    ((error.ConnectionDone, error.ConnectionLost, error.ConnectionAborted), "the connection was closed unanswered"),
    ((error.ConnectError,), "the connection could not be made"),
)


def _causes(failure: Exception) -> list[BaseException]:
    causes: list[BaseException] = [failure]
    for reason in getattr(failure, "reasons", ()):
        if isinstance(reason, Failure) and isinstance(reason.value, Exception):
            causes.extend(_causes(reason.value))
    return causes


def _tls_reason(failure: TLSError) -> str:
    """OpenSSL's own words, e.g. `certificate verify failed`."""
    try:
        return str(failure.args[0][0][2]) or "handshake failed"
    except (IndexError, TypeError):
        return "handshake failed"
