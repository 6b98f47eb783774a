"""Metrics: what happened, counted, in the text format that Prometheus scrapes.

Names and labels are those of decisions section 3.  A label never holds an id, a person's name or free text: each label
has a closed set of values, and `source_system`, which senders choose, keeps its first `SOURCE_SYSTEMS` values apart and
counts the rest as `other`.  Callers use the functions below and never see a label object; label children are looked up
in a dictionary, so that counting costs about a microsecond.

With PROMETHEUS_MULTIPROC_DIR set (see `metrics_directory`) the values of all processes of the service are added up.
"""

from __future__ import annotations

import os
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from ipf.errors import Category
from ipf.telemetry.metrics_directory import VARIABLE

CONTENT_TYPE = CONTENT_TYPE_LATEST
SOURCE_SYSTEMS = 200
OTHER = "other"
MLLP = "HL7V2_MLLP"
SUCCESS = "success"
FAILURE = "failure"

disable_created_metrics()

_REGISTRY = CollectorRegistry()
_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)

_messages = Counter(
    "interface_engine_ingested_messages",
    "Messages that entered a status: RECEIVED when stored, then each later status.",
    ("status", "source_protocol", "source_system"),
    registry=_REGISTRY,
)
_duplicates = Counter(
    "interface_engine_duplicate_messages",
    "Repeats of a stored message, acknowledged without a new row; content is same or different.",
    ("content",),
    registry=_REGISTRY,
)
_rejects = Counter(
    "interface_engine_rejected_frames",
    "Frames answered AR or AE, by acknowledgement code.",
    ("code",),
    registry=_REGISTRY,
)
_transform_seconds = Histogram(
    "interface_engine_transform_duration_seconds",
    "Time to turn one message into a transaction Bundle.",
    ("outcome",),
    registry=_REGISTRY,
    buckets=_SECONDS,
)
_fhir_post_seconds = Histogram(
    "interface_engine_fhir_post_duration_seconds",
    "Time to store one transaction Bundle on the FHIR server.",
    ("outcome",),
    registry=_REGISTRY,
    buckets=_SECONDS,
)
_received_to_delivered = Histogram(
    "interface_engine_received_to_delivered_seconds",
    "Time from receipt to status DELIVERED.",
    registry=_REGISTRY,
    buckets=_LONG_SECONDS,
)
_dlq_transitions = Counter(
    "interface_engine_dlq_transitions",
    "Messages that entered DEAD_LETTER, by the kind of their last failure.",
    ("source_protocol", "reason"),
    registry=_REGISTRY,
)
_dlq_size = Gauge(
    "interface_engine_dlq_current_size",
    "Messages in DEAD_LETTER now.",
    registry=_REGISTRY,
    multiprocess_mode="mostrecent",
)
_active = Gauge(
    "fhir_subscription_active",
    "Subscriptions with status active now.",
    registry=_REGISTRY,
    multiprocess_mode="mostrecent",
)
_deliveries = Counter(
    "fhir_subscription_delivery",
    "Attempts to hand a notification to a subscriber.",
    ("outcome",),
    registry=_REGISTRY,
)
_delivery_seconds = Histogram(
    "fhir_subscription_delivery_duration_seconds",
    "Time from sending a notification to its answer or time limit.",
    ("outcome",),
    registry=_REGISTRY,
    buckets=_LONG_SECONDS,
)

ProcessCollector(registry=_REGISTRY)

_systems: set[str] = set()
_children: dict[tuple[str, ...], MetricWrapperBase] = {}
_REASONS = frozenset(each.name.lower() for each in Category) | {"stale"}
_Metric = TypeVar("_Metric", bound=MetricWrapperBase)


def message_entered(status: str, source_system: str, *, source_protocol: str = MLLP, count: int = 1) -> None:
    """`count` messages of one sender entered `status` (one of the five states, RECEIVED when stored)."""
    if source_system not in _systems:
        if len(_systems) >= SOURCE_SYSTEMS:
            source_system = OTHER
        else:
            _systems.add(source_system)
    _child(_messages, status, source_protocol, source_system).inc(count)


def message_received(source_system: str, *, source_protocol: str = MLLP, count: int = 1) -> None:
    """`count` new messages of one sender were stored."""
    message_entered("RECEIVED", source_system, source_protocol=source_protocol, count=count)


def message_delivered(source_system: str, seconds: float, *, source_protocol: str = MLLP) -> None:
    """A message ended DELIVERED, `seconds` after its receipt."""
    message_entered("DELIVERED", source_system, source_protocol=source_protocol)
    _received_to_delivered.observe(seconds)


def duplicate_received(*, conflicting: bool) -> None:
    """A repeat was acknowledged; `conflicting`: its content differs from the stored message."""
    _child(_duplicates, "different" if conflicting else "same").inc()


def frame_rejected(code: str) -> None:
    """A frame was answered `AR` or `AE` and not stored as a message."""
    _child(_rejects, code if code in ("AR", "AE") else OTHER).inc()


def transformed(outcome: str, seconds: float) -> None:
    """A mapping ended with `SUCCESS` or `FAILURE` after `seconds`."""
    _child(_transform_seconds, outcome).observe(seconds)


def fhir_posted(outcome: str, seconds: float) -> None:
    """A transaction Bundle was stored (`SUCCESS`) or not (`FAILURE`) after `seconds`."""
    _child(_fhir_post_seconds, outcome).observe(seconds)


def dead_lettered(reason: str, *, source_protocol: str = MLLP) -> None:
    """A message entered DEAD_LETTER.  `reason`: a `Category` name in any case, or `stale`; anything else is `other`."""
    reason = reason.lower()
    _child(_dlq_transitions, source_protocol, reason if reason in _REASONS else OTHER).inc()


def dead_letters(size: int) -> None:
    """How many messages are in DEAD_LETTER now."""
    _dlq_size.set(size)


def active_subscriptions(count: int) -> None:
    """How many subscriptions are active now."""
    _active.set(count)


def notification_sent(succeeded: bool, seconds: float) -> None:
    """One delivery attempt ended after `seconds`."""
    outcome = SUCCESS if succeeded else FAILURE
    _child(_deliveries, outcome).inc()
    _child(_delivery_seconds, outcome).observe(seconds)


def exposition() -> bytes:
    """All metrics as text, of all processes of the service."""
    if VARIABLE not in os.environ:
        return generate_latest(_REGISTRY)
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def process_ended(pid: int) -> None:
    """A child process is gone: its gauges of living processes go with it, its counters stay."""
    if VARIABLE in os.environ:
        mark_process_dead(pid)


def sample(name: str, **labels: str) -> float:
    """The value of one series in this process, 0 when there is none (for tests and for `bin/bench`)."""
    return _REGISTRY.get_sample_value(name, labels) or 0.0


def _child(metric: _Metric, *labels: str) -> _Metric:
    key = (metric._name, *labels)
    child = _children.get(key)
    if child is None:
        child = _children[key] = metric.labels(*labels)
    return child  # type: ignore[return-value]  # a child has the class of its metric
