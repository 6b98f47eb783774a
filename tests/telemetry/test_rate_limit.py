"""Lines that repeat are counted; what stands for a row is always written."""

from __future__ import annotations

import io
import json
from typing import Any

from twisted.logger import Logger, LogLevel
from twisted.trial.unittest import TestCase

from ipf.telemetry.logs import LogWriter, event_line
from ipf.telemetry.rate_limit import ALLOWED, INTERVAL_SECONDS


class RateLimitTests(TestCase):
    def setUp(self) -> None:
        self.stream = io.BytesIO()
        self.writer = LogWriter(self.stream)
        self.time = 1_700_000_000.0

    def log(self, text: str, level: Any = LogLevel.warn, **fields: Any) -> None:
        def observe(event: Any) -> None:
            self.writer({**event, "log_time": self.time})

        Logger(namespace="x", observer=observe).emit(level, text, **fields)  # type: ignore[arg-type]

    def lines(self) -> list[str]:
        return [json.loads(line)["message"] for line in self.stream.getvalue().splitlines()]

    def test_similar_lines_are_limited(self) -> None:
        for number in range(500):
            self.log("refused {peer}", peer=f"10.0.0.{number}")
        self.log("something else")
        self.log("done", LogLevel.info)
        self.assertEqual(len(self.lines()), ALLOWED + 2)
        self.assertEqual(self.lines()[0], "refused 10.0.0.0")
        self.time += INTERVAL_SECONDS
        self.log("later", LogLevel.info)
        found = f"event=repeated times={500 - ALLOWED} more lines like: refused {{peer}}"
        self.assertEqual(self.lines()[-2:], [found, "later"])
        self.log("refused {peer}", peer="again")
        self.assertEqual(self.lines()[-1], "refused again")
        self.time += INTERVAL_SECONDS
        self.log("quiet", LogLevel.info)
        self.assertEqual(self.lines()[-1], "quiet")

    def test_event_lines_and_info_are_not_limited(self) -> None:
        for number in range(3 * ALLOWED):
            self.log(event_line("dlq", message_id=number))
            self.log("delivered", LogLevel.info)
        self.assertEqual(len(self.lines()), 6 * ALLOWED)

    def test_memory_is_bounded(self) -> None:
        """Lines of many formats are written, and only some formats are counted."""
        for number in range(3000):
            self.log(f"text {number}", LogLevel.error)
        self.assertEqual(len(self.lines()), 3000)
        self.assertLessEqual(len(self.writer._rate_limit._counts), 1000)
