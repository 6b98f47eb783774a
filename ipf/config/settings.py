"""The settings of a service: one frozen value, one environment variable per field.

Each field declares its variable, parser, default and meaning.  A test compares `etc/ipf.env` with this list.

Sources: interface specification "Limits", "Authentication", "Events"; decisions section 2.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from ipf.config.parsers import (
    Listener,
    boolean,
    channel_security,
    charset,
    decimal,
    endpoint_patterns,
    http_url,
    integer,
    listeners,
    message_types,
    named,
    networks,
    one_of,
    only,
    optional,
    origins,
    pairs,
    secret,
    smtp_url,
    text,
    time_zone,
    words,
)

__all__ = ["Listener", "Settings", "Variable", "variables"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable: its name, the parser of its text, its meaning, and whether its value is a secret."""

    name: str
    parse: Callable[[str], Any]
    meaning: str
    secret: bool = False


def variable(name: str, parse: Callable[[str], T], default: T, meaning: str, *, secret: bool = False) -> T:
    """Declare one row of :class:`Settings`."""
    declared: T = field(default=default, metadata={"variable": Variable(name, parse, meaning, secret)})
    return declared


def _default_processes() -> int:
    """One converter process where the machine has a second core."""
    return 0 if (os.cpu_count() or 1) < 2 else 1


