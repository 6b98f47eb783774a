"""Free memory goes back to the operating system once the work that needed it is over.

glibc keeps what was freed between blocks in use, in each of the heaps that threads allocate from, and every large
transaction leaves more of it: objects are gone, resident memory stays.  `malloc_trim` returns it.  When resident
memory is not what the last return left, and does not change any more, the work is over.  Or it waits for the
database, and a return is too early: while memory is well above that at the start, another one follows every `AGAIN`
checks.  It runs in a thread, takes 25 to 130 ms after a transaction of 25,000 entries, and a quiet process never
needs it.  Without it the process keeps 485 MiB after the first such transaction instead of 266 (107 at the start).

Where the C library has no `malloc_trim`, or there is no /proc, nothing is done.

Source: https://man7.org/linux/man-pages/man3/malloc_trim.3.html; Linux, Documentation/filesystems/proc.rst (statm).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from ipf.app.runtime.periodic import run_periodically
from ipf.app.runtime.process import run_in_thread
from ipf.ports.threads import RunInThread

SECONDS = 2.0
CHANGE_MIB = 16.0
"""Difference to the memory after the last return that is worth another one: work took memory, or freed some."""
GROWTH_MIB = 64.0
"""Memory above that at the start for which a return is repeated."""
AGAIN = 5
_STEADY_MIB = 1.0


def resident_mib() -> float:
    """Resident memory of this process; OSError where there is no /proc."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class FreeMemory:
    """`resident()`: resident memory in MiB.  `give_back()`: returns free memory; it is called in a thread."""

    def __init__(self, resident: Callable[[], float], give_back: Callable[[], object], run: RunInThread) -> None:
        self._resident = resident
        self._give_back = give_back
        self._run = run
        self._start = self._before = self._returned = resident()
        self._checks = 0  # since the last return

    async def check(self) -> None:
        """Return free memory when there may be much, and the work that needed it is over."""
        now, before = self._resident(), self._before
        self._before = now
        self._checks += 1
        again = now >= self._start + GROWTH_MIB and self._checks >= AGAIN
        if (again or abs(now - self._returned) >= CHANGE_MIB) and abs(now - before) < _STEADY_MIB:
            await self._run(self._give_back)
            self._before = self._returned = self._resident()
            self._checks = 0


def start_returning_memory(reactor: Any, stack: AsyncExitStack) -> None:
    """Check from now on.  Call it when the start is over."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return
    with suppress(OSError):
        memory = FreeMemory(resident_mib, lambda: trim(0), run_in_thread)
        run_periodically(SECONDS, memory.check, "returning free memory", reactor, stack)
