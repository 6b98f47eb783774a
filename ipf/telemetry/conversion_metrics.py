"""What the convert stage counts, on Prometheus."""

from __future__ import annotations

from ipf.ports import Claimed, StaleRecovery, Status
from ipf.telemetry import metrics


class ConversionMetrics:
    """`stages.convert.ConversionMetrics` on Prometheus."""

    def transformed(self, outcome: str, seconds: float) -> None:
        """One mapping call."""
        metrics.transformed(outcome, seconds)

    def posted(self, outcome: str, seconds: float) -> None:
        """One FHIR transaction."""
        metrics.fhir_posted(outcome, seconds)

    def settled(self, message: Claimed, status: Status, seconds: float) -> None:
        """A row reached a state."""
        if status is Status.DELIVERED:
            metrics.message_delivered(message.source_system, seconds)
        else:
            metrics.message_entered(status, message.source_system)

    def recovered(self, row: StaleRecovery) -> None:
        """A row whose worker was lost entered FAILED or DEAD_LETTER."""
        metrics.message_entered(row.settled, row.source_system)
        if row.settled is Status.DEAD_LETTER:
            metrics.dead_lettered("stale")

    def dead_lettered(self, reason: str) -> None:
        """A row became a dead letter."""
        metrics.dead_lettered(reason)
