"""Connections that the service opens: cached endpoints, an address rule, and failures put into words.

Shared by every outbound HTTP client of this room.  Making an endpoint costs as much as half a request, so those in use
are kept.  A name may resolve to an address that the endpoint policy forbids; such an address is never connected to
(`resolver.py`), and the rule is asked again for the peer of the connection itself.
"""

from __future__ import annotations

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

from ipf.wire.client.resolver import GuardedReactor, GuardedResolver, Permits
from ipf.wire.client.response_parser import NoHttp

ENDPOINTS_KEPT = 4096


class UnusableUrl(Exception):
    """The endpoint is no URL that a request can be sent to."""


class AddressForbidden(Exception):
    """The endpoint's name resolves to an address that the endpoint policy does not permit."""


@implementer(IAgentEndpointFactory)
class Endpoints:
    """Twisted's endpoint for a URL, made once for each scheme, host and port."""

    def __init__(self, reactor: Any, connect_seconds: float, permits: Permits | None = None) -> None:
        self._reactor = reactor
        self._connect_seconds = connect_seconds
        self._permits = permits
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
        host = uri.host.decode("ascii")
        if self._permits is None:
            return self._secured(self._reactor, uri, host)
        resolver = GuardedResolver(self._reactor, host, self._permits)
        return GuardedEndpoint(self._secured(GuardedReactor(self._reactor, resolver), uri, host), resolver)

    def _secured(self, reactor: Any, uri: URI, host: str) -> IStreamClientEndpoint:
        endpoint: IStreamClientEndpoint = HostnameEndpoint(reactor, host, uri.port, timeout=self._connect_seconds)
        if uri.scheme == b"https":
            return wrapClientTLS(self._tls.creatorForNetloc(uri.host, uri.port), endpoint)
        return endpoint


@implementer(IStreamClientEndpoint)
class GuardedEndpoint:
    """An endpoint that connects to permitted addresses only, and says so when there are none."""

    def __init__(self, endpoint: IStreamClientEndpoint, resolver: GuardedResolver) -> None:
        self._endpoint = endpoint
        self._resolver = resolver

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        """Twisted: connect.  AddressForbidden when no address of the name is permitted."""
        return self._endpoint.connect(protocolFactory).addCallbacks(self._check, self._refused)

    def _check(self, protocol: Any) -> Any:
        if not self._resolver.permits(protocol.transport.getPeer()):
            protocol.transport.abortConnection()
            raise AddressForbidden()
        return protocol

    def _refused(self, failure: Failure) -> Failure:
        if self._resolver.forbade and failure.check(error.DNSLookupError):
            raise AddressForbidden()
        return failure


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
    ((SchemeNotSupported, UnicodeError, UnusableUrl), "the endpoint is no usable http or https URL"),
    ((error.ConnectionDone, error.ConnectionLost, error.ConnectionAborted), "the connection was closed unanswered"),
    ((error.ConnectError,), "the connection could not be made"),
    ((NoHttp,), "no valid HTTP answer"),
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
