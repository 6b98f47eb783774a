"""Failures of outbound requests, and their description for operators and for `Subscription.error`.

A description names the kind of failure.  It holds nothing that was sent: a path may name a patient's resource.
"""

from __future__ import annotations

from OpenSSL.SSL import Error as TLSError
from service_identity import VerificationError
from twisted.internet import error
from twisted.internet.defer import CancelledError
from twisted.python.failure import Failure
from twisted.web.client import ResponseFailed
from twisted.web.error import SchemeNotSupported


class UnusableUrl(ValueError):
    """The URL names no host that a request can be sent to."""


class AddressForbidden(Exception):
    """The host name resolves to addresses that the address rule does not permit.  Its text: why."""


class TimeLimitExceeded(Exception):
    """No complete response arrived within the time limit."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within {seconds:g} s")


class ResponseTooLarge(Exception):
    """The response is larger than its limit."""


def was_cancelled(failure: Exception) -> bool:
    """Whether the caller cancelled the request."""
    return any(isinstance(each, (CancelledError, error.ConnectingCancelledError)) for each in _causes(failure))


def describe(failure: Exception) -> str:
    """The kind of failure of an outbound request, in words."""
    if isinstance(failure, TimeLimitExceeded):
        return str(failure)
    if isinstance(failure, (SchemeNotSupported, ValueError)):
        return "the endpoint is no usable http or https URL"
    causes = _causes(failure)
    forbidden = next((each for each in causes if isinstance(each, AddressForbidden)), None)
    if forbidden is not None:
        return f"the endpoint's name resolves to an address that is not permitted: {forbidden}"
    for kinds, text in _DESCRIPTIONS:
        for cause in causes:
            if isinstance(cause, kinds):
                return text
    tls = next((each for each in causes if isinstance(each, TLSError)), None)
    if tls is not None:
        return f"TLS: {_tls_reason(tls)}"
    return "no valid HTTP answer" if isinstance(failure, ResponseFailed) else f"not sent: {type(failure).__name__}"


_DESCRIPTIONS: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((ResponseTooLarge,), "the response is too large"),
    ((error.ConnectionRefusedError,), "connection refused"),
    ((error.DNSLookupError, error.UnknownHostError), "the host name cannot be resolved"),
    ((error.TimeoutError, error.TCPTimedOutError), "the connection could not be made in time"),
    ((error.NoRouteError,), "no route to the host"),
    ((VerificationError, error.VerifyError), "TLS: the certificate is not for this host"),
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
    """The reason that OpenSSL gives, such as `certificate verify failed`."""
    try:
        return str(failure.args[0][0][2]) or "handshake failed"
    except (IndexError, TypeError):
        return "handshake failed"
