"""Limits and helpers for work in threads.  Long work must not block the reactor."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")

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


async def run_by_size(size: int, run_in_thread: RunInThread, work: Callable[[], T]) -> T:
    """Run what reads or makes so many bytes: at once, or in a thread from LARGE_BODY on."""
    if size < LARGE_BODY:
        return work()
    with without_full_collections():
        found: T = await run_in_thread(work)
    return found


NEVER = 1_000_000_000
"""A threshold of garbage collection that is not reached."""
_large = 0
_threshold = 0
_changing = Lock()


@contextmanager
def without_full_collections() -> Iterator[None]:
    """No collection of all objects while much is in memory that has no cycles and is short-lived, such as parsed JSON.

    It would take tens of milliseconds and block all threads.  Collections of new objects go on: if there were none, the
    first one afterwards would look at all objects of all requests at once.
    """
    global _large, _threshold
    with _changing:
        if not _large:
            young, old, _threshold = gc.get_threshold()
            gc.set_threshold(young, old, NEVER)
        _large += 1
    try:
        yield
    finally:
        with _changing:
            _large -= 1
            if not _large:
                young, old, _ = gc.get_threshold()
                gc.set_threshold(young, old, _threshold)


def is_large_work_running() -> bool:
    """Whether some work runs `without_full_collections`."""
    return _large > 0
