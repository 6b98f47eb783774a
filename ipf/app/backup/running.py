"""The main coroutine of a command that runs as a module: its exit status, its errors, and what a signal does."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred

from ipf.config.environment import InvalidSetting
from ipf.errors import Problem, StoreUnreachable
from ipf.security.audit.chain import BadKey


def exit_with(work: Callable[[], Awaitable[bool]]) -> NoReturn:
    """Run on the reactor and end with 0 for True, else 1.  A Problem is printed.

    A signal cancels the work and waits for its end.
    """
    status = [1]

    async def guarded() -> None:
        try:
            status[0] = 0 if await work() else 1
        except InvalidSetting as invalid:
            print(f"ipfctl: {invalid}", file=sys.stderr)
        except StoreUnreachable as unreachable:
            print(f"ipfctl: {unreachable.text}: {unreachable.detail}".rstrip(": "), file=sys.stderr)
        except (Problem, BadKey, OSError) as problem:
            print(f"ipfctl: {problem}", file=sys.stderr)
        except CancelledError:
            print("ipfctl: ended by a signal", file=sys.stderr)

    running: list[Deferred[None]] = []
    loop: Any = reactor

    def begin() -> None:
        running.append(Deferred.fromCoroutine(guarded()))
        running[0].addBoth(lambda result: loop.callLater(0, _stop, loop) and result)

    def ending() -> Deferred[None] | None:
        if running and not running[0].called:
            running[0].cancel()
            return running[0]
        return None

    loop.callWhenRunning(begin)
    loop.addSystemEventTrigger("before", "shutdown", ending)
    loop.run()
    sys.exit(status[0])


def _stop(loop: Any) -> None:
    if loop.running:
        loop.stop()
