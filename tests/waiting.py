"""How long tests wait, and on which ports: what must happen is waited for until it does.

A machine that is shared may stand still for seconds.  So a wait is for a condition, and its end is only there so that
a fault ends the run with a word about what did not come.
"""

from __future__ import annotations

import itertools
import os
import socket
from pathlib import Path

PATIENCE = 120.0
"""Seconds after which what has not come is taken for missing."""

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_MOST = 16_000
_reserved: list[socket.socket] = []


def free_port() -> int:
    """A TCP port of 127.0.0.1 on which nobody listens, and which no other caller, in any process, is given.

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
