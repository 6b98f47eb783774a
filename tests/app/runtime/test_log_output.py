"""The form of log lines, of the engine and of the console."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.app.runtime.log_output import is_human


class Terminal(BytesIO):
    """Standard output before a person."""

    def isatty(self) -> bool:
        """It is one."""
        return True


class LogOutputTests(TestCase):
    def test_for_whom_lines_are(self) -> None:
        """`auto` looks at the stream; the other two do not.  A log file has no `isatty`."""
        cases: tuple[tuple[Any, str, bool], ...] = (
            (Terminal(), "auto", True), (Terminal(), "json", False), (Terminal(), "human", True),
            (BytesIO(), "auto", False), (BytesIO(), "json", False), (BytesIO(), "human", True),
            (object(), "auto", False), (object(), "human", True),
        )  # fmt: skip
        for stream, log_format, expected in cases:
            self.assertEqual(is_human(stream, log_format), expected, (stream, log_format))
