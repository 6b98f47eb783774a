"""Metrics of forwarding."""

from __future__ import annotations

from prometheus_client import Counter

from ipf.telemetry.registry import REGISTRY

_attempts = Counter(
    "interface_engine_forward_attempts",
    "Attempts to send a message on: sent, failed (it is tried again), or refused (a dead letter).",
    ("destination", "outcome"),
    registry=REGISTRY,
)


def forwarded(destination: str, outcome: str) -> None:
    """An attempt ended.  `destination`: its name in IPF_FORWARD_FILE."""
    _attempts.labels(destination, outcome).inc()
