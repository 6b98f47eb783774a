"""The heartbeat of a converter process: a byte on a pipe to its parent every `BEAT_SECONDS`.

The parent (`app/stages/processes.py`) kills a child process that has sent a heartbeat before and then sends none.
"""

from __future__ import annotations

import os

BEAT_FD = 3
BEAT_SECONDS = 5.0


def beat() -> None:
    """Send one heartbeat."""
    try:
        os.write(BEAT_FD, b".")
    except OSError:
        pass  # the parent has ended; the end of standard input reports that
