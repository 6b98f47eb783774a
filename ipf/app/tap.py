"""The `twistd ipf` plugin.  It has no options of its own: all settings are environment variables.

The service is imported inside `makeService`.  When the metrics library is imported, it decides whether the processes of
the service share their values (`telemetry/metrics_directory.py`).
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from ipf.app.runtime.signals import end_at_once
from ipf.config.console import ConsoleSettings
from ipf.config.environment import InvalidSetting, read, read_rows
from ipf.config.roles import CONSOLE
from ipf.telemetry import metrics_directory


class Options(usage.Options):
    """`twistd ipf` takes its settings from the environment."""

    synopsis = "twistd [options] ipf"
    longdesc = "All settings are environment variables; etc/ipf.env explains each."


def makeService(options: Options) -> IService:
    """The service, not started.  An invalid setting ends the program with an error that names it."""
    end_at_once()
    try:
        settings, warnings = read(os.environ)
        if settings.running == (CONSOLE,):
            return _console_alone(options)
        console = read_rows(ConsoleSettings, os.environ)[0] if settings.runs(CONSOLE) else None
    except InvalidSetting as invalid:
        sys.exit(f"ipf: {invalid}")
    try:
        metrics_directory.prepare(Path(settings.data_dir).resolve() / "metrics")
        from ipf.telemetry import metrics  # noqa: F401  allocates its files
    except OSError as error:
        sys.exit(f"ipf: IPF_DATA_DIR: {settings.data_dir} cannot be used: {error.strerror or error}")
    from ipf.app.runtime.log_output import open_log_output
    from ipf.app.service import Ipf
    from ipf.app.startup import start
    from ipf.telemetry.logs import LogWriter, level_named

    parent: dict[str, Any] = options.parent or {}
    output = open_log_output(settings, bool(parent.get("nodaemon")), parent.get("logfile"))
    writer = LogWriter(output.stream, level_named(settings.log_level), human=output.human)
    return Ipf(partial(start, settings, console, output), warnings, writer)


def _console_alone(options: Options) -> IService:
    """What `twistd ipf-ui` runs: a console needs no database."""
    from ipf.app import console_tap

    return console_tap.makeService(options)
