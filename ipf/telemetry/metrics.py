"""Metrics on prometheus_client: one function for each event, and the text that Prometheus scrapes.

Names and labels are those of decisions section 3.  A label never holds an id, a person's name or free text.  Each label
has a closed set of values, except `source_system`, which senders choose: its first `SOURCE_SYSTEMS` values are kept
apart, the others count as `other`.  Series with values that are known in advance exist from the start, at zero.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector

from ipf.errors import Category
from ipf.ports import Status
from ipf.ports.messages.mapping import DECLARED, DROPPED, INVALID, UNREAD
from ipf.ports.messages.sources import MLLP, PROTOCOLS
from ipf.telemetry.metrics_directory import VARIABLE
from ipf.telemetry.registry import REGISTRY as _REGISTRY

CONTENT_TYPE = CONTENT_TYPE_LATEST
SOURCE_SYSTEMS = 200
OTHER = "other"
SUCCESS = "success"
FAILURE = "failure"

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
    "Duplicates of a stored message, acknowledged without a new row; content is same or different.",
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
    "Audit records: written, deferred (not with what they record), dropped (no store), limited (of strangers).",
    ("outcome",),
    registry=_REGISTRY,
)
_dlq_transitions = Counter(
    "interface_engine_dlq_transitions",
    "Messages that entered DEAD_LETTER, by the kind of their last failure.",
    ("source_protocol", "reason"),
    registry=_REGISTRY,
)
_permanent_failures = Counter(
    "interface_engine_permanent_failures",
    "Attempts that ended with an error that no retry mends, by its kind.",
    ("reason",),
    registry=_REGISTRY,
)
_unclear_matches = Counter(
    "interface_engine_unclear_matches",
    "Resources that a message only mentions and of which several match: the newest was used, or a new one made.",
    registry=_REGISTRY,
)
_invalid_messages = Counter(
    "interface_engine_invalid_messages",
    "Converted messages with resources that are not valid, by what happened to them.",
    ("outcome",),
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
    "Attempts to deliver a notification to a subscriber.",
    ("outcome",),
    registry=_REGISTRY,
)
_delivery_seconds = Histogram(
    "fhir_subscription_delivery_duration_seconds",
    "Time from sending a notification to its response or time limit.",
    ("outcome",),
    registry=_REGISTRY,
    buckets=_LONG_SECONDS,
)
_topic_failures = Counter("fhir_subscription_topic_failures", "Changes that a topic failed on.", registry=_REGISTRY)

_queue = Gauge(
    "interface_engine_queue_messages",
    "Messages in each status now; DELIVERED: those that retention has not removed.",
    ("status",),
    registry=_REGISTRY,
    multiprocess_mode="mostrecent",
)
_oldest = Gauge(
    "interface_engine_queue_oldest_seconds",
    "Age of the oldest message that is neither DELIVERED nor DEAD_LETTER; 0: none.",
    registry=_REGISTRY,
    multiprocess_mode="mostrecent",
)
_open_conflicts = Gauge(
    "interface_engine_identity_conflicts_open",
    "Identity conflicts that wait for an answer of an operator.",
    registry=_REGISTRY,
    multiprocess_mode="mostrecent",
)
_silent = Gauge(
    "interface_engine_silent_senders",
    "Senders that were not heard for longer than expected.",
    registry=_REGISTRY,
    multiprocess_mode="mostrecent",
)
_index_lag = Gauge(
    "interface_engine_search_index_lag_messages",
    "Newest messages that are not in the search index yet.",
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
    "HTTP connections refused because of the connection limit.",
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
    "Time from the last byte of a request to the end of its response, by route.",
    ("route",),
    registry=_REGISTRY,
    buckets=(0.002, 0.01, 0.03, 0.1, 0.5, 2.5),
)
_lag = Histogram(
    "ipf_reactor_lag_seconds",
    "Delay of a reactor timer, measured twice a second.",
    ("process",),
    registry=_REGISTRY,
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0),
)
_pool = Gauge(
    "ipf_database_connections",
    "Connections to PostgreSQL: idle, in_use; waiting: callers waiting for a connection.",
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
_unread_fields = Counter(
    "ipf_unread_fields",
    "Fields of converted messages that are not in the result: unread, declared (ignored on purpose), dropped.",
    ("kind",),
    registry=_REGISTRY,
)
_info = Gauge(
    "ipf_build_info",
    "Always 1; the label is the version.",
    ("version",),
    registry=_REGISTRY,
    multiprocess_mode="mostrecent",
)

ProcessCollector(registry=_REGISTRY)

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
"""Methods that metrics and spans name; all others are OTHER."""
_OUTCOMES = (SUCCESS, FAILURE)
_source_systems: set[str] = set()

# Series with labels that are known in advance: at zero from the start.  Names of senders are not known; `other` is.
_status_messages = {(one, by): _messages.labels(one, by, OTHER) for one in Status for by in PROTOCOLS}
_duplicate_content = {content: _duplicates.labels(content) for content in ("same", "different")}
_reject_codes = {code: _rejects.labels(code) for code in ("AR", "AE")}
_transform_outcomes = {outcome: _transform_seconds.labels(outcome) for outcome in _OUTCOMES}
_fhir_post_outcomes = {outcome: _fhir_post_seconds.labels(outcome) for outcome in _OUTCOMES}
_dlq_reasons = frozenset((*(one.name.lower() for one in Category), "stale"))
_dlq_protocols = {(by, name): _dlq_transitions.labels(by, name) for by in PROTOCOLS for name in sorted(_dlq_reasons)}
_permanent_reasons = {c.name.lower(): _permanent_failures.labels(c.name.lower()) for c in Category if not c.value.retry}
_invalid_outcomes = {one: _invalid_messages.labels(one) for one in ("stored", "refused")}
_delivery_outcomes = {outcome: _deliveries.labels(outcome) for outcome in _OUTCOMES}
_delivery_second_outcomes = {outcome: _delivery_seconds.labels(outcome) for outcome in _OUTCOMES}
_unread_kinds = {kind: _unread_fields.labels(kind) for kind in (UNREAD, DECLARED, DROPPED, INVALID)}
_audit_outcomes = {outcome: _audits.labels(outcome) for outcome in ("written", "dropped", "deferred", "limited")}


def message_entered(status: str, source_system: str, *, source_protocol: str = MLLP, count: int = 1) -> None:
    """`count` messages of one sender entered `status` (one of the five states, RECEIVED when stored)."""
    if source_system not in _source_systems:
        if len(_source_systems) >= SOURCE_SYSTEMS:
            source_system = OTHER
        else:
            _source_systems.add(source_system)
    _messages.labels(status, source_protocol, source_system).inc(count)


def message_received(source_system: str, *, source_protocol: str = MLLP, count: int = 1) -> None:
    """`count` new messages of one sender were stored."""
    message_entered("RECEIVED", source_system, source_protocol=source_protocol, count=count)


def message_delivered(source_system: str, seconds: float, *, source_protocol: str = MLLP) -> None:
    """A message became DELIVERED, `seconds` after its receipt."""
    message_entered("DELIVERED", source_system, source_protocol=source_protocol)
    _received_to_delivered.observe(seconds)


def duplicate_received(*, conflicting: bool) -> None:
    """A duplicate was acknowledged; `conflicting`: its content differs from the stored message."""
    _duplicate_content["different" if conflicting else "same"].inc()


def frame_rejected(code: str) -> None:
    """A frame was answered `AR` or `AE` and not stored as a message."""
    (_reject_codes.get(code) or _rejects.labels(OTHER)).inc()


def transformed(outcome: str, seconds: float) -> None:
    """A mapping ended with `SUCCESS` or `FAILURE` after `seconds`."""
    _transform_outcomes[outcome].observe(seconds)


def fhir_posted(outcome: str, seconds: float) -> None:
    """A transaction Bundle was stored (`SUCCESS`) or not (`FAILURE`) after `seconds`."""
    _fhir_post_outcomes[outcome].observe(seconds)


def dead_lettered(reason: str, *, source_protocol: str = MLLP) -> None:
    """A message entered DEAD_LETTER.  `reason`: a `Category` name in any case, or `stale`; anything else is `other`."""
    reason = reason.lower()
    _dlq_transitions.labels(source_protocol, reason if reason in _dlq_reasons else OTHER).inc()


def failed_permanently(reason: str) -> None:
    """An attempt ended with an error that no retry mends.  `reason`: the name of its `Category` in any case."""
    _permanent_reasons[reason.lower()].inc()


def topic_failed() -> None:
    """A trigger of a topic could not be evaluated on a change."""
    _topic_failures.inc()


def match_unclear() -> None:
    """A message was stored though it was not clear which resource it mentions."""
    _unclear_matches.inc()


def unread_fields(kind: str, count: int) -> None:
    """Converted messages had so many fields that are not in their result.  `kind`: of `UnreadField`."""
    _unread_kinds[kind].inc(count)


def invalid_message(outcome: str) -> None:
    """A conversion made resources that are not valid.  `outcome`: stored | refused."""
    _invalid_outcomes[outcome].inc()


def queue(counts: Mapping[str, int], oldest_seconds: float) -> None:
    """The number of messages in each status, and the age of the oldest unprocessed message."""
    for status, count in counts.items():
        _queue.labels(status).set(count)
    _oldest.set(oldest_seconds)
    _dlq_size.set(counts["DEAD_LETTER"])


def identity_conflicts_open(count: int) -> None:
    """The number of identity conflicts that wait for an answer."""
    _open_conflicts.set(count)


def silent_senders(count: int) -> None:
    """The number of senders that were not heard for longer than expected."""
    _silent.set(count)


def search_index_lag(messages: int) -> None:
    """The number of newest messages that are not in the search index yet."""
    _index_lag.set(messages)


def mllp_connections(listener: str, count: int) -> None:
    """The number of open connections of a listener (its name is from the settings)."""
    _connections.labels(listener).set(count)


def http_connections(count: int) -> None:
    """The number of open HTTP connections."""
    _http_connections.set(count)


def http_refused() -> None:
    """An HTTP connection was refused because of the connection limit."""
    _http_refused.inc()


def http_answered(route: str, method: str, status: int, seconds: float) -> None:
    """A request was answered.  `route`: one of a bounded set (`wire/http/routes.py`)."""
    _http_requests.labels(route, method if method in METHODS else OTHER, f"{status // 100}xx").inc()
    _http_seconds.labels(route).observe(seconds)


def reactor_lag(process: str, seconds: float) -> None:
    """A reactor timer of a process (`main`, `converter`) fired `seconds` late."""
    _lag.labels(process).observe(seconds)


def database_connections(database: str, idle: int, in_use: int, waiting: int) -> None:
    """The connection pool of one database (`inbox`, `fhir`) in this process."""
    _pool.labels(database, "idle").set(idle)
    _pool.labels(database, "in_use").set(in_use)
    _pool.labels(database, "waiting").set(waiting)


def rows_removed(kind: str, count: int) -> None:
    """Retention removed rows (`kind`: one of `Pruner.kinds`)."""
    _removed.labels(kind).inc(count)


def build(version: str) -> None:
    """The running version."""
    _info.labels(version).set(1)


def audit_records(outcome: str, count: int) -> None:
    """Audit records were `written`, `deferred`, `dropped` or `limited`."""
    _audit_outcomes[outcome].inc(count)


def active_subscriptions(count: int) -> None:
    """The number of active subscriptions."""
    _active.set(count)


def notification_sent(succeeded: bool, seconds: float) -> None:
    """One delivery attempt ended after `seconds`."""
    outcome = SUCCESS if succeeded else FAILURE
    _delivery_outcomes[outcome].inc()
    _delivery_second_outcomes[outcome].observe(seconds)


def exposition() -> bytes:
    """All metrics of all processes of the service, in the Prometheus text format."""
    if VARIABLE not in os.environ:
        return generate_latest(_REGISTRY)
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def sample(name: str, **labels: str) -> float:
    """The value of one series in this process, 0 when it does not exist (for tests)."""
    return _REGISTRY.get_sample_value(name, labels) or 0.0
