"""Metrics of polled sources."""

from __future__ import annotations

from prometheus_client import Counter

from ipf.telemetry.registry import REGISTRY

_requests = Counter(
    "interface_engine_poll_requests",
    "Requests to polled sources: success, failure, or limited (the source asks to wait).",
    ("feed", "outcome"),
    registry=REGISTRY,
)


def requested(feed: str, outcome: str) -> None:
    """A request to a polled source ended.  `feed`: its name from the vendor profile, `profile/item/feed`."""
    _requests.labels(feed, outcome).inc()
