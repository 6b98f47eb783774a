"""What all workers of a run share, made once: the first that needs it makes it, the others wait.

    folder = once("cluster", make)      # make(folder) fills it

Outside of `bin/test` (trial, an editor) each process makes its own.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

VARIABLE = "TEST_RUN_FOLDER"  # not IPF_...: services that tests start do not get those, and are found by it


_MEMORY = Path("/dev/shm")
_ROOM = 4 * 2**30


@cache
def scratch() -> Path:
    """Where tests put data folders: in memory if it has room, where a copy takes a tenth of the time of a disk."""
    has_room = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM
    return _MEMORY if has_room else Path(tempfile.gettempdir())


@cache
def run_folder() -> Path:
    """The folder of this run, which `bin/test` makes and removes."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given)
    made = Path(tempfile.mkdtemp(prefix="ipf-run-", dir=scratch()))
    made.chmod(0o755)  # PostgreSQL's user reads what is shared
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(made, ignore_errors=True) if os.getpid() == owner else None)
    return made


def once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` of this run, filled by `make` in the first process that asks; blocks until it is there.

    A `make` that raises leaves nothing: the next caller tries again.
    """
    folder = run_folder() / name
    with (run_folder() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = folder.with_name(f"{name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(folder)
    return folder
