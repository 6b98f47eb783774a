"""The directory in which the processes of one service share their metrics.

Converter processes are children of one `twistd ipf`.  Each process writes its values to memory-mapped files in this
directory, and the main process adds them up for a scrape.  prometheus_client chooses this mode when it is imported, so
`prepare` runs before `ipf.telemetry.metrics` is imported; child processes inherit the variable.

Files are named by the process's name within the service (`PART`), not by its process id, so a restarted converter
continues in the files of its predecessor.

Their disk space is reserved at start (`reserve_space`).  prometheus_client creates sparse files; on a full disk the
first write to a page without space raises SIGBUS, which ends the process with all its connections.

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
PART = "IPF_METRICS_PART"  # set by the service for its converter processes, not by operators
_LOCK = "lock"
# Bytes of each file: several times the size of all series that the closed sets of labels allow (150 bytes each).
_MAIN_SIZES = {"counter": 1 << 20, "histogram": 1 << 19, "gauge_mostrecent": 1 << 16, "gauge_livesum": 1 << 16}
_CONVERTER_SIZES = {"counter": 1 << 18, "histogram": 1 << 17, "gauge_mostrecent": 1 << 14, "gauge_livesum": 1 << 14}

_locks: list[IO[bytes]] = []


def prepare(parent: Path) -> None:
    """Create this service's directory in `parent`, set the variable, and remove directories of ended services.

    Each service has its own, since a second one may be started on the same data directory by mistake.  A locked file in
    it marks a running service: unlike a process id, a lock survives the fork of a daemon.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for other in parent.iterdir():
        if other.is_dir() and not _is_locked(other):
            shutil.rmtree(other, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix="service-", dir=parent))
    lock = (folder / _LOCK).open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    _locks.append(lock)
    os.environ[VARIABLE] = str(folder)


def process_name() -> str:
    """The name of this process within the service: `main`, `converter1` ..."""
    return os.environ.get(PART, "main")


def reserve_space() -> None:
    """Reserve the disk space of this process's files.  OSError when there is none."""
    sizes = _MAIN_SIZES if process_name() == "main" else _CONVERTER_SIZES
    for kind, size in sizes.items():
        with Path(os.environ[VARIABLE], f"{kind}_{process_name()}.db").open("ab") as file:
            os.posix_fallocate(file.fileno(), 0, size)


def _is_locked(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False
