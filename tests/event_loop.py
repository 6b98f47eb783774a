"""Runs an asyncio coroutine from a trial test, with a bound that ends it whatever the coroutine does.

While `asyncio.run` runs inside a trial test the reactor stands still, so the timeout of trial cannot fire; and
`asyncio.run` waits without limit for tasks that swallow their cancellation.  Here the event loop stops at the limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.waiting import PATIENCE

T = TypeVar("T")

LIMIT = 12 * PATIENCE
"""Seconds that a scenario may take before it is a failure: several waits of `PATIENCE` in a row, on a machine that has
other things to do."""
_GRACE = 10.0  # for a cancelled scenario to stop its processes


def run(scenario: Coroutine[Any, Any, T], seconds: float = LIMIT) -> T:
    """The result of `scenario`.  TimeoutError, with the place where it waits, when it takes longer than `seconds`."""
    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(scenario)
        place: list[str] = []
        loop.call_later(seconds, _cancel, task, place)
        loop.call_later(seconds + _GRACE, loop.stop)
        try:
            return loop.run_until_complete(task)
        except (asyncio.CancelledError, RuntimeError):
            if not place:
                raise
            raise TimeoutError(f"after {seconds:.0f} seconds the scenario still waits at {place[0]}") from None
    finally:
        _close(loop)


def _cancel(task: asyncio.Task[Any], place: list[str]) -> None:
    frames = task.get_stack()
    place.append(f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else "its end")
    task.cancel()


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what is left and give it a bounded time; never wait for a task that does not end."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.call_later(_GRACE, loop.stop)
        ended = asyncio.wait(left, timeout=_GRACE / 2)
        try:
            loop.run_until_complete(ended)
        except RuntimeError:  # stopped: the tasks are abandoned
            pass
    loop.close()
