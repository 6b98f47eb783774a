"""Limits and helpers for work in threads.  Long work must not block the reactor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

RunInThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function in a thread.  Returns its result, or raises its exception."""

LARGE = 100
"""Requests with at least this number of resources run in a thread: 100 take about 10 ms."""


LARGE_BODY = 100_000
"""Requests of at least this number of bytes are parsed and planned in a thread: 100 kB take 5 to 10 ms."""


async def run_inline(work: Callable[[], Any]) -> Any:
    """Run work at once, without a thread."""
    return work()


async def yield_to_reactor(run_in_thread: RunInThread) -> None:
    """Let the reactor run during long work that cannot run in a thread."""
    await run_in_thread(_nothing)


def _nothing() -> None:
    """An empty job for a thread."""
