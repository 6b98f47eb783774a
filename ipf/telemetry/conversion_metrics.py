"""Prometheus metrics of the convert stage."""

from __future__ import annotations

from ipf.ports import Claimed, StaleRecovery, Status
from ipf.telemetry import metrics


class ConversionMetrics:
    """Counts the outcomes of the convert stage."""

    def transformed(self, outcome: str, seconds: float) -> None:
        """One mapping call ended."""
        metrics.transformed(outcome, seconds)

    def posted(self, outcome: str, seconds: float) -> None:
        """One FHIR transaction ended."""
        metrics.fhir_posted(outcome, seconds)

    def settled(self, message: Claimed, status: Status, seconds: float) -> None:
        """A message entered a status, `seconds` after its receipt."""
        if status is Status.DELIVERED:
            metrics.message_delivered(message.source_system, seconds, source_protocol=message.source_protocol)
        else:
            metrics.message_entered(status, message.source_system, source_protocol=message.source_protocol)

    def recovered(self, row: StaleRecovery) -> None:
        """A message of a lost worker entered FAILED or DEAD_LETTER."""
        metrics.message_entered(row.settled, row.source_system, source_protocol=row.source_protocol)
        if row.settled is Status.DEAD_LETTER:
            metrics.dead_lettered("stale", source_protocol=row.source_protocol)

    def dead_lettered(self, message: Claimed, reason: str) -> None:
        """A message entered DEAD_LETTER."""
        metrics.dead_lettered(reason, source_protocol=message.source_protocol)

    def invalid(self, outcome: str) -> None:
        """A conversion made resources that are not valid."""
        metrics.invalid_message(outcome)

    def failed_permanently(self, reason: str) -> None:
        """An attempt ended with an error that no retry mends."""
        metrics.failed_permanently(reason)

    def match_unclear(self) -> None:
        """It was not clear which resource a message mentions."""
        metrics.match_unclear()

    def unread_fields(self, kind: str, count: int) -> None:
        """Converted messages had so many fields that are not in their result."""
        metrics.unread_fields(kind, count)
