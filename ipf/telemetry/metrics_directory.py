"""The folder in which the processes of one service share their metrics.

Converter processes are children of the one `twistd ipf`; each writes its values to memory-mapped files in this folder,
and the main process adds them up when it is scraped.  The client library decides at its import whether it works that
way, so `prepare` must run before `ipf.telemetry.metrics` is imported; children inherit the variable.

Source: https://prometheus.github.io/client_python/multiprocess/
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def prepare(parent: Path) -> None:
    """Make and announce a folder of this process below `parent`; those that dead processes left there are removed.

    It is this process's own, since another service may be running on the same data directory, which is found out later.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for leftover in parent.iterdir():
        if leftover.name.isdigit() and not Path("/proc", leftover.name).exists():
            shutil.rmtree(leftover, ignore_errors=True)
    folder = parent / str(os.getpid())
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.environ[VARIABLE] = str(folder)
