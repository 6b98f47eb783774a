"""Each refused value of a setting is answered with the name, the rule and the value; secrets without the value."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.config import environment
from ipf.config.environment import InvalidSetting
from ipf.config.settings import variables

RULES: list[tuple[str, str, tuple[str, ...]]] = [
    (
        "maybe",
        "expected true or false",
        (
            "IPF_POLLING_ENABLED",
            "IPF_WORKER_ENABLED",
            "IPF_PERMANENT_ERRORS_HOLD",
            "IPF_UNREAD_FIELDS",
            "IPF_HTTP_COMPRESSION",
            "IPF_GENERIC_MAP",
            "IPF_FHIR_EXPUNGE",
            "IPF_FHIR_FULL_TEXT",
            "IPF_FHIR_REFERENTIAL_INTEGRITY",
            "SUBSCRIPTION_SERVICE_AUTH_ENABLED",
            "SUBSCRIPTION_SERVICE_CRITERIA_NEED_SEARCH",
            "SUBSCRIPTION_SERVICE_SUBSCRIBERS_READ",
            "SUBSCRIPTION_SERVICE_MULTITENANCY_ROW_SECURITY",
            "SUBSCRIPTION_SERVICE_AUDIT_ENABLED",
            "SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_READS",
            "SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_SEARCH",
            "SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_DELIVERIES",
            "IPF_AUDIT_PURGE",
            "IPF_ACCESS_CONSENT",
        ),
    ),
    (
        "maybe",
        "expected a URL such as https://host:port/path, with http or https and without ? and #",
        (
            "IPF_OTLP_URL",
            "IPF_BASE_URL",
            "IPF_MAPPING_URL",
            "IPF_FHIR_TOKEN_URL",
            "IPF_FHIR_URL",
            "SUBSCRIPTION_SERVICE_AUTH_ISSUER",
            "SUBSCRIPTION_SERVICE_AUTH_JWKS_URL",
        ),
    ),
    (
        "maybe",
        "expected a whole number from 1 to 2147483647",
        (
            "IPF_MLLP_MAX_CONNECTIONS",
            "IPF_MAX_ATTEMPTS",
            "IPF_HTTP_MAX_CONNECTIONS",
            "IPF_FHIR_MAX_BUNDLE_ENTRIES",
            "SUBSCRIPTION_SERVICE_DELIVERY_MAX_ATTEMPTS",
        ),
    ),
    (
        "maybe",
        "expected a number from 0.1 to 2147483647 seconds",
        (
            "IPF_FILE_POLL_SECONDS",
            "IPF_MLLP_FRAME_TIMEOUT_SECONDS",
            "IPF_INBOX_TIMEOUT_SECONDS",
            "IPF_HTTP_REQUEST_TIMEOUT_SECONDS",
            "IPF_STOP_SECONDS",
        ),
    ),
    (
        "maybe",
        "expected a whole number from 10 to 2147483647 milliseconds",
        (
            "IPF_WORKER_POLL_MS",
            "SUBSCRIPTION_SERVICE_DELIVERY_TIMEOUT_MS",
            "IPF_MAPPING_TIMEOUT_MS",
            "IPF_FHIR_TIMEOUT_MS",
        ),
    ),
    ("maybe", "expected a whole number from 1000 to 2147483647 milliseconds", ("IPF_FHIR_READ_MAX_STALENESS_MS",)),
    (
        "maybe",
        "expected a whole number from 0 to 2147483647 milliseconds",
        (
            "IPF_BACKOFF_BASE_MS",
            "IPF_BACKOFF_MAX_MS",
            "SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_BASE_MS",
            "SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_MAX_MS",
        ),
    ),
    (
        "maybe",
        "expected a whole number from 1024 to 2147483647 bytes",
        (
            "IPF_MLLP_MAX_FRAME_BYTES",
            "IPF_HTTP_MAX_BODY_BYTES",
            "IPF_HTTP_MAX_HEADER_BYTES",
        ),
    ),
    (
        "maybe",
        "expected a whole number from 0 to 36500 days",
        (
            "IPF_RETENTION_DAYS",
            "IPF_DEAD_LETTER_RETENTION_DAYS",
            "IPF_HISTORY_RETENTION_DAYS",
        ),
    ),
    (
        "maybe",
        "expected postgresql://user:password@host:5432/database",
        (
            "IPF_DB_URL",
            "IPF_FHIR_DB_URL",
            "IPF_FHIR_READ_DB_URL",
        ),
    ),
    (
        "maybe",
        "expected a number from 1 to 100",
        (
            "IPF_BACKOFF_FACTOR",
            "SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_FACTOR",
        ),
    ),
    (
        "maybe",
        "expected one of TRACE, DEBUG, INFO, WARN, ERROR",
        (
            "IPF_DLQ_LOG_LEVEL",
            "IPF_LOG_LEVEL",
        ),
    ),
    (
        "maybe",
        "expected message types such as ADT_A04, several separated by spaces",
        (
            "IPF_PASSTHROUGH_TYPES",
            "IPF_REQUIRE_MAP_TYPES",
            "IPF_WITHOUT_PATIENT_TYPES",
        ),
    ),
    (
        "maybe",
        "expected at least 16 characters",
        (
            "IPF_SECRET_KEY",
            "SUBSCRIPTION_SERVICE_SIGNING_SECRET",
        ),
    ),
    ("a=1 a=2", "two listeners have the same name", ("IPF_MLLP_LISTEN",)),
    ("maybe", "expected name=value, several separated by spaces", ("IPF_MLLP_TENANTS", "IPF_FILE_SOURCES")),
    ("maybe", "expected networks such as 10.1.0.0/16, not maybe", ("IPF_MLLP_ALLOW",)),
    (
        "LAB=15",
        "expected sender=time such as LAB=15m, with s, m, h or d, several separated by commas",
        ("IPF_EXPECTED_INTERVALS",),
    ),
    ("maybe", "expected a whole number from 0 to 2147483647", ("IPF_MLLP_MAX_CONNECTIONS_PER_PEER",)),
    ("maybe", "expected a number from 0 to 2147483647", ("IPF_MLLP_MAX_RATE_PER_PEER",)),
    ("maybe", "expected a character set such as utf-8, iso8859-1 or cp1252", ("IPF_MLLP_FALLBACK_CHARSET",)),
    ("maybe", "expected a whole number from 1 to 16", ("IPF_INBOX_WRITERS",)),
    ("maybe", "expected a whole number from 1 to 1000", ("IPF_WORKER_BATCH_SIZE",)),
    ("maybe", "expected a whole number from 0 to 64", ("IPF_WORKER_PROCESSES",)),
    ("maybe", "expected a whole number from 0 to 19", ("IPF_CONVERTER_NICE",)),
    ("maybe", "expected a number from 0.5 to 2147483647 seconds", ("IPF_WORKER_TRANSFORMING_STALE_SECONDS",)),
    ("maybe", "expected one of retry, dead_letter", ("IPF_PERMANENT_ERRORS",)),
    ("maybe", "expected one of patient, sender, none", ("IPF_ORDERING",)),
    ("maybe", "expected a time zone such as Europe/Vienna", ("IPF_DEFAULT_ZONE",)),
    ("a:1 b", "expected host names such as ehr.example.org, without a port", ("IPF_HOSTS",)),
    ("maybe", "expected origins such as https://app.example.org, without a path", ("IPF_HTTP_CORS_ORIGINS",)),
    ("maybe", "expected one of lenient, strict", ("IPF_FHIR_SEARCH_HANDLING",)),
    ("maybe", "expected one of single, multiple", ("IPF_FHIR_CONDITIONAL_DELETE",)),
    ("maybe", "expected a number from 0.1 to 2147483647 hours", ("IPF_EXPORT_RETENTION_HOURS",)),
    ("maybe", "expected one of auto, json, human", ("IPF_LOG_FORMAT",)),
    (
        "ftp://x y",
        "expected host patterns or networks such as 10.1.0.0/16, not ftp://x",
        ("SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW", "SUBSCRIPTION_SERVICE_ENDPOINT_DENY", "IPF_IMPORT_ALLOW"),
    ),
    ("maybe", "expected a whole number from 1 to 32", ("SUBSCRIPTION_SERVICE_DELIVERY_IN_FLIGHT",)),
    (
        "maybe",
        "expected URLs such as kafka+tls://user:password@host:9093/fhir.* or nats+tls://host:4222, without spaces",
        ("IPF_BROKERS",),
    ),
    ("maybe", "expected smtp://host or smtps://user:password@host?from=address", ("IPF_SMTP_URL",)),
    (
        "maybe",
        "expected one or more of all, engine, receive, convert, deliver, poll, admin, fhir, mapping, console, "
        "not maybe",
        ("IPF_ROLES",),
    ),
    ("maybe", "expected a number from 0 to 2147483647 seconds", ("IPF_AUTH_SKEW_SECONDS",)),
    ("maybe", "expected labels such as R or https://hospital.example/labels|VIP", ("IPF_ACCESS_LABELS",)),
    (
        "maybe",
        "expected patients such as Patient/1 or tenant:Patient/1, several separated by spaces",
        ("IPF_LEGAL_HOLDS",),
    ),
    ("maybe", "expected one of disabled, enabled", ("SUBSCRIPTION_SERVICE_MULTITENANCY",)),
    ("maybe", "expected a whole number from 1 to 36500 days", ("SUBSCRIPTION_SERVICE_AUDIT_RETENTION_DAYS",)),
    ("maybe", "expected a whole number from 100 to 2147483647", ("IPF_AUDIT_QUEUE",)),
    ("maybe", "expected tls://host or tls://host:port", ("IPF_AUDIT_SYSLOG",)),
    ("maybe", "expected fhir, admin, or both separated by a comma", ("IPF_AUDIT_SYSLOG_SURFACES",)),
    ("maybe", "expected one of off, warn, enforce", ("SUBSCRIPTION_SERVICE_VALIDATION_MODE",)),
    ("maybe", "expected one of off, warn, refuse", ("IPF_CONVERSION_VALIDATION",)),
]
"""A wrong value, its rule, and the settings that have the rule."""
FREE = {
    "IPF_FHIR_LISTEN",
    "IPF_DEIDENT_PROFILE",
    "IPF_DATA_DIR",
    "IPF_HTTP_LISTEN",
    "IPF_HL7_HTTP_LISTEN",
    "IPF_HL7_HTTP_TOKEN",
    "IPF_MLLP_CLIENT_NAMES",
    "IPF_MAPS_DIR",
    "IPF_FORWARD_FILE",
    "IPF_IDENTITY_FILE",
    "IPF_PACKAGE_DIR",
    "IPF_PROFILE_DIR",
    "IPF_AUDIT_KEY",
    "IPF_AUDIT_SYSLOG_CA",
    "IPF_AUDIT_SYSLOG_CERTIFICATE",
    "IPF_AUDIT_SYSLOG_KEY",
    "IPF_ADMIN_AUTH_TOKEN",
    "IPF_ADMIN_READ_TOKEN",
    "IPF_METRICS_LISTEN",
    "IPF_METRICS_TOKEN",
    "SUBSCRIPTION_SERVICE_CHANNEL_SECURITY",
    "IPF_MAPPING_SOURCE",
    "IPF_FHIR_CLIENT_ID",
    "IPF_FHIR_CLIENT_SECRET",
    "IPF_FHIR_SCOPE",
    "SUBSCRIPTION_SERVICE_AUTH_AUDIENCE",
    "IPF_AUTH_PATIENT_CLAIM",
    "SUBSCRIPTION_SERVICE_MULTITENANCY_TENANT_CLAIM",
    "IPF_TENANTS",
    "IPF_ACCESS_TRUSTED_CLIENTS",
}
"""Settings that take any text: names, paths and tokens.  Endpoints and folders are checked at the start."""


class RuleTests(TestCase):
    def test_every_setting_has_a_rule_or_takes_any_text(self) -> None:
        ruled = [name for _, _, names in RULES for name in names]
        self.assertEqual(len(ruled), len(set(ruled)))
        self.assertEqual((set(ruled) | FREE, set(ruled) & FREE), (set(variables()), set()))

    def test_a_wrong_value_is_answered_with_the_rule(self) -> None:
        for value, rule, names in RULES:
            for name in names:
                with self.assertRaises(InvalidSetting) as caught:
                    environment.read({name: value})
                shown = "(the value is not shown)" if variables()[name].secret else f"(it is {value!r})"
                self.assertEqual(str(caught.exception), f"{name}: {rule} {shown}")

    def test_a_long_value_is_cut(self) -> None:
        with self.assertRaises(InvalidSetting) as caught:
            environment.read({"IPF_MAX_ATTEMPTS": 5000 * "9"})
        self.assertLess(len(str(caught.exception)), 400)

    def test_a_rule_with_the_secret_in_it_is_not_shown(self) -> None:
        row = variables()["IPF_SECRET_KEY"]
        with self.assertRaises(InvalidSetting) as caught:
            environment._parse(row, "16")
        self.assertEqual(str(caught.exception), "IPF_SECRET_KEY: the value is invalid (the value is not shown)")

    def test_any_text_is_taken(self) -> None:
        for name in FREE:
            variables()[name].parse("maybe")

    def test_connection_strings(self) -> None:
        for url in (
            "postgresql:///ipf",
            "postgres://ipf:s%20x@db1,db2:5433/ipf?target_session_attrs=read-write",
            "host=/run/postgresql port=5432 user=ipf dbname=ipf",
            "host = 'a b' dbname=ipf",
        ):
            self.assertEqual(variables()["IPF_DB_URL"].parse(url), url)
        for wrong in ("db.example/ipf", "http://db/ipf", "postgresql://db/a b", "ipf"):
            self.assertRaises(ValueError, variables()["IPF_DB_URL"].parse, wrong)
