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
    hosts = None
    if settings.hosts or is_open_on_loopback:
        machine = socket.gethostname()
        hosts = names_in((*settings.hosts, settings.base_url, machine, machine.partition(".")[0]))
    return OwnNames(hosts, settings.cors_origins, (settings.base_url,))
