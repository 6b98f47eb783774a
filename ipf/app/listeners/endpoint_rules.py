"""The endpoint rules of this deployment: its settings, and the ports that the service itself listens on."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from ipf.app.listeners.endpoints import FHIR, HL7_HTTP, HTTP, METRICS, MLLP, Listeners
from ipf.config.roles import CONSOLE
from ipf.config.settings import Settings
from ipf.subscriptions.endpoints import EndpointRules, OwnPorts
from ipf.subscriptions.policy import ChannelPolicy
from ipf.wire.client.this_host import is_of_this_host

_PORT = re.compile(r"(?:tcp4?|tcp6|ssl|mtls):(?:.*:port=|port=)?([0-9]{1,5})(?::|$)")
_UI = "IPF_UI_LISTEN"
_UI_DEFAULT = "tcp:3000"


def channel_policy(settings: Settings, listeners: Listeners, is_unresolved: Callable[[str], bool]) -> ChannelPolicy:
    """The rules for submitted Subscriptions."""
    return ChannelPolicy(
        settings.channel_security,
        endpoint_rules(settings, listeners),
        settings.brokers,
        sends_mail=settings.smtp_url is not None,
        authenticates=settings.auth_enabled,
        is_unresolved=is_unresolved,
    )


def endpoint_rules(settings: Settings, listeners: Listeners) -> EndpointRules:
    """The rules on hosts and addresses of endpoints."""
    ports = own_ports(settings, listeners, os.environ)
    return EndpointRules(settings.endpoint_allow, settings.endpoint_deny, settings.has_tenants, ports, is_of_this_host)


def own_ports(settings: Settings, listeners: Listeners, environ: Mapping[str, str]) -> OwnPorts:
    """The ports that the service listens on: of the settings, whichever process opens them, and those that are open."""
    of_settings = {port: name for name, endpoint in _endpoints(settings, environ) if (port := port_of(endpoint))}

    def found() -> Mapping[int, str]:
        opened = {getattr(one.address, "port", 0): one.name for one in listeners.open_now}
        return opened | of_settings

    return found


def port_of(endpoint: str) -> int:
    """The TCP port of an endpoint string; 0 without one, or where the kernel or systemd chooses it."""
    found = _PORT.match(endpoint)
    return int(found[1]) if found is not None else 0


def _endpoints(settings: Settings, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    single = {HTTP: settings.http_listen, FHIR: settings.fhir_listen, METRICS: settings.metrics_listen}
    console = environ.get(_UI, "").strip() or (_UI_DEFAULT if settings.runs(CONSOLE) else "")
    return [
        *((name, endpoint) for name, endpoint in single.items() if endpoint),
        *((MLLP, one.endpoint) for one in settings.mllp_listen),
        *((HL7_HTTP, one.endpoint) for one in settings.hl7_http_listen),
        (_UI, console),
    ]
