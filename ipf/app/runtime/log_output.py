"""Where the service writes its log, and in which form.  Converter processes write to it as well."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from twisted.python.logfile import LogFile

from ipf.config.settings import Settings


@dataclass(frozen=True, slots=True)
class LogOutput:
    """A binary stream.  `human`: lines for people instead of JSON."""

    stream: IO[bytes]
    human: bool

    def write(self, lines: bytes) -> None:
        """Write whole lines, and flush them."""
        self.stream.write(lines)
        self.stream.flush()


def open_log_output(settings: Settings, in_foreground: bool, logfile: str | None) -> LogOutput:
    """Standard output in the foreground, else the log file of twistd (default `twistd.log`)."""
    stream = output_stream(in_foreground, logfile)
    return LogOutput(stream, is_human(stream, settings.log_format))


def is_human(stream: IO[bytes], log_format: str) -> bool:
    """Whether lines are for people.  `log_format`: IPF_LOG_FORMAT."""
    is_terminal = getattr(stream, "isatty", lambda: False)()  # LogFile has no isatty
    return log_format == "human" or (log_format == "auto" and is_terminal)


def output_stream(in_foreground: bool, logfile: str | None) -> IO[bytes]:
    """Standard output in the foreground, else the log file of twistd."""
    if logfile == "-" or (in_foreground and not logfile):
        return (sys.__stdout__ or sys.stdout).buffer
    path = str(Path(logfile or "twistd.log").resolve())
    return cast("IO[bytes]", LogFile.fromFullPath(path, rotateLength=100_000_000, maxRotatedFiles=10))
