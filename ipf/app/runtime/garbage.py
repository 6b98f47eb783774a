"""Garbage collection of a process that serves, and of one that converts.

A collection blocks all threads.  Everything that start-up has loaded is excluded from it, once.  Maps that are replaced
later stay in memory once per process, as far as they contain reference cycles.

The main process collects in small steps: new objects a thousand at a time, those that outlive it ten thousand at a
time, and all objects at a moment of its own choice, which is never while a large request is in memory.

Source: https://docs.python.org/3/library/gc.html#gc.freeze, #gc.set_threshold
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from ipf.app.runtime.periodic import run_periodically
from ipf.ports.threads import NEVER, is_large_work_running

_CONVERTER = (50_000, 10, 10)
"""New objects between two collections (Python's default: 700).  The objects of a conversion all live until it ends, so
collections during it find nothing.  Measured in turns: a message of 5,000 OBX in 1.5 to 2.6 s instead of 2.0 to 3.2 s,
a Bundle of 10,000 entries through a map in 0.33 instead of 0.55 s, 14 times one of 1,000 entries instead of 22 times.
"""
_MAIN = (1_000, 10, NEVER)
SECONDS = 2.0
_DUE = 10
"""Collections of the second generation after which a full one is worth its time: up to 110,000 objects became old."""
_OVERDUE = 1_000
"""After so many, a full collection no longer waits for large requests to end."""
LONG_SECONDS = 0.005


def collect_rarely() -> None:
    """For a converter process: exclude what is loaded, and collect rarely from now on."""
    _freeze()
    gc.set_threshold(*_CONVERTER)


def collect_in_small_steps(reactor: Any, stack: AsyncExitStack) -> None:
    """For the main process: exclude what is loaded, and collect in small steps from now on."""
    _freeze()
    gc.set_threshold(*_MAIN)
    full = FullCollections(lambda: gc.get_count()[2], is_large_work_running, gc.collect, gc.freeze, time.thread_time)
    run_periodically(SECONDS, full.check, "collecting garbage", reactor, stack)


def _freeze() -> None:
    gc.collect()
    gc.freeze()


class FullCollections:
    """Full collections when they are due.

    `waiting`: collections of the second generation since the last full one.  `is_busy`: whether a large request is in
    memory.  `seconds`: a clock.
    """

    def __init__(
        self,
        waiting: Callable[[], int],
        is_busy: Callable[[], bool],
        collect: Callable[[], object],
        freeze: Callable[[], object],
        seconds: Callable[[], float],
    ) -> None:
        self._waiting, self._is_busy = waiting, is_busy
        self._collect, self._freeze, self._seconds = collect, freeze, seconds

    async def check(self) -> None:
        """Collect if it is due.  What survives a long collection is loaded for good: the next one leaves it out."""
        waiting = self._waiting()
        if waiting < _DUE or (self._is_busy() and waiting < _OVERDUE):
            return
        began = self._seconds()
        self._collect()
        if self._seconds() - began >= LONG_SECONDS:
            self._freeze()
