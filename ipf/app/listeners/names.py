"""The names for which a listener answers HTTP requests (`wire/http/origin.py` says why)."""

from __future__ import annotations

import socket
from typing import Any

from ipf.config.settings import Settings
from ipf.wire.http.origin import OwnNames, is_loopback, names_in


def own_names(settings: Settings, address: Any, needs_token: bool) -> OwnNames:
    """The names of a listener at this address.

    With IPF_HOSTS, and on loopback while a part of what it serves needs no token, it answers for its own names only:
    IPF_HOSTS, IPF_BASE_URL, the name of the machine, and loopback.  Otherwise for any Host, as a proxy or a container
    needs it.
    """
    is_open_on_loopback = is_loopback(getattr(address, "host", "")) and not needs_token
    hosts = machine_names(*settings.hosts, settings.base_url) if settings.hosts or is_open_on_loopback else None
    return OwnNames(hosts, settings.cors_origins, (settings.base_url,))


def machine_names(*more: str) -> frozenset[str]:
    """The names of this machine, and the hosts of more names or URLs."""
    machine = socket.gethostname()
    return names_in((*more, machine, machine.partition(".")[0]))
