"""From where clients and senders reach the listeners, and which settings change it: the end of `event=started`.

MLLP listens on all interfaces, as senders expect it.  HTTP without tokens is on loopback.

Source: decisions, "MLLP listens on all interfaces by default".
"""

from __future__ import annotations

from collections.abc import Iterator

from ipf.app.listeners.check import endpoints_of
from ipf.app.listeners.endpoints import FHIR, HL7_HTTP, HTTP, METRICS, MLLP, names_interface, needs_token
from ipf.config.settings import Settings

_OWN_TOKENS = {METRICS: "IPF_METRICS_TOKEN", HL7_HTTP: "IPF_HL7_HTTP_TOKEN"}


def reach(settings: Settings) -> str:
    """A sentence for each setting whose listener is reached from elsewhere than its endpoint says; "" without one."""
    found = dict.fromkeys(filter(None, (_of(settings, *one) for one in endpoints_of(settings))))
    return "; ".join(found)


def _of(settings: Settings, variable: str, name: str, endpoint: str) -> str:
    if names_interface(endpoint):
        return ""
    if variable == MLLP:
        return f"{variable} listens on all interfaces, unless it names one ({_at(endpoint, '127.0.0.1')})"
    if needs_token(settings, variable):
        return ""
    missing = " and ".join(_missing(settings, variable))
    return f"{variable} is on loopback until {missing}, or it names an interface ({_at(endpoint, '0.0.0.0')})"


def _missing(settings: Settings, variable: str) -> Iterator[str]:
    if variable in _OWN_TOKENS:
        yield f"{_OWN_TOKENS[variable]} is set"
        return
    if variable == HTTP and settings.admin_token is None:
        yield "IPF_ADMIN_AUTH_TOKEN is set"
    if variable == FHIR or not settings.fhir_listen:
        if settings.is_auth_sandbox:
            yield "SUBSCRIPTION_SERVICE_AUTH_ENABLED=false is removed"
        elif not settings.auth_enabled:
            yield "SUBSCRIPTION_SERVICE_AUTH_ISSUER is set"


def _at(endpoint: str, interface: str) -> str:
    """The endpoint with an interface; TLS files and other arguments are left out."""
    kind, _, rest = endpoint.partition(":")
    port = rest.partition(":")[0]
    interface = {"127.0.0.1": r"\:\:1", "0.0.0.0": r"\:\:"}[interface] if kind == "tcp6" else interface
    return f"{kind}:{port}:interface={interface}"
