"""Metrics of what is limited by the address of a client."""

from __future__ import annotations

from prometheus_client import Counter

from ipf.telemetry.registry import REGISTRY

REJECT, JOB = "reject", "job"
_limited = Counter(
    "ipf_limited_by_address",
    "What one address may not store for now: rejected messages (answered AE), jobs of unknown callers (answered 503).",
    ("kind",),
    registry=REGISTRY,
)
_kinds = {kind: _limited.labels(kind) for kind in (REJECT, JOB)}


def limited(kind: str) -> None:
    """A client was refused."""
    _kinds[kind].inc()
