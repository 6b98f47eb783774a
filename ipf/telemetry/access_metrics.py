"""Metrics of decisions on access."""

from __future__ import annotations

from prometheus_client import Counter

from ipf.telemetry.registry import REGISTRY

_break_glass = Counter(
    "ipf_break_glass_requests",
    "Requests for which labels and Consents were lifted; each leaves an audit record with its reason.",
    registry=REGISTRY,
)


def break_glass_used() -> None:
    """A request lifted labels and Consents."""
    _break_glass.inc()
