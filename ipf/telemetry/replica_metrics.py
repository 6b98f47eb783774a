"""Metrics of reads on a standby."""

from __future__ import annotations

from collections.abc import Iterable
from math import nan

from prometheus_client import Counter, Gauge

from ipf.telemetry.registry import REGISTRY

_reads = Counter(
    "fhir_replica_reads",
    "FHIR reads that tolerate a staleness: replica when the standby answered, else why the primary did.",
    ("outcome",),
    registry=REGISTRY,
)
_used = Gauge(
    "fhir_replica_used", "Whether the standby answers reads now.", registry=REGISTRY, multiprocess_mode="mostrecent"
)
_staleness = Gauge(
    "fhir_replica_staleness_seconds",
    "At most so much is the standby behind the primary; NaN when it is not known.",
    registry=REGISTRY,
    multiprocess_mode="mostrecent",
)


def announce(outcomes: Iterable[str]) -> None:
    """Begin the series of these outcomes at zero."""
    for outcome in outcomes:
        _reads.labels(outcome)


def read(outcome: str) -> None:
    """One read."""
    _reads.labels(outcome).inc()


def standing(used: bool, staleness: float | None) -> None:
    """What is known of the standby."""
    _used.set(used)
    _staleness.set(nan if staleness is None else staleness)
