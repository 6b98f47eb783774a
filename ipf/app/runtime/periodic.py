"""Work that a process repeats at a fixed interval until it stops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from ipf.errors import StoreUnreachable

log = Logger(namespace="ipf.app.periodic")


def run_periodically(
    seconds: float,
    work: Callable[[], Awaitable[object]],
    name: str,
    reactor: Any,
    stack: AsyncExitStack,
    *,
    now: bool = True,
) -> None:
    """Run `work` every `seconds`, and at once if `now`; a failure is logged and the next round runs.

    `name` describes the work in the log.  An unreachable store is not logged here: the store logs it.
    """

    async def guarded() -> None:
        try:
            await work()
        except StoreUnreachable:
            pass
        except Exception:
            log.failure("{name} failed", name=name)

    loop = LoopingCall(lambda: Deferred.fromCoroutine(guarded()))
    loop.clock = reactor
    loop.start(seconds, now=now)
    stack.callback(loop.stop)
