"""The settings of a service: one frozen value, one environment variable per field.

Each field declares its variable, parser, default and meaning.  A test compares `etc/ipf.env` with this list.

Sources: interface specification "Limits", "Authentication", "Events"; decisions section 2.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields

from ipf.config.access_settings import AccessSettings
from ipf.config.audit_settings import AuditSettings
from ipf.config.auth_settings import AuthSettings
from ipf.config.broker_settings import BrokerSettings
from ipf.config.database_settings import DatabaseSettings
from ipf.config.http_settings import HttpSettings
from ipf.config.parsers import (
    Listener,
    boolean,
    channel_security,
    charset,
    decimal,
    endpoint_patterns,
    host_names,
    http_url,
    integer,
    intervals,
    listeners,
    message_types,
    named,
    networks,
    one_of,
    optional,
    origins,
    pairs,
    secret,
    smtp_url,
    text,
    time_zone,
)
from ipf.config.roles import RoleSettings
from ipf.config.variables import Variable, variable

__all__ = ["Listener", "Settings", "Variable", "variables"]


def _default_processes() -> int:
    """One converter process where the machine has a second core."""
    return 0 if (os.cpu_count() or 1) < 2 else 1


@dataclass(frozen=True, slots=True)
class Settings(
    AuditSettings, AccessSettings, AuthSettings, BrokerSettings, DatabaseSettings, HttpSettings, RoleSettings
):
    """All settings of one service.  Durations are in the unit their name says."""

    data_dir: str = variable("IPF_DATA_DIR", text, "./var", "folder of the embedded PostgreSQL and of run-time files")
    http_listen: str = variable("IPF_HTTP_LISTEN", text, "tcp:8090", "endpoint of the HTTP listener")
    mllp_listen: tuple[Listener, ...] = variable(
        "IPF_MLLP_LISTEN",
        listeners,
        (Listener("tcp:2575", "tcp:2575"),),
        "MLLP endpoints, separated by spaces, each with an optional name: lab=tcp:2576",
    )
    hl7_http_listen: tuple[Listener, ...] = variable(
        "IPF_HL7_HTTP_LISTEN", listeners, (), "endpoints of HL7 v2 over HTTP, as IPF_MLLP_LISTEN; unset: none"
    )
    hl7_http_token: str | None = variable(
        "IPF_HL7_HTTP_TOKEN", optional, None, "token or password of HL7 v2 over HTTP; unset: none required", secret=True
    )
    file_sources: tuple[tuple[str, str], ...] = variable(
        "IPF_FILE_SOURCES", pairs, (), "watched folders, name=folder; HL7 v2 files in them are received"
    )
    file_poll_seconds: float = variable(
        "IPF_FILE_POLL_SECONDS", decimal(0.1), 2.0, "seconds between two looks into watched folders"
    )
    forward_file: str | None = variable(
        "IPF_FORWARD_FILE", optional, None, "TOML file: systems that received messages are sent on to; unset: none"
    )
    mllp_max_frame_bytes: int = variable(
        "IPF_MLLP_MAX_FRAME_BYTES",
        integer(1024),
        16 * 1024 * 1024,
        "maximum size of a message; a larger one is refused with AR",
    )
    mllp_frame_timeout_seconds: float = variable(
        "IPF_MLLP_FRAME_TIMEOUT_SECONDS", decimal(0.1), 30.0, "timeout within an incomplete message"
    )
    mllp_max_connections: int = variable(
        "IPF_MLLP_MAX_CONNECTIONS", integer(1), 5000, "connections per listener; further ones are closed"
    )
    mllp_tenants: tuple[tuple[str, str], ...] = variable(
        "IPF_MLLP_TENANTS", pairs, (), "tenant of the messages of a listener, listener=tenant; default: default"
    )
    mllp_allow: tuple[tuple[str, str], ...] = variable(
        "IPF_MLLP_ALLOW", networks, (), "networks of senders, of all listeners or listener=network; unset: any"
    )
    mllp_client_names: tuple[tuple[str, str], ...] = variable(
        "IPF_MLLP_CLIENT_NAMES", named, (), "names in client certificates of mtls listeners, name or name=tenant"
    )
    mllp_peer_connections: int = variable(
        "IPF_MLLP_MAX_CONNECTIONS_PER_PEER", integer(0), 0, "connections of one address to a listener; 0: no limit"
    )
    mllp_peer_rate: float = variable(
        "IPF_MLLP_MAX_RATE_PER_PEER",
        decimal(0.0),
        0.0,
        "messages per second of one address; further ones are delayed; 0: no limit",
    )
    mllp_fallback_charset: str = variable(
        "IPF_MLLP_FALLBACK_CHARSET", charset, "cp1252", "character set if MSH-18 is empty and the bytes are not UTF-8"
    )
    inbox_writers: int = variable(
        "IPF_INBOX_WRITERS", integer(1, 16), 2, "concurrent group commits; 4 where an fsync takes more than 1 ms"
    )
    inbox_timeout_seconds: float = variable(
        "IPF_INBOX_TIMEOUT_SECONDS", decimal(0.1), 10.0, "timeout of the store; the sender then receives AE"
    )
    worker_poll_ms: int = variable(
        "IPF_WORKER_POLL_MS", integer(10), 1000, "poll interval of idle workers; notified work starts at once"
    )
    worker_batch_size: int = variable("IPF_WORKER_BATCH_SIZE", integer(1, 1000), 50, "maximum rows per claim")
    worker_processes: int = variable(
        "IPF_WORKER_PROCESSES",
        integer(0, 64),
        _default_processes(),
        "converter processes; 0: convert in the main process; default: 0 on one core, otherwise 1",
    )
    converter_nice: int = variable(
        "IPF_CONVERTER_NICE", integer(0, 19), 0, "niceness of converter processes; 19: only idle processor time"
    )
    worker_stale_seconds: float = variable(
        "IPF_WORKER_TRANSFORMING_STALE_SECONDS",
        decimal(0.5),
        60.0,
        "a row without lease renewal for this time is recovered",
    )
    max_attempts: int = variable("IPF_MAX_ATTEMPTS", integer(1), 5, "attempts before DEAD_LETTER")
    backoff_base_ms: int = variable("IPF_BACKOFF_BASE_MS", integer(0), 1000, "delay after the first failure")
    backoff_factor: float = variable("IPF_BACKOFF_FACTOR", decimal(1.0, 100.0), 2.0, "multiplier between failures")
    backoff_max_ms: int = variable("IPF_BACKOFF_MAX_MS", integer(0), 300_000, "cap on any computed delay")
    dlq_log_level: str = variable(
        "IPF_DLQ_LOG_LEVEL", one_of("TRACE", "DEBUG", "INFO", "WARN", "ERROR"), "WARN", "level of the event=dlq line"
    )
    permanent_errors: str = variable(
        "IPF_PERMANENT_ERRORS",
        one_of("retry", "dead_letter"),
        "retry",
        "errors that no retry mends: use all attempts, or end as DEAD_LETTER at the first",
    )
    permanent_errors_hold: bool = variable(
        "IPF_PERMANENT_ERRORS_HOLD",
        boolean,
        True,
        "later messages of the patient wait while a message is FAILED with such an error",
    )
    unread_fields: bool = variable(
        "IPF_UNREAD_FIELDS", boolean, True, "count the fields of converted messages that no rule reads, by sender"
    )
    ordering: str = variable(
        "IPF_ORDERING", one_of("patient", "sender", "none"), "patient", "messages that are converted in order"
    )
    passthrough_types: tuple[str, ...] = variable(
        "IPF_PASSTHROUGH_TYPES", message_types, ("ADT_A04",), "message types that are stored, acknowledged, not mapped"
    )
    require_map_types: tuple[str, ...] = variable(
        "IPF_REQUIRE_MAP_TYPES", message_types, ("ADT_A01",), "message types answered AE and not stored without a map"
    )
    without_patient_types: tuple[str, ...] = variable(
        "IPF_WITHOUT_PATIENT_TYPES",
        message_types,
        ("SIU_S23", "SIU_S24"),
        "message types with an optional PID that are converted without one: their resources have no subject",
    )
    generic_map: bool = variable(
        "IPF_GENERIC_MAP", boolean, False, "events without a map are converted by the generic map, with a warning"
    )
    maps_dir: str | None = variable(
        "IPF_MAPS_DIR", optional, None, "folder of maps; unset: the maps that are part of ipf"
    )
    identity_file: str | None = variable(
        "IPF_IDENTITY_FILE", optional, None, "TOML file: which numbers of PID-3 identify a patient; unset: built in"
    )
    package_dir: str | None = variable(
        "IPF_PACKAGE_DIR", optional, None, "folder of FHIR packages (.tgz); unset: fhir/packages, if it exists"
    )
    profile_dir: str = variable(
        "IPF_PROFILE_DIR", text, "etc/profiles", "folder of vendor profile archives (.tar.gz, .tgz, .tar)"
    )
    default_zone: str = variable(
        "IPF_DEFAULT_ZONE", time_zone, "UTC", "time zone of v2 times without an offset, e.g. Europe/Vienna"
    )
    admin_token: str | None = variable(
        "IPF_ADMIN_AUTH_TOKEN",
        optional,
        None,
        "bearer token of /admin; unset: none required, for development",
        secret=True,
    )
    admin_read_token: str | None = variable(
        "IPF_ADMIN_READ_TOKEN", optional, None, "a second token of /admin, for reading only", secret=True
    )
    metrics_listen: str | None = variable(
        "IPF_METRICS_LISTEN", optional, None, "endpoint of a listener for metrics alone; unset: on the HTTP listener"
    )
    metrics_token: str | None = variable(
        "IPF_METRICS_TOKEN", optional, None, "bearer token of /actuator/prometheus; unset: none required", secret=True
    )
    http_max_body_bytes: int = variable(
        "IPF_HTTP_MAX_BODY_BYTES",
        integer(1024),
        64 * 1024 * 1024,
        "maximum size of a request; a larger one is answered 413",
    )
    http_max_header_bytes: int = variable(
        "IPF_HTTP_MAX_HEADER_BYTES",
        integer(1024),
        64 * 1024,
        "maximum size of request headers; larger ones are answered 431",
    )
    http_max_connections: int = variable(
        "IPF_HTTP_MAX_CONNECTIONS", integer(1), 10_000, "HTTP connections, websockets included; further ones get a 503"
    )
    http_request_seconds: float = variable(
        "IPF_HTTP_REQUEST_TIMEOUT_SECONDS", decimal(0.1), 120.0, "timeout for receiving a complete request"
    )
    hosts: tuple[str, ...] = variable(
        "IPF_HOSTS", host_names, (), "names by which clients reach the HTTP listener; set: no other Host is answered"
    )
    cors_origins: tuple[str, ...] = variable(
        "IPF_HTTP_CORS_ORIGINS", origins, (), "web origins whose pages may use this server; * for all; unset: none"
    )
    search_handling: str = variable(
        "IPF_FHIR_SEARCH_HANDLING", one_of("lenient", "strict"), "lenient", "what to do with unknown search parameters"
    )
    conditional_delete: str = variable(
        "IPF_FHIR_CONDITIONAL_DELETE", one_of("single", "multiple"), "single", "what a conditional delete may delete"
    )
    expunge: bool = variable("IPF_FHIR_EXPUNGE", boolean, False, "offer $expunge, which removes versions for good")
    full_text: bool = variable("IPF_FHIR_FULL_TEXT", boolean, False, "index words of resources for _text and _content")
    referential_integrity: bool = variable(
        "IPF_FHIR_REFERENTIAL_INTEGRITY", boolean, False, "refuse missing targets and deletion of referenced resources"
    )
    export_hours: float = variable(
        "IPF_EXPORT_RETENTION_HOURS",
        decimal(0.1),
        24.0,
        "lifetime of the files of bulk exports and the answers of jobs",
    )
    max_bundle_entries: int = variable(
        "IPF_FHIR_MAX_BUNDLE_ENTRIES", integer(1), 10_000, "maximum entries of a Bundle; a larger one is answered 413"
    )
    expected_intervals: tuple[tuple[str, int], ...] = variable(
        "IPF_EXPECTED_INTERVALS", intervals, (), "longest silence of a sender, sender=15m; unset: learnt from two weeks"
    )
    retention_days: int = variable(
        "IPF_RETENTION_DAYS",
        integer(0, 36_500),
        0,
        "days that delivered messages and delivery records are kept; 0: no limit",
    )
    dead_letter_days: int = variable(
        "IPF_DEAD_LETTER_RETENTION_DAYS",
        integer(0, 36_500),
        0,
        "days that dead letters and rejects are kept; 0: no limit",
    )
    history_days: int = variable(
        "IPF_HISTORY_RETENTION_DAYS",
        integer(0, 36_500),
        0,
        "days that former versions of resources are kept; 0: no limit",
    )
    otlp_url: str | None = variable(
        "IPF_OTLP_URL", http_url, None, "OpenTelemetry collector for spans over OTLP/HTTP; unset: no spans"
    )
    stop_seconds: float = variable(
        "IPF_STOP_SECONDS", decimal(0.1), 15.0, "timeout of a stop for each listener and stage"
    )
    log_level: str = variable(
        "IPF_LOG_LEVEL", one_of("TRACE", "DEBUG", "INFO", "WARN", "ERROR"), "INFO", "lowest level that is logged"
    )
    log_format: str = variable(
        "IPF_LOG_FORMAT", one_of("auto", "json", "human"), "auto", "auto: human on a terminal, otherwise json"
    )
    channel_security: str = variable(
        "SUBSCRIPTION_SERVICE_CHANNEL_SECURITY",
        channel_security,
        "strict",
        "strict, relaxed or permissive; an invalid value means strict",
    )
    endpoint_allow: tuple[str, ...] = variable(
        "SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW",
        endpoint_patterns,
        (),
        "host patterns or networks that are endpoints too",
    )
    endpoint_deny: tuple[str, ...] = variable(
        "SUBSCRIPTION_SERVICE_ENDPOINT_DENY",
        endpoint_patterns,
        (),
        "host patterns or networks that are no endpoints",
    )
    criteria_need_search: bool = variable(
        "SUBSCRIPTION_SERVICE_CRITERIA_NEED_SEARCH", boolean, False, "criteria test only what their client may search"
    )
    subscribers_read: bool = variable(
        "SUBSCRIPTION_SERVICE_SUBSCRIBERS_READ", boolean, False, "system/Subscription implies reading what matches"
    )
    delivery_max_attempts: int = variable(
        "SUBSCRIPTION_SERVICE_DELIVERY_MAX_ATTEMPTS", integer(1), 8, "attempts before the status error"
    )
    delivery_backoff_base_ms: int = variable(
        "SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_BASE_MS", integer(0), 1000, "delay after the first failure"
    )
    delivery_backoff_factor: float = variable(
        "SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_FACTOR", decimal(1.0, 100.0), 2.0, "multiplier between failures"
    )
    delivery_backoff_max_ms: int = variable(
        "SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_MAX_MS", integer(0), 60_000, "cap on any computed delay"
    )
    delivery_in_flight: int = variable(
        "SUBSCRIPTION_SERVICE_DELIVERY_IN_FLIGHT", integer(1, 32), 1, "notifications of a backlog sent without waiting"
    )
    delivery_timeout_ms: int = variable(
        "SUBSCRIPTION_SERVICE_DELIVERY_TIMEOUT_MS", integer(10), 10_000, "timeout of a delivery"
    )
    base_url: str = variable(
        "IPF_BASE_URL",
        http_url,
        "http://localhost:8090/fhir",
        "FHIR base URL in notifications, as subscribers reach it",
    )
    smtp_url: str | None = variable(
        "IPF_SMTP_URL",
        smtp_url,
        None,
        "mail server of email subscriptions, smtp://host or smtps://user:password@host?from=address; unset: not sent",
        secret=True,
    )
    mapping_url: str | None = variable(
        "IPF_MAPPING_URL", http_url, None, "FHIR base of a remote mapping service; unset: map in this service"
    )
    mapping_source: str | None = variable(
        "IPF_MAPPING_SOURCE", optional, None, "canonical URL of its maps, with {message_type}; unset: local ones"
    )
    mapping_timeout_ms: int = variable("IPF_MAPPING_TIMEOUT_MS", integer(10), 30_000, "timeout of the mapping service")
    fhir_token_url: str | None = variable(
        "IPF_FHIR_TOKEN_URL", http_url, None, "token endpoint for remote services; unset: no token is sent"
    )
    fhir_client_id: str | None = variable("IPF_FHIR_CLIENT_ID", optional, None, "client id for it")
    fhir_client_secret: str | None = variable(
        "IPF_FHIR_CLIENT_SECRET", optional, None, "client secret for it", secret=True
    )
    fhir_scope: str | None = variable("IPF_FHIR_SCOPE", optional, None, "scopes to request, separated by spaces")
    fhir_url: str | None = variable(
        "IPF_FHIR_URL", http_url, None, "FHIR base of a remote server for converted messages; unset: none"
    )
    fhir_timeout_ms: int = variable("IPF_FHIR_TIMEOUT_MS", integer(10), 30_000, "timeout of that FHIR server")
    secret_key: str | None = variable(
        "IPF_SECRET_KEY", secret, None, "key that encrypts secrets in channel.header at rest", secret=True
    )
    signing_secret: str | None = variable(
        "SUBSCRIPTION_SERVICE_SIGNING_SECRET", secret, None, "key of the HMAC of notifications", secret=True
    )
    validation_mode: str = variable(
        "SUBSCRIPTION_SERVICE_VALIDATION_MODE",
        one_of("off", "warn", "enforce"),
        "off",
        "validation of FHIR writes: warn returns findings, enforce answers 422",
    )
    conversion_validation: str | None = variable(
        "IPF_CONVERSION_VALIDATION",
        one_of("off", "warn", "refuse"),
        None,
        "validation of converted messages: warn logs findings, refuse fails the message; unset: as for FHIR writes",
    )


def variables() -> dict[str, Variable]:
    """Every variable by name."""
    rows: list[Variable] = [one.metadata["variable"] for one in fields(Settings)]
    return {row.name: row for row in rows}
