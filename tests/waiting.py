"""How long tests wait, and on which ports.

A test waits for a condition, not for a time, because a shared machine may stall for seconds.  The limit of a wait only
ends a run that has failed, with a message about the missing event.
"""

from __future__ import annotations

import itertools
import os
import socket
from pathlib import Path

PATIENCE = 300.0
"""Seconds after which an expected event counts as missing."""

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_MOST = 16_000
_reserved: list[socket.socket] = []


def free_port() -> int:
    """A TCP port of 127.0.0.1 without a listener; no other caller in any process gets the same one.

    It lies outside the range from which the system takes ports by itself, so neither a connection nor a listener on
    port 0 comes upon it before the test does.  It is this process's until it ends: an abstract socket stands for it.
    """
    low, high = map(int, _RANGE.read_text().split())
    first, last = (max(1024, low - _MOST), low) if low > 2048 else (high + 1, 65_536)
    start = os.getpid() * 97 % (last - first)
    for port in itertools.chain(range(first + start, last), range(first, first + start)):
        if _reserve(port) and _is_free(port):
            return port
    raise OSError("there is no free port")


def _reserve(port: int) -> bool:
    """Whether it is ours from now on."""
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        mark.bind(f"\0ipf-test-port-{port}")
    except OSError:
        mark.close()
        return False
    _reserved.append(mark)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
