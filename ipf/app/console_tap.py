"""The `twistd ipf-ui` plugin: the operator console.  All settings are environment variables."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from ipf import __version__
from ipf.app.console import start
from ipf.app.runtime.log_output import is_human, output_stream
from ipf.app.runtime.signals import end_at_once
from ipf.app.service import Ipf
from ipf.config.console import ConsoleSettings
from ipf.config.environment import InvalidSetting, read_rows
from ipf.telemetry.logs import LogWriter, level_named


class Options(usage.Options):
    """`twistd ipf-ui` takes its settings from the environment."""

    synopsis = "twistd [options] ipf-ui"
    longdesc = "All settings are environment variables; etc/ipf-ui.env explains each."

    def opt_version(self) -> None:
        """Print the version of ipf and end."""
        print(f"ipf-ui {__version__}")
        sys.exit(0)


def makeService(options: usage.Options) -> IService:
    """The service, not started.  An invalid setting ends the program with an error that names it."""
    end_at_once()
    try:
        settings, warnings = read_rows(ConsoleSettings, os.environ)
    except InvalidSetting as invalid:
        sys.exit(f"ipf-ui: {invalid}")
    parent: dict[str, Any] = options.parent or {}
    stream = output_stream(bool(parent.get("nodaemon")), parent.get("logfile"))
    human = is_human(stream, settings.log_format)
    return Ipf(partial(start, settings), warnings, LogWriter(stream, level_named("INFO"), human=human))
