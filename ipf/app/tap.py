"""What `twistd ipf` calls: no options of its own, since all settings are environment variables.

The rooms are imported inside `makeService`, since the metrics library decides at its import whether the processes of
this service share their values (`telemetry/metrics_directory.py`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from ipf.config.settings import InvalidSetting, read
from ipf.telemetry import metrics_directory


class Options(usage.Options):
    """`twistd ipf` takes its settings from the environment."""

    synopsis = "twistd [options] ipf"
    longdesc = "All settings are environment variables; etc/ipf.env explains each."


def makeService(options: Options) -> IService:
    """The service, not started.  A wrong setting ends the program with its name."""
    try:
        settings, warnings = read(os.environ)
    except InvalidSetting as wrong:
        sys.exit(f"ipf: {wrong}")
    try:
        metrics_directory.prepare(Path(settings.data_dir).resolve() / "metrics")
        from ipf.telemetry import metrics  # noqa: F401  takes the space of its files
    except OSError as error:
        sys.exit(f"ipf: IPF_DATA_DIR: {settings.data_dir} cannot be used: {error.strerror or error}")
    from ipf.app.service import Ipf, log_stream

    parent: dict[str, Any] = options.parent or {}
    return Ipf(settings, warnings, log_stream(bool(parent.get("nodaemon")), parent.get("logfile")))
