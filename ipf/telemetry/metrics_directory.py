"""The folder in which the processes of one service share their metrics.

Converter processes are children of the one `twistd ipf`; each writes its values to memory-mapped files in this folder,
and the main process adds them up when it is scraped.  The client library decides at its import whether it works that
way, so `prepare` must run before `ipf.telemetry.metrics` is imported; children inherit the variable.

Source: https://prometheus.github.io/client_python/multiprocess/
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def prepare(folder: Path) -> None:
    """Make `folder` ready for a new run of the service: created, emptied of the last run's values, and announced."""
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob("*.db"):
        leftover.unlink(missing_ok=True)
    os.environ[VARIABLE] = str(folder)
