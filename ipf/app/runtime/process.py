"""The identity, the clocks and the threads of one process of the service."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.threads import deferToThread

CONVERTER_NAME = "IPF_CONVERTER_NAME"
"""Environment variable that names a converter process.  The service sets it; it is not a setting."""


def now() -> datetime:
    """The time of day, in UTC."""
    return datetime.now(UTC)


def milliseconds() -> int:
    """The time of day in milliseconds since 1970."""
    return int(time.time() * 1000)


async def run_in_thread(work: Callable[[], Any]) -> Any:
    """Run a function in a thread of the reactor's pool; its result."""
    return await deferToThread(work)


async def uncancelled(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end, also when the caller is cancelled meanwhile; then CancelledError, or its own failure."""
    waiting: Deferred[None] = Deferred()
    running = Deferred.fromCoroutine(work)
    running.addBoth(_tell, waiting)
    try:
        await waiting
    except CancelledError:
        await running
        raise
    await running


def _tell(result: Any, waiting: Deferred[None]) -> Any:
    if not waiting.called:
        waiting.callback(None)
    return result


def worker_name() -> str:
    """The name of this process among all replicas: `host:pid`."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_dead(worker: str) -> bool:
    """Whether `worker` is a process of this host that no longer exists.

    `worker` is a `worker_name()`, or that of a converter process: `host:pid:number`.
    """
    host, _, rest = worker.partition(":")
    process = rest.partition(":")[0]
    return host == socket.gethostname() and process.isdigit() and not Path("/proc", process).exists()


def use_monotonic_timers(reactor: Any) -> None:
    """Make the reactor's timers follow the monotonic clock.  Call it before any timer is set.

    Twisted (26.10) takes `time.time` for its timers.  When an operator or NTP sets the clock back by an hour, every
    timer is an hour late: polls, lease renewals and timeouts stop.  When the clock is set forward, all of them fire.
    It is for correctness, and costs no time: a timer of 0.3 s takes an hour without it.
    """
    offset = time.time() - time.monotonic()
    reactor.seconds = lambda: time.monotonic() + offset
