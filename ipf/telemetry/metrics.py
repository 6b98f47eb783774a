"""Metrics: what happened, counted, in the text format that Prometheus scrapes.

Names and labels are those of decisions section 3.  A label never holds an id, a person's name or free text: each label
has a closed set of values, and `source_system`, which senders choose, keeps its first `SOURCE_SYSTEMS` values apart and
counts the rest as `other`.  Callers use the functions below and never see a label object; increments are gathered in
the process (`tallies.py`) and written through by `flush`, once a second and before each scrape.

With PROMETHEUS_MULTIPROC_DIR set (see `metrics_directory`) the values of all processes of the service are added up.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import prometheus_client.values
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.values import MultiProcessValue

from ipf.errors import Category
from ipf.telemetry.exposition import text_of
from ipf.telemetry.metrics_directory import VARIABLE, part, reserve
from ipf.telemetry.tallies import Tallies

CONTENT_TYPE = CONTENT_TYPE_LATEST
SOURCE_SYSTEMS = 200
OTHER = "other"
MLLP = "HL7V2_MLLP"
SUCCESS = "success"
FAILURE = "failure"

disable_created_metrics()
if VARIABLE in os.environ:
    reserve()
    prometheus_client.values.ValueClass = MultiProcessValue(part)

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
_audits = Counter(
    "fhir_audit_records",
    "Audit records that were written, or dropped because the store was away for too long",
    ["outcome"],
    registry=_REGISTRY,
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

_queue = Gauge(
    "interface_engine_queue_messages",
    "Messages in each state now; delivered ones that are still kept.",
    ("status",),
    registry=_REGISTRY,
    multiprocess_mode="mostrecent",
)
_oldest = Gauge(
    "interface_engine_queue_oldest_seconds",
    "Age of the oldest message that is neither delivered nor a dead letter; 0: there is none.",
    registry=_REGISTRY,
    multiprocess_mode="mostrecent",
)
_index_lag = Gauge(
    "interface_engine_search_index_lag_messages",
    "Newest messages that are not in the index of words; searches look at up to 3,000 of them one by one.",
    registry=_REGISTRY,
    multiprocess_mode="mostrecent",
)
_connections = Gauge(
    "interface_engine_mllp_connections",
    "Open connections of senders, by listener.",
    ("listener",),
    registry=_REGISTRY,
    multiprocess_mode="livesum",
)
_http_connections = Gauge(
    "ipf_http_connections",
    "Open connections of HTTP clients, websockets included.",
    registry=_REGISTRY,
    multiprocess_mode="livesum",
)
_http_refused = Counter(
    "ipf_http_connections_refused",
    "HTTP connections refused since there were too many.",
    registry=_REGISTRY,
)
_http_requests = Counter(
    "ipf_http_requests",
    "HTTP requests answered, by route; status is 2xx, 3xx, 4xx or 5xx.",
    ("route", "method", "status"),
    registry=_REGISTRY,
)
_http_seconds = Histogram(
    "ipf_http_request_duration_seconds",
    "Time from a request's last byte to the end of its answer, by route.",
    ("route",),
    registry=_REGISTRY,
    buckets=(0.002, 0.01, 0.03, 0.1, 0.5, 2.5),
)
_lag = Histogram(
    "ipf_reactor_lag_seconds",
    "How late a timer of the reactor fires, twice a second.",
    ("process",),
    registry=_REGISTRY,
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0),
)
_pool = Gauge(
    "ipf_database_connections",
    "Connections to PostgreSQL: idle, in_use; waiting: callers that wait for one.",
    ("database", "state"),
    registry=_REGISTRY,
    multiprocess_mode="livesum",
)
_removed = Counter(
    "ipf_retention_removed",
    "Rows that retention removed.",
    ("kind",),
    registry=_REGISTRY,
)
_info = Gauge(
    "ipf_build_info",
    "1; the version is in the label.",
    ("version",),
    registry=_REGISTRY,
    multiprocess_mode="mostrecent",
)

ProcessCollector(registry=_REGISTRY)

_systems: set[str] = set()
_tallies = Tallies()
_count, _observe = _tallies.count, _tallies.observe
_REASONS = frozenset(each.name.lower() for each in Category) | {"stale"}
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))

flush = _tallies.flush
"""Write through what this process has counted."""


def message_entered(status: str, source_system: str, *, source_protocol: str = MLLP, count: int = 1) -> None:
    """`count` messages of one sender entered `status` (one of the five states, RECEIVED when stored)."""
    if source_system not in _systems:
        if len(_systems) >= SOURCE_SYSTEMS:
            source_system = OTHER
        else:
            _systems.add(source_system)
    _count(_messages, status, source_protocol, source_system, by=count)


def message_received(source_system: str, *, source_protocol: str = MLLP, count: int = 1) -> None:
    """`count` new messages of one sender were stored."""
    message_entered("RECEIVED", source_system, source_protocol=source_protocol, count=count)


def message_delivered(source_system: str, seconds: float, *, source_protocol: str = MLLP) -> None:
    """A message ended DELIVERED, `seconds` after its receipt."""
    message_entered("DELIVERED", source_system, source_protocol=source_protocol)
    _observe(_received_to_delivered, seconds)


def duplicate_received(*, conflicting: bool) -> None:
    """A repeat was acknowledged; `conflicting`: its content differs from the stored message."""
    _count(_duplicates, "different" if conflicting else "same")


def frame_rejected(code: str) -> None:
    """A frame was answered `AR` or `AE` and not stored as a message."""
    _count(_rejects, code if code in ("AR", "AE") else OTHER)


def transformed(outcome: str, seconds: float) -> None:
    """A mapping ended with `SUCCESS` or `FAILURE` after `seconds`."""
    _observe(_transform_seconds, seconds, outcome)


def fhir_posted(outcome: str, seconds: float) -> None:
    """A transaction Bundle was stored (`SUCCESS`) or not (`FAILURE`) after `seconds`."""
    _observe(_fhir_post_seconds, seconds, outcome)


def dead_lettered(reason: str, *, source_protocol: str = MLLP) -> None:
    """A message entered DEAD_LETTER.  `reason`: a `Category` name in any case, or `stale`; anything else is `other`."""
    reason = reason.lower()
    _count(_dlq_transitions, source_protocol, reason if reason in _REASONS else OTHER)


def dead_letters(size: int) -> None:
    """How many messages are in DEAD_LETTER now."""
    _dlq_size.set(size)


def queue(counts: Mapping[str, int], oldest_seconds: float) -> None:
    """Messages in each state, and the age of the oldest one that waits."""
    for status, count in counts.items():
        _queue.labels(status).set(count)
    _oldest.set(oldest_seconds)
    _dlq_size.set(counts["DEAD_LETTER"])


def search_index_lag(messages: int) -> None:
    """How many of the newest messages the index of words does not have."""
    _index_lag.set(messages)


def mllp_connections(listener: str, count: int) -> None:
    """How many senders are connected to a listener (its name is from the settings)."""
    _connections.labels(listener).set(count)


def http_connections(count: int) -> None:
    """How many HTTP clients are connected."""
    _http_connections.set(count)


def http_refused() -> None:
    """An HTTP client was refused, since there were too many."""
    _http_refused.inc()


def http_answered(route: str, method: str, status: int, seconds: float) -> None:
    """A request was answered.  `route`: one of a bounded set (`wire/http/routes.py`)."""
    _count(_http_requests, route, method if method in _METHODS else OTHER, f"{status // 100}xx")
    _observe(_http_seconds, seconds, route)


def reactor_late(process: str, seconds: float) -> None:
    """A timer of a process (`main`, `converter`) fired so late."""
    _observe(_lag, seconds, process)


def database_connections(database: str, idle: int, in_use: int, waiting: int) -> None:
    """The pool of one database (`inbox`, `fhir`) in this process."""
    _pool.labels(database, "idle").set(idle)
    _pool.labels(database, "in_use").set(in_use)
    _pool.labels(database, "waiting").set(waiting)


def rows_removed(kind: str, count: int) -> None:
    """Retention removed rows (`kind`: one of `Pruner.kinds`)."""
    _count(_removed, kind, by=count)


def build(version: str) -> None:
    """What runs."""
    _info.labels(version).set(1)


def audit_records(outcome: str, count: int) -> None:
    """Audit records were `written` or `dropped`."""
    _count(_audits, outcome, by=count)


def active_subscriptions(count: int) -> None:
    """How many subscriptions are active now."""
    _active.set(count)


def notification_sent(succeeded: bool, seconds: float) -> None:
    """One delivery attempt ended after `seconds`."""
    outcome = SUCCESS if succeeded else FAILURE
    _count(_deliveries, outcome)
    _observe(_delivery_seconds, seconds, outcome)


def exposition() -> bytes:
    """All metrics as text, of all processes of the service."""
    flush()
    if VARIABLE not in os.environ:
        return text_of(_REGISTRY)
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    ProcessCollector(registry=registry)
    return text_of(registry)


def sample(name: str, **labels: str) -> float:
    """The value of one series in this process, 0 when there is none (for tests and for `bin/bench`)."""
    flush()
    return _REGISTRY.get_sample_value(name, labels) or 0.0
