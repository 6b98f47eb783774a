"""Long work runs in a thread, so that it does not block the reactor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

RunInThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function in a thread; returns its result or raises its error."""

LARGE = 100
"""A request with so many resources runs in a thread; a hundred take about ten milliseconds."""


LARGE_BODY = 100_000
"""A request of so many bytes is parsed and planned in a thread; it takes five to ten milliseconds."""


async def here(work: Callable[[], Any]) -> Any:
    """Runs it at once."""
    return work()


async def turn(run_in_thread: RunInThread) -> None:
    """Let the reactor run once, in the middle of work that cannot run in a thread."""
    await run_in_thread(_nothing)


def _nothing() -> None:
    """Nothing to do in the thread."""