_NOT_YET = "this version does not offer it yet"


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one service.  Durations are in the unit their name says."""

    db_url: str | None = variable(
        "IPF_DB_URL", optional, None, "PostgreSQL URL of the inbox database; unset: an embedded PostgreSQL", secret=True
    )
    fhir_db_url: str | None = variable(
        "IPF_FHIR_DB_URL", optional, None, "PostgreSQL URL of the FHIR database; unset: embedded", secret=True
    )
    data_dir: str = variable("IPF_DATA_DIR", text, "./var", "where the embedded PostgreSQL and run-time files live")
    http_listen: str = variable("IPF_HTTP_LISTEN", text, "tcp:8090", "endpoint of /fhir, /admin and /actuator")
    mllp_listen: tuple[Listener, ...] = variable(
        "IPF_MLLP_LISTEN",
        listeners,
        (Listener("tcp:2575", "tcp:2575"),),
        "MLLP endpoints, several separated by a space, each may carry a name: lab=tcp:2576",
    )
    mllp_max_frame_bytes: int = variable(
        "IPF_MLLP_MAX_FRAME_BYTES", integer(1024), 16 * 1024 * 1024, "a larger message is refused with AR"
    )
    mllp_frame_timeout_seconds: float = variable(
        "IPF_MLLP_FRAME_TIMEOUT_SECONDS", decimal(0.1), 30.0, "longest silence inside an unfinished message"
    )
    mllp_max_connections: int = variable(
        "IPF_MLLP_MAX_CONNECTIONS", integer(1), 5000, "connections per listener; more are closed at once"
    )
    mllp_tenants: tuple[tuple[str, str], ...] = variable(
        "IPF_MLLP_TENANTS", pairs, (), "tenant of the messages of a listener, listener=tenant; others: default"
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
        "IPF_MLLP_MAX_RATE_PER_PEER", decimal(0.0), 0.0, "messages a second of one address; more wait; 0: no limit"
    )
    mllp_fallback_charset: str = variable(
        "IPF_MLLP_FALLBACK_CHARSET", charset, "cp1252", "used when MSH-18 is empty and the bytes are not UTF-8"
    )
    inbox_writers: int = variable(
        "IPF_INBOX_WRITERS", integer(1, 16), 2, "group commits in flight; 4 where one fsync takes over 1 ms"
    )
    inbox_timeout_seconds: float = variable(
        "IPF_INBOX_TIMEOUT_SECONDS", decimal(0.1), 10.0, "a sender waits so long for a stuck store, then gets AE"
    )
    worker_enabled: bool = variable("IPF_WORKER_ENABLED", boolean, True, "false: receive only")
    worker_poll_ms: int = variable(
        "IPF_WORKER_POLL_MS", integer(10), 1000, "longest sleep of an idle worker; a ring starts it at once"
    )
    worker_batch_size: int = variable("IPF_WORKER_BATCH_SIZE", integer(1, 1000), 50, "rows that one claim may take")
    worker_processes: int = variable(
        "IPF_WORKER_PROCESSES",
        integer(0, 64),
        _default_processes(),
        "converter processes; 0: convert in the main process; default 0 on one core, else 1",
    )
    worker_stale_seconds: float = variable(
        "IPF_WORKER_TRANSFORMING_STALE_SECONDS", decimal(0.5), 60.0, "a row held longer without a sign of life is lost"
    )
    max_attempts: int = variable("IPF_MAX_ATTEMPTS", integer(1), 5, "attempts before DEAD_LETTER")
    backoff_base_ms: int = variable("IPF_BACKOFF_BASE_MS", integer(0), 1000, "delay after the first failure")
    backoff_factor: float = variable("IPF_BACKOFF_FACTOR", decimal(1.0, 100.0), 2.0, "multiplier between failures")
    backoff_max_ms: int = variable("IPF_BACKOFF_MAX_MS", integer(0), 300_000, "cap on any computed delay")
    dlq_log_level: str = variable(
        "IPF_DLQ_LOG_LEVEL", one_of("TRACE", "DEBUG", "INFO", "WARN", "ERROR"), "WARN", "level of the event=dlq line"
    )
    ordering: str = variable(
        "IPF_ORDERING", one_of("patient", "sender", "none"), "patient", "which messages must not overtake each other"
    )
    passthrough_types: tuple[str, ...] = variable(
        "IPF_PASSTHROUGH_TYPES", message_types, ("ADT_A04",), "types that are stored and acknowledged but not mapped"
    )
    require_map_types: tuple[str, ...] = variable(
        "IPF_REQUIRE_MAP_TYPES", message_types, ("ADT_A01",), "types answered AE and not stored while no map is there"
    )
    maps_dir: str | None = variable("IPF_MAPS_DIR", optional, None, "folder of maps used instead of those shipped")
    package_dir: str | None = variable(
        "IPF_PACKAGE_DIR", optional, None, "folder of FHIR packages (.tgz); unset: fhir/packages, when it is there"
    )
    profile_dir: str = variable(
        "IPF_PROFILE_DIR", text, "etc/profiles", "folder of vendor profile archives (.tar.gz, .tgz, .tar)"
    )
    default_zone: str = variable(
        "IPF_DEFAULT_ZONE", time_zone, "UTC", "time zone of v2 times without an offset, e.g. Europe/Vienna"
    )
    admin_token: str | None = variable(
        "IPF_ADMIN_AUTH_TOKEN", optional, None, "bearer token of /admin; unset: open, for development", secret=True
    )
    admin_read_token: str | None = variable(
        "IPF_ADMIN_READ_TOKEN", optional, None, "a second token of /admin that may only read", secret=True
    )
    http_max_body_bytes: int = variable(
        "IPF_HTTP_MAX_BODY_BYTES", integer(1024), 64 * 1024 * 1024, "a larger request is answered 413"
    )
    http_max_header_bytes: int = variable(
        "IPF_HTTP_MAX_HEADER_BYTES", integer(1024), 64 * 1024, "larger request headers are answered 431"
    )
    http_max_connections: int = variable(
        "IPF_HTTP_MAX_CONNECTIONS", integer(1), 10_000, "connections over HTTP, websockets included; more get a 503"
    )
    http_request_seconds: float = variable(
        "IPF_HTTP_REQUEST_TIMEOUT_SECONDS", decimal(0.1), 120.0, "a request must be there whole within so long"
    )
    cors_origins: tuple[str, ...] = variable(
        "IPF_HTTP_CORS_ORIGINS", origins, (), "origins whose web pages may use /fhir; * for all; unset: none"
    )
    referential_integrity: bool = variable(
        "IPF_FHIR_REFERENTIAL_INTEGRITY", boolean, False, "refuse references to nothing, and deletions of what is used"
    )
    export_hours: float = variable(
        "IPF_EXPORT_RETENTION_HOURS", decimal(0.1), 24.0, "how long the files of a bulk export are kept"
    )
    max_bundle_entries: int = variable(
        "IPF_FHIR_MAX_BUNDLE_ENTRIES", integer(1), 10_000, "a transaction or batch with more entries is answered 413"
    )
    retention_days: int = variable(
        "IPF_RETENTION_DAYS", integer(0, 36_500), 0, "delivered messages and delivery records are kept so long; 0: ever"
    )
    dead_letter_days: int = variable(
        "IPF_DEAD_LETTER_RETENTION_DAYS", integer(0, 36_500), 0, "dead letters and rejects are kept so long; 0: ever"
    )
    history_days: int = variable(
        "IPF_HISTORY_RETENTION_DAYS", integer(0, 36_500), 0, "former versions of resources are kept so long; 0: ever"
    )
    otlp_url: str | None = variable(
        "IPF_OTLP_URL", http_url, None, "OpenTelemetry collector that takes spans over HTTP; unset: none are made"
    )
    stop_seconds: float = variable(
        "IPF_STOP_SECONDS", decimal(0.1), 15.0, "how long a stop may wait for what each listener or stage has in hand"
    )
    log_level: str = variable(
        "IPF_LOG_LEVEL", one_of("TRACE", "DEBUG", "INFO", "WARN", "ERROR"), "INFO", "lowest level written"
    )
    log_format: str = variable(
        "IPF_LOG_FORMAT", one_of("auto", "json", "human"), "auto", "auto: human on a terminal, else JSON lines"
    )
    channel_security: str = variable(
        "SUBSCRIPTION_SERVICE_CHANNEL_SECURITY",
        channel_security,
        "strict",
        "strict, relaxed or permissive; an invalid value stays strict",
    )
    endpoint_allow: tuple[str, ...] = variable(
        "SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW", endpoint_patterns, (), "host patterns or networks: when set, only these"
    )
    delivery_max_attempts: int = variable(
        "SUBSCRIPTION_SERVICE_DELIVERY_MAX_ATTEMPTS", integer(1), 8, "attempts before status error"
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
    delivery_timeout_ms: int = variable(
        "SUBSCRIPTION_SERVICE_DELIVERY_TIMEOUT_MS", integer(10), 10_000, "longest wait for a subscriber's answer"
    )
    base_url: str = variable(
        "IPF_BASE_URL",
        http_url,
        "http://localhost:8090/fhir",
        "FHIR base that notifications name, as subscribers reach it",
    )
    smtp_url: str | None = variable(
        "IPF_SMTP_URL",
        smtp_url,
        None,
        "mail server of email subscriptions, smtp://host or smtps://user:password@host?from=address; unset: never sent",
        secret=True,
    )
    roles: str = variable("IPF_ROLES", only("engine,mapping,fhir", _NOT_YET), "engine,mapping,fhir", "parts to run")
    mapping_url: str | None = variable(
        "IPF_MAPPING_URL", http_url, None, "FHIR base of a mapping service elsewhere; unset: in this process"
    )
    mapping_source: str | None = variable(
        "IPF_MAPPING_SOURCE", optional, None, "canonical of the map there, with {message_type}; unset: as known here"
    )
    mapping_timeout_ms: int = variable(
        "IPF_MAPPING_TIMEOUT_MS", integer(10), 30_000, "longest wait for the mapping service's answer"
    )
    fhir_token_url: str | None = variable(
        "IPF_FHIR_TOKEN_URL", http_url, None, "token endpoint for services elsewhere; unset: no token is sent"
    )
    fhir_client_id: str | None = variable("IPF_FHIR_CLIENT_ID", optional, None, "client id there")
    fhir_client_secret: str | None = variable("IPF_FHIR_CLIENT_SECRET", optional, None, "its secret", secret=True)
    fhir_scope: str | None = variable("IPF_FHIR_SCOPE", optional, None, "scopes to ask for, separated by blanks")
    fhir_url: str | None = variable(
        "IPF_FHIR_URL", http_url, None, "FHIR base of a server elsewhere that keeps conversions; unset: in this process"
    )
    fhir_timeout_ms: int = variable(
        "IPF_FHIR_TIMEOUT_MS", integer(10), 30_000, "longest wait for the answer of that FHIR server"
    )
    auth_enabled: bool = variable(
        "SUBSCRIPTION_SERVICE_AUTH_ENABLED", boolean, False, "bearer tokens on /fhir and /mapping; needs an issuer"
    )
    auth_issuer: str | None = variable(
        "SUBSCRIPTION_SERVICE_AUTH_ISSUER", http_url, None, "the identity provider, exactly as its tokens name it"
    )
    auth_jwks_url: str | None = variable(
        "SUBSCRIPTION_SERVICE_AUTH_JWKS_URL", http_url, None, "its key set; unset: as its discovery document says"
    )
    auth_audience: str | None = variable(
        "SUBSCRIPTION_SERVICE_AUTH_AUDIENCE", optional, None, "when set, aud of a token must hold it"
    )
    auth_patient_claim: str = variable(
        "IPF_AUTH_PATIENT_CLAIM", text, "patient", "claim with the patient in context of patient/ scopes"
    )
    auth_skew_seconds: float = variable(
        "IPF_AUTH_SKEW_SECONDS", decimal(0.0), 30.0, "how far the clock of the identity provider may differ"
    )
    tenant_claim: str = variable(
        "SUBSCRIPTION_SERVICE_MULTITENANCY_TENANT_CLAIM", text, "tenant", "claim that names the tenant of a token"
    )
    multitenancy: str = variable(
        "SUBSCRIPTION_SERVICE_MULTITENANCY",
        one_of("disabled", "enabled"),
        "disabled",
        "enabled: the tenant claim of a token chooses its partition; needs bearer tokens",
    )
    row_security: bool = variable(
        "SUBSCRIPTION_SERVICE_MULTITENANCY_ROW_SECURITY",
        boolean,
        True,
        "with tenants, PostgreSQL holds them apart as well; false: where its role can be made by nobody",
    )
    tenants: tuple[str, ...] = variable("IPF_TENANTS", words, (), "tenants that are served; unset: any a token names")
    secret_key: str | None = variable(
        "IPF_SECRET_KEY", secret, None, "key that secrets in channel.header are encrypted with at rest", secret=True
    )
    signing_secret: str | None = variable(
        "SUBSCRIPTION_SERVICE_SIGNING_SECRET", secret, None, "notifications carry an HMAC made with it", secret=True
    )
    audit_enabled: bool = variable(
        "SUBSCRIPTION_SERVICE_AUDIT_ENABLED", boolean, True, "keep an audit trail: writes and failures"
    )
    audit_reads: bool = variable(
        "SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_READS", boolean, False, "also reads and history that succeed"
    )
    audit_searches: bool = variable(
        "SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_SEARCH", boolean, False, "also searches that succeed"
    )
    audit_days: int = variable(
        "SUBSCRIPTION_SERVICE_AUDIT_RETENTION_DAYS", integer(1, 36_500), 365, "how long audit records are to be kept"
    )
    audit_purge: bool = variable(
        "IPF_AUDIT_PURGE", boolean, False, "remove audit records older than that; false: the days are for information"
    )
    audit_queue: int = variable(
        "IPF_AUDIT_QUEUE",
        integer(100),
        50_000,
        "audit records that may wait for the store; more are dropped",
    )
    validation_mode: str = variable(
        "SUBSCRIPTION_SERVICE_VALIDATION_MODE",
        one_of("off", "warn", "enforce"),
        "off",
        "validation of FHIR writes: warn says what it finds, enforce answers 422",
    )


def variables() -> dict[str, Variable]:
    """Every variable by name."""
    rows: list[Variable] = [one.metadata["variable"] for one in fields(Settings)]
    return {row.name: row for row in rows}
