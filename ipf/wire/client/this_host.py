"""Whether an address reaches this host itself, over loopback or over one of its own interfaces."""

from __future__ import annotations

import socket
from contextlib import closing
from ipaddress import ip_address

_ANY_PORT = 9  # no packet is sent


def is_of_this_host(address: str) -> bool:
    """Whether a connection to this IP address ends on this host.

    The kernel answers: the source address that it chooses for an address of this host is that address.  Connecting a
    datagram socket sends nothing.
    """
    try:
        target = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if target.is_loopback:
        return True
    family = socket.AF_INET if target.version == 4 else socket.AF_INET6
    try:
        with closing(socket.socket(family, socket.SOCK_DGRAM)) as probe:
            probe.connect((str(target), _ANY_PORT))
            return ip_address(str(probe.getsockname()[0]).partition("%")[0]) == target
    except OSError:
        return False  # no route: nothing of this host
