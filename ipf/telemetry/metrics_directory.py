"""The folder in which the processes of one service share their metrics.

Converter processes are children of the one `twistd ipf`; each writes its values to memory-mapped files in this folder,
and the main process adds them up when it is scraped.  The client library decides at its import whether it works that
way, so `prepare` must run before `ipf.telemetry.metrics` is imported; children inherit the variable.

Source: https://prometheus.github.io/client_python/multiprocess/
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_LOCK = "lock"


_held: list[IO[bytes]] = []


def prepare(parent: Path) -> None:
    """Make and announce a folder of this service below `parent`; those that dead services left there are removed.

    It is this service's own, since another may be running on the same data directory, which is found out later.  A lock
    on a file in it says that its service lives: it outlasts the fork of a daemon, which a process id does not.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for leftover in parent.iterdir():
        if leftover.is_dir() and not _is_alive(leftover):
            shutil.rmtree(leftover, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix="service-", dir=parent))
    lock = (folder / _LOCK).open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    _held.append(lock)
    os.environ[VARIABLE] = str(folder)


def _is_alive(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False
