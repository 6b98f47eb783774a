"""The heartbeat of a converter process: a byte on a pipe to its parent every `BEAT_SECONDS`.

A process that cannot start sends the reason in its place, one line.
The parent (`app/stages/processes.py`) kills a child process that has sent a heartbeat before and then sends none.
"""

from __future__ import annotations

import os

BEAT_FD = 3
BEAT_SECONDS = 5.0


BEAT = b"."


def beat() -> None:
    """Send one heartbeat."""
    report(BEAT)


def report(line: bytes) -> None:
    """Send the reason why this process cannot start: less than a pipe takes at once."""
    try:
        os.write(BEAT_FD, line)
    except OSError:
        pass  # the parent has ended; the end of standard input reports that
