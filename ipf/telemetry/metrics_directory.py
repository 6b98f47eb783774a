"""The folder in which the processes of one service share their metrics.

Converter processes are children of the one `twistd ipf`; each writes its values to memory-mapped files in this folder,
and the main process adds them up when it is scraped.  The client library decides at its import whether it works that
way, so `prepare` must run before `ipf.telemetry.metrics` is imported; children inherit the variable.

The files are named by the part that a process plays (`PART`), not by its number, so one that is started again goes on
in the files of the one before it.  Their space is taken beforehand (`reserve`): a page of a mapped file that finds no
space on a full disk would end the process (SIGBUS), with all senders connected to it.

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
PART = "IPF_METRICS_PART"  # set by the service for its converter processes; not a setting
_LOCK = "lock"
# Bytes for each file, several times what the closed sets of labels can fill (a series takes about 150 bytes).
_MAIN_SIZES = {"counter": 1 << 20, "histogram": 1 << 19, "gauge_mostrecent": 1 << 16, "gauge_livesum": 1 << 16}
_CONVERTER_SIZES = {"counter": 1 << 18, "histogram": 1 << 17, "gauge_mostrecent": 1 << 14, "gauge_livesum": 1 << 14}


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


def part() -> str:
    """What this process is among those of its service."""
    return os.environ.get(PART, "main")


def reserve() -> None:
    """Take the space of this process's files.  OSError when there is none."""
    sizes = _MAIN_SIZES if part() == "main" else _CONVERTER_SIZES
    for kind, size in sizes.items():
        with Path(os.environ[VARIABLE], f"{kind}_{part()}.db").open("ab") as file:
            os.posix_fallocate(file.fileno(), 0, size)


def _is_alive(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False
