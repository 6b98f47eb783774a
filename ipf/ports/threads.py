"""Work that takes long goes aside: where it does not hold up what else the process does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

RunInThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function elsewhere (in a thread) and gives its result, or raises what it raised."""

LARGE = 100
"""Resources of one request from which on its work goes aside; a hundred take about ten milliseconds."""


LARGE_BODY = 100_000
"""Bytes of one request from which on it is read and planned aside; as many take five to ten milliseconds."""


async def here(work: Callable[[], Any]) -> Any:
    """Runs it at once."""
    return work()


async def turn(run_in_thread: RunInThread) -> None:
    """In the middle of work that cannot go aside: whatever else the process has to do has a turn now."""
    await run_in_thread(_nothing)


def _nothing() -> None:
    """What is done aside meanwhile."""
