"""How a converter process tells its parent that its reactor turns: a byte now and then on a pipe of its own.

The parent reads them in `app/processes.py`, and kills a child that began to beat and then is silent.
"""

from __future__ import annotations

import os

BEAT_FD = 3
BEAT_SECONDS = 5.0


def beat() -> None:
    """One beat."""
    try:
        os.write(BEAT_FD, b".")
    except OSError:
        pass  # the parent is gone, which standard input tells
