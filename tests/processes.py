"""Signals to a process and all that it started, some of which may end meanwhile."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence

import psutil


def send(processes: Sequence[psutil.Process], number: int) -> None:
    """Send a signal to each that is still there: a worker of PostgreSQL ends when it has done its work."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def family(pid: int) -> list[psutil.Process]:
    """A process, then all that it started."""
    first = psutil.Process(pid)
    return [first, *first.children(recursive=True)]


def suspend(pid: int) -> list[psutil.Process]:
    """Stop a process first, so that it starts nothing more, then all that it started.  They are for `resume`."""
    psutil.Process(pid).send_signal(signal.SIGSTOP)
    stopped = family(pid)
    send(stopped, signal.SIGSTOP)
    return stopped


def resume(stopped: Sequence[psutil.Process]) -> None:
    """Let them go on."""
    send(stopped, signal.SIGCONT)
