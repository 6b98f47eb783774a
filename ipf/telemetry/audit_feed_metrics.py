"""Metrics of the feed of audit records to a log server."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from ipf.telemetry.registry import REGISTRY

_sent = Counter(
    "ipf_audit_feed_sent",
    "Audit records written to the log server; after a break some are written again.",
    registry=REGISTRY,
)
_behind = Gauge(
    "ipf_audit_feed_seconds_behind",
    "Age of the oldest audit record that is not written to the log server yet; 0: none.",
    registry=REGISTRY,
    multiprocess_mode="mostrecent",
)


def records_sent(count: int) -> None:
    """So many records were written."""
    _sent.inc(count)


def seconds_behind(seconds: float) -> None:
    """The age of the oldest record that waits."""
    _behind.set(seconds)
