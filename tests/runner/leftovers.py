"""Processes that a run has left behind: those of tests that were killed, found by the folder in their environment."""

from __future__ import annotations

import contextlib
import os
import signal

import psutil

from tests.runner.shared import VARIABLE


def end(folder: str) -> list[str]:
    """Kill the processes of the run with this folder, but for this one.  The command of each."""
    ended = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(VARIABLE) == folder:
                ended.append(" ".join(process.cmdline())[:100])
                process.send_signal(signal.SIGKILL)
    return ended
