"""Metrics of the hash chain of the audit trail."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from ipf.telemetry.registry import REGISTRY

_chained = Counter("ipf_audit_chained", "Audit records that this service has chained.", registry=REGISTRY)
_missing = Counter(
    "ipf_audit_record_missing",
    "Audit records that were gone when they were to be chained.",
    registry=REGISTRY,
)
_waiting = Gauge(
    "ipf_audit_unchained",
    "Audit records that are in no chain yet, counted up to 100,000.",
    registry=REGISTRY,
    multiprocess_mode="mostrecent",
)
_age = Gauge(
    "ipf_audit_unchained_seconds",
    "Age of the first audit record that is in no chain yet; 0: none.",
    registry=REGISTRY,
    multiprocess_mode="mostrecent",
)


def records_chained(count: int) -> None:
    """So many records were chained."""
    _chained.inc(count)


def record_missing() -> None:
    """A record was gone before it was chained."""
    _missing.inc()


def waiting(count: int, seconds: float) -> None:
    """Number and age of records that wait."""
    _waiting.set(count)
    _age.set(seconds)
