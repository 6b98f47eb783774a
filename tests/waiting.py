"""How tests wait, and on which ports.

A test waits for a condition, never for a time: a shared machine may stall for seconds, and a fast one need not wait.
The limit of a wait only ends a run that has failed, with a message about what is missing.  This module is the only one
under `tests` that pauses (`tests/test_waiting.py` checks that).
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from twisted.internet import reactor, task

T = TypeVar("T")

SLOW = float(os.environ.get("IPF_TEST_SLOW", "5" if os.environ.get("CI") else "1"))
"""How many times as slow as a quiet machine this one may be.  `bin/test` sets it on a machine under load."""
LIMIT = 60.0 * SLOW
"""Seconds after which a test has failed, unless it sets a `timeout` of its own (`--all` alone has such tests)."""
PATIENCE = 50.0 * SLOW
"""Seconds after which an expected event counts as missing: less than LIMIT, so that the message names the event."""
_PAUSE = 0.01


async def until(
    condition: Callable[[], T | Awaitable[T]], what: str = "", *, seconds: float = PATIENCE, clock: Any = reactor
) -> T:
    """The first true result of `condition`, which may be `async`.  AssertionError with `what` and its last result."""
    deadline = clock.seconds() + seconds
    while True:
        found = condition()
        result = await found if inspect.isawaitable(found) else found
        if result:
            return result
        if clock.seconds() > deadline:
            raise AssertionError(f"not after {seconds:g} s: {what or inspect.getsource(condition).strip()}; {result!r}")
        await _pause(clock)


def _pause(clock: Any) -> Awaitable[Any]:
    """A moment, on the event loop that runs: scenarios with asyncio run within a test of trial."""
    return asyncio.sleep(_PAUSE) if asyncio._get_running_loop() else task.deferLater(clock, _PAUSE)


def block_until(condition: Callable[[], T], what: str = "", *, seconds: float = PATIENCE) -> T:
    """As `until`, for threads and programs without a reactor: blocks."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not after {seconds:g} s: {what or inspect.getsource(condition).strip()}; {result!r}")
        time.sleep(_PAUSE)
    return result


async def breathe() -> None:
    """A moment between two requests of a simulated client, so that it does not take the machine for itself."""
    await _pause(reactor)


def block_breathe() -> None:
    """As `breathe`, for threads: blocks."""
    time.sleep(_PAUSE)


async def turns(count: int = 3) -> None:
    """Let the reactor run so many times: what is due now has happened then, for tests that nothing happens."""
    for _ in range(count):
        await task.deferLater(reactor, 0)


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
