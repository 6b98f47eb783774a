"""Metrics of a process with several pairs of databases: those of each placement, and totals for the gauges of all.

Labels hold the names of placements, which are configuration.  A gauge without the label `placement` is the sum over all
pairs (`total`), or their largest value (`largest`), so that dashboards and alerts need not know of placements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import Gauge

from ipf.telemetry.registry import REGISTRY

_up = Gauge(
    "ipf_placement_up",
    "Whether the databases of a placement are open: 1, or 0 while they cannot be reached or are closed.",
    ("placement",),
    registry=REGISTRY,
    multiprocess_mode="mostrecent",
)
_queue = Gauge(
    "ipf_placement_queue_messages",
    "Messages of a placement in each status now.",
    ("placement", "status"),
    registry=REGISTRY,
    multiprocess_mode="mostrecent",
)
_oldest = Gauge(
    "ipf_placement_queue_oldest_seconds",
    "Age of the oldest message of a placement that is neither DELIVERED nor DEAD_LETTER; 0: none.",
    ("placement",),
    registry=REGISTRY,
    multiprocess_mode="mostrecent",
)

_values: dict[str, dict[str, float]] = {}  # by gauge, then by placement; "" is the pair of the settings


def total(gauge: str, placement: str, value: float) -> int:
    """The sum over all pairs, after this value of one."""
    return int(sum(_set(gauge, placement, value)))


def largest(gauge: str, placement: str, value: float) -> float:
    """The largest value of all pairs, after this value of one."""
    return max(_set(gauge, placement, value))


def forget(placement: str) -> None:
    """A pair was closed: its values no longer count."""
    for values in _values.values():
        values.pop(placement, None)


def is_up(placement: str, up: bool) -> None:
    """Whether a placement is open."""
    _up.labels(placement).set(int(up))


def queue(placement: str, counts: Mapping[str, int], oldest_seconds: float) -> None:
    """The queue of one placement."""
    for status, count in counts.items():
        _queue.labels(placement, status).set(count)
    _oldest.labels(placement).set(oldest_seconds)


def _set(gauge: str, placement: str, value: float) -> Iterable[float]:
    values = _values.setdefault(gauge, {})
    values[placement] = value
    return values.values()
