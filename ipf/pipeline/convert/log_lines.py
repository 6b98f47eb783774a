"""The convert stage's lines in the log, as the interface specification's "Log events" has them."""

from __future__ import annotations

from typing import Any, Protocol

from constantly import NamedConstant
from twisted.logger import Logger

from ipf.ports import Backoff, Claimed, Settlement, StaleRecovery, Status
from ipf.telemetry.logs import event_line

log = Logger(namespace="ipf.convert")


class Recoveries(Protocol):
    """Where rows are counted whose worker was lost."""

    def recovered(self, row: StaleRecovery) -> None:
        """It entered FAILED or DEAD_LETTER."""


def row_of(message: Claimed) -> dict[str, Any]:
    """How log lines name a row: the message, and which further conversion of it this is."""
    if message.original_id is None:
        return {"message_id": message.id}
    return {"message_id": message.original_id, "conversion_id": message.id}


def report_end(message: Claimed, end: Settlement, backoff: Backoff, dlq_level: NamedConstant) -> None:
    """The specification's `event=` line of a settled row."""
    common: dict[str, Any] = {
        **row_of(message),
        "source_system": message.source_system,
        "source_id": message.source_id,
        "message_type": message.message_type,
    }
    if end.status is Status.DELIVERED:
        line = event_line("delivered", **common, map_url=end.map_url)
        log.info(line, correlation_id=message.correlation_id)
    elif end.status is Status.DEAD_LETTER:
        line = event_line("dlq", **common, attempt_count=end.attempt_count, last_error=end.error)
        log.emit(dlq_level, line, correlation_id=message.correlation_id)
    else:
        wait = backoff.delay_ms(end.attempt_count)
        line = event_line(
            "retry_scheduled", **common, attempt_count=end.attempt_count, backoff_ms=wait, last_error=end.error
        )
        log.info(line, correlation_id=message.correlation_id)


def report_recovery(row: StaleRecovery, meter: Recoveries, backoff: Backoff, dlq_level: NamedConstant) -> None:
    """Count a row whose worker was lost, and write its lines: it is an attempt that failed like any other."""
    meter.recovered(row)
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
