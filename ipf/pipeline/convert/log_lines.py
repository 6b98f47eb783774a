"""Log lines of the convert stage (interface specification, "Log events")."""

from __future__ import annotations

from typing import Any, Protocol

from constantly import NamedConstant
from twisted.logger import Logger

from ipf.ports import Backoff, Claimed, Settlement, StaleRecovery, Status, map_and_version
from ipf.telemetry.logs import event_line

log = Logger(namespace="ipf.convert")


class RecoveryMetrics(Protocol):
    """Metrics of stale recovery."""

    def recovered(self, row: StaleRecovery) -> None:
        """A stale row became FAILED or DEAD_LETTER."""


def message_fields(message: Claimed) -> dict[str, Any]:
    """The fields that identify a row: the message id and, for a replay, the conversion id."""
    if message.original_id is None:
        return {"message_id": message.id}
    return {"message_id": message.original_id, "conversion_id": message.id}


def map_fields(canonical: str | None) -> dict[str, Any]:
    """The map of a conversion; its version only where it is known."""
    if canonical is None:
        return {"map_url": None}
    url, version = map_and_version(canonical)
    return {"map_url": url} if version is None else {"map_url": url, "map_version": version}


def report_end(
    message: Claimed, settlement: Settlement, backoff: Backoff, dlq_level: NamedConstant, stage: str = ""
) -> None:
    """Log the `event=` line of a settled row.  `stage`: where it failed, `matchbox` or `hapi`."""
    common: dict[str, Any] = {
        **message_fields(message),
        "source_system": message.source_system,
        "source_id": message.source_id,
        "message_type": message.message_type,
    }
    if settlement.status is Status.DELIVERED:
        line = event_line("delivered", **common, **map_fields(settlement.map_url))
        log.info(line, correlation_id=message.correlation_id)
    elif settlement.status is Status.DEAD_LETTER:
        attempts = settlement.attempt_count
        line = event_line("dlq", **common, attempt_count=attempts, stage=stage, last_error=settlement.error)
        log.emit(dlq_level, line, correlation_id=message.correlation_id)
    else:
        wait = backoff.delay_ms(settlement.attempt_count)
        line = event_line(
            "retry_scheduled",
            **common,
            attempt_count=settlement.attempt_count,
            backoff_ms=wait,
            stage=stage,
            last_error=settlement.error,
        )
        log.info(line, correlation_id=message.correlation_id)


def report_warning(message: Claimed, text: str) -> None:
    """Log that a message was stored though a match was not clear; `text` has no data of a patient."""
    line = event_line("match_unclear", **message_fields(message), message_type=message.message_type, warning=text)
    log.warn(line, correlation_id=message.correlation_id)


def report_recovery(row: StaleRecovery, metrics: RecoveryMetrics, backoff: Backoff, dlq_level: NamedConstant) -> None:
    """Count and log a stale row: a lost worker is a failed attempt."""
    metrics.recovered(row)
    common: dict[str, Any] = {
        "message_id": row.id,
        "source_system": row.source_system,
        "source_id": row.source_id,
        "message_type": row.message_type,
        "attempt_count": row.attempt_count,
    }
    lost = "the worker that held this message was lost"
    if row.settled is Status.DEAD_LETTER:
        log.emit(dlq_level, event_line("dlq", **common, last_error=lost), correlation_id=row.correlation_id)
        return
    log.warn(event_line("stale_recovered", **common, last_error=lost), correlation_id=row.correlation_id)
    wait = backoff.delay_ms(row.attempt_count)
    line = event_line("retry_scheduled", **common, backoff_ms=wait, last_error=lost)
    log.info(line, correlation_id=row.correlation_id)
