"""Metrics of the reactor: how long nothing but one piece of work ran."""

from __future__ import annotations

from prometheus_client import Histogram

from ipf.telemetry.registry import REGISTRY

_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_stalls = Histogram(
    "ipf_reactor_stall_seconds",
    "Processor time for which one turn of the reactor held it, of turns of 0.1 s and more.",
    ("process",),
    registry=REGISTRY,
    buckets=_SECONDS,
)


def announce(process: str) -> None:
    """Begin the series of a process at zero."""
    _stalls.labels(process)


def stalled(process: str, seconds: float) -> None:
    """One stall."""
    _stalls.labels(process).observe(seconds)
