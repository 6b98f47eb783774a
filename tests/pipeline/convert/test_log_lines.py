"""Log lines and metrics of stale recovery."""

from __future__ import annotations

from typing import Any

from twisted.logger import LogEvent, LogLevel, globalLogPublisher
from twisted.trial.unittest import TestCase

from ipf.pipeline.convert.log_lines import report_recovery
from ipf.ports import Backoff, StaleRecovery, Status
from ipf.telemetry import metrics
from ipf.telemetry.conversion_metrics import ConversionMetrics
from ipf.telemetry.logs import record

LOST = 'last_error="the worker that held this message was lost"'


class RecoveryTests(TestCase):
    def setUp(self) -> None:
        self.events: list[LogEvent] = []
        globalLogPublisher.addObserver(self.note)
        self.addCleanup(globalLogPublisher.removeObserver, self.note)

    def note(self, event: Any) -> None:
        """Record a log event."""
        self.events.append(event)

    def report(self, count: int, settled: Status) -> list[tuple[str, str]]:
        """Level and text of each line."""
        row = StaleRecovery(7, "00000000-0000-7000-8000-000000000001", "LOST", "C1", "ADT_A01", count, settled, "OTHER")
        report_recovery(row, ConversionMetrics(), Backoff(1000, 2.0, 300_000, 3), LogLevel.error)
        lines = [record(event) for event in self.events]
        self.assertEqual({line["correlation_id"] for line in lines}, {row.correlation_id})
        return [(line["level"], line["message"]) for line in lines]

    def count_of(self, status: Status) -> float:
        """Number of messages of this sender that entered a state."""
        name, system = "interface_engine_ingested_messages_total", "LOST"
        return metrics.sample(name, status=status.value, source_protocol="OTHER", source_system=system)

    def test_retry_is_logged_as_scheduled(self) -> None:
        before = self.count_of(Status.FAILED)
        of = "message_id=7 source_system=LOST source_id=C1 message_type=ADT_A01 attempt_count=2"
        self.assertEqual(
            self.report(2, Status.FAILED),
            [
                ("WARN", f"event=stale_recovered {of} {LOST}"),
                ("INFO", f"event=retry_scheduled {of} backoff_ms=2000 {LOST}"),
            ],
        )
        self.assertEqual(self.count_of(Status.FAILED), before + 1)

    def test_dead_letter_is_logged_and_counted(self) -> None:
        before = self.count_of(Status.DEAD_LETTER)
        ((level, line),) = self.report(3, Status.DEAD_LETTER)
        self.assertEqual((level, line.partition(" ")[0]), ("ERROR", "event=dlq"))
        self.assertEqual(self.count_of(Status.DEAD_LETTER), before + 1)
