"""What runs have left behind: processes of tests that were killed, and folders of runs that were killed themselves."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.runner.shared import VARIABLE

_PREFIX = "ipf-tests-"
_LOCK = "run.lock"


@contextlib.contextmanager
def folder_of_a_run(parent: Path) -> Iterator[Path]:
    """A new folder in `parent`; at the end it goes, with the processes that have it in their environment."""
    _sweep(parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder.chmod(0o755)  # PostgreSQL's user reads what is shared
        try:
            yield folder
        finally:
            end(str(folder))
            shutil.rmtree(folder, ignore_errors=True)


def end(folder: str) -> list[str]:
    """Kill the processes of the run with this folder, but for this one.  The command of each."""
    ended = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(VARIABLE) == folder:
                ended.append(" ".join(process.cmdline())[:100])
                process.send_signal(signal.SIGKILL)
    return ended


def _sweep(parent: Path) -> None:
    """Remove the folders of runs that were killed: nobody holds their locks."""
    for path in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError), path.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            end(str(path.parent))
            shutil.rmtree(path.parent, ignore_errors=True)
