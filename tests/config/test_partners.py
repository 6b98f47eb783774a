"""Settings that have no effect without another one: each setting is on one of two lists."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.config.environment import InvalidSetting, read
from ipf.config.settings import variables

ISSUER = {"SUBSCRIPTION_SERVICE_AUTH_ISSUER": "https://idp.example.org"}
SANDBOX = ISSUER | {"SUBSCRIPTION_SERVICE_AUTH_ENABLED": "false"}
TENANTS = ISSUER | {"SUBSCRIPTION_SERVICE_MULTITENANCY": "enabled"}
CERTIFICATES = {"IPF_MLLP_LISTEN": "lab=mtls:6661:privateKey=k:certKey=c:clientCa=a"}
SYSLOG = {"IPF_AUDIT_SYSLOG": "tls://siem.example.org"}
REMOTE = {"IPF_FHIR_URL": "https://hapi.example.org/fhir"}
OAUTH = REMOTE | {
    "IPF_FHIR_TOKEN_URL": "https://idp.example.org/token",
    "IPF_FHIR_CLIENT_ID": "ipf",
    "IPF_FHIR_CLIENT_SECRET": "s3cret",
}

PAIRS: list[tuple[str, str, dict[str, str], str]] = [
    ("SUBSCRIPTION_SERVICE_AUTH_ENABLED", "true", ISSUER, "SUBSCRIPTION_SERVICE_AUTH_ISSUER"),
    ("SUBSCRIPTION_SERVICE_AUTH_JWKS_URL", "https://idp.example.org/keys", ISSUER, "SUBSCRIPTION_SERVICE_AUTH_ISSUER"),
    ("SUBSCRIPTION_SERVICE_AUTH_AUDIENCE", "ipf", ISSUER, "SUBSCRIPTION_SERVICE_AUTH_ISSUER"),
    ("IPF_AUTH_PATIENT_CLAIM", "launch/patient", ISSUER, "SUBSCRIPTION_SERVICE_AUTH_ISSUER"),
    ("IPF_AUTH_SKEW_SECONDS", "5", ISSUER, "SUBSCRIPTION_SERVICE_AUTH_ISSUER"),
    ("SUBSCRIPTION_SERVICE_CRITERIA_NEED_SEARCH", "true", ISSUER, "SUBSCRIPTION_SERVICE_AUTH_ISSUER"),
    ("SUBSCRIPTION_SERVICE_MULTITENANCY", "enabled", ISSUER, "SUBSCRIPTION_SERVICE_AUTH_ISSUER"),
    ("IPF_ACCESS_LABELS", "R", ISSUER, "SUBSCRIPTION_SERVICE_AUTH_ISSUER"),
    ("IPF_ACCESS_CONSENT", "true", ISSUER, "SUBSCRIPTION_SERVICE_AUTH_ISSUER"),
    ("IPF_ACCESS_TRUSTED_CLIENTS", "feed", ISSUER | {"IPF_ACCESS_LABELS": "R"}, "IPF_ACCESS_LABELS or"),
    ("IPF_TENANTS", "north", TENANTS, "SUBSCRIPTION_SERVICE_MULTITENANCY=enabled"),
    ("SUBSCRIPTION_SERVICE_MULTITENANCY_TENANT_CLAIM", "org", TENANTS, "SUBSCRIPTION_SERVICE_MULTITENANCY=enabled"),
    ("IPF_MLLP_TENANTS", "tcp:2575=north", TENANTS, "SUBSCRIPTION_SERVICE_MULTITENANCY=enabled"),
    ("IPF_LEGAL_HOLDS", "north:Patient/1", TENANTS, "SUBSCRIPTION_SERVICE_MULTITENANCY=enabled"),
    ("IPF_MLLP_CLIENT_NAMES", "lab.example.org", CERTIFICATES, "mtls"),
    ("IPF_MLLP_CLIENT_NAMES", "lab.example.org=north", TENANTS | CERTIFICATES, "mtls"),
    ("IPF_HL7_HTTP_TOKEN", "t", {"IPF_HL7_HTTP_LISTEN": "tcp:8080"}, "IPF_HL7_HTTP_LISTEN"),
    ("IPF_MAPPING_SOURCE", "https://maps/{message_type}", {"IPF_MAPPING_URL": "http://m/fhir"}, "IPF_MAPPING_URL"),
    ("IPF_FHIR_TOKEN_URL", "https://idp.example.org/token", OAUTH, "IPF_FHIR_CLIENT_ID"),
    ("IPF_FHIR_CLIENT_ID", "ipf", OAUTH, "IPF_FHIR_TOKEN_URL"),
    ("IPF_FHIR_CLIENT_SECRET", "s3cret", OAUTH, "IPF_FHIR_TOKEN_URL"),
    ("IPF_FHIR_SCOPE", "system/*.cruds", OAUTH, "IPF_FHIR_TOKEN_URL"),
    ("IPF_AUDIT_SYSLOG_CA", "ca.pem", SYSLOG, "IPF_AUDIT_SYSLOG"),
    ("IPF_AUDIT_SYSLOG_CERTIFICATE", "c.pem", SYSLOG | {"IPF_AUDIT_SYSLOG_KEY": "k.pem"}, "IPF_AUDIT_SYSLOG"),
    ("IPF_AUDIT_SYSLOG_KEY", "k.pem", SYSLOG | {"IPF_AUDIT_SYSLOG_CERTIFICATE": "c.pem"}, "IPF_AUDIT_SYSLOG"),
    ("IPF_AUDIT_SYSLOG_SURFACES", "fhir", SYSLOG, "IPF_AUDIT_SYSLOG"),
    ("IPF_ADMIN_READ_TOKEN", "r", {"IPF_ADMIN_AUTH_TOKEN": "w"}, "IPF_ADMIN_AUTH_TOKEN"),
    ("IPF_DB_URL", "postgresql:///ipf", {"IPF_FHIR_DB_URL": "postgresql:///fhir"}, "IPF_FHIR_DB_URL"),
    ("IPF_FHIR_DB_URL", "postgresql:///fhir", {"IPF_DB_URL": "postgresql:///ipf"}, "IPF_DB_URL"),
    ("IPF_FHIR_READ_DB_URL", "postgresql://s/fhir", {"IPF_DB_URL": "postgresql://p/ipf",
      "IPF_FHIR_DB_URL": "postgresql://p/fhir"}, "IPF_FHIR_DB_URL"),
]  # fmt: skip
"""A setting with a value, the settings that it needs, and the name in the refusal without them."""
_ALONE = """
IPF_ADMIN_AUTH_TOKEN IPF_AUDIT_KEY IPF_AUDIT_PURGE IPF_AUDIT_QUEUE IPF_AUDIT_SYSLOG IPF_BACKOFF_BASE_MS
IPF_BACKOFF_FACTOR IPF_BACKOFF_MAX_MS IPF_BASE_URL IPF_BROKERS IPF_CONVERSION_VALIDATION IPF_CONVERTER_NICE
IPF_DATA_DIR IPF_DEAD_LETTER_RETENTION_DAYS IPF_DEFAULT_ZONE IPF_DEIDENT_PROFILE IPF_DLQ_LOG_LEVEL
IPF_EXPECTED_INTERVALS IPF_EXPORT_RETENTION_HOURS IPF_FHIR_CONDITIONAL_DELETE IPF_FHIR_EXPUNGE
IPF_FHIR_FULL_TEXT IPF_FHIR_LISTEN IPF_FHIR_MAX_BUNDLE_ENTRIES IPF_FHIR_READ_MAX_STALENESS_MS
IPF_FHIR_REFERENTIAL_INTEGRITY IPF_FHIR_SEARCH_HANDLING IPF_FHIR_TIMEOUT_MS IPF_FHIR_URL IPF_FILE_POLL_SECONDS
IPF_FILE_SOURCES IPF_FORWARD_FILE IPF_GENERIC_MAP IPF_HISTORY_RETENTION_DAYS IPF_HL7_HTTP_LISTEN IPF_HOSTS
IPF_HTTP_COMPRESSION IPF_HTTP_CORS_ORIGINS IPF_HTTP_LISTEN IPF_HTTP_MAX_BODY_BYTES IPF_HTTP_MAX_CONNECTIONS
IPF_HTTP_MAX_HEADER_BYTES IPF_HTTP_REQUEST_TIMEOUT_SECONDS IPF_IDENTITY_FILE IPF_IMPORT_ALLOW
IPF_INBOX_TIMEOUT_SECONDS IPF_INBOX_WRITERS IPF_LOG_FORMAT IPF_LOG_LEVEL IPF_MAPPING_TIMEOUT_MS IPF_MAPPING_URL
IPF_MAPS_DIR IPF_MAX_ATTEMPTS IPF_METRICS_LISTEN IPF_METRICS_TOKEN IPF_MLLP_ALLOW IPF_MLLP_FALLBACK_CHARSET
IPF_MLLP_FRAME_TIMEOUT_SECONDS IPF_MLLP_LISTEN IPF_MLLP_MAX_CONNECTIONS IPF_MLLP_MAX_CONNECTIONS_PER_PEER
IPF_MLLP_MAX_FRAME_BYTES IPF_MLLP_MAX_RATE_PER_PEER IPF_ORDERING IPF_OTLP_URL IPF_PACKAGE_DIR
IPF_PASSTHROUGH_TYPES IPF_PERMANENT_ERRORS IPF_PERMANENT_ERRORS_HOLD IPF_POLLING_ENABLED
IPF_PROFILE_DIR IPF_REQUIRE_MAP_TYPES IPF_RETENTION_DAYS IPF_ROLES IPF_SECRET_KEY IPF_SMTP_URL IPF_STOP_SECONDS
IPF_UNREAD_FIELDS IPF_WITHOUT_PATIENT_TYPES IPF_WORKER_BATCH_SIZE IPF_WORKER_ENABLED IPF_WORKER_POLL_MS
IPF_WORKER_PROCESSES IPF_WORKER_TRANSFORMING_STALE_SECONDS SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_DELIVERIES
SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_READS SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_SEARCH
SUBSCRIPTION_SERVICE_AUDIT_ENABLED SUBSCRIPTION_SERVICE_AUDIT_RETENTION_DAYS SUBSCRIPTION_SERVICE_AUTH_ISSUER
SUBSCRIPTION_SERVICE_CHANNEL_SECURITY SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_BASE_MS
SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_FACTOR SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_MAX_MS
SUBSCRIPTION_SERVICE_DELIVERY_IN_FLIGHT SUBSCRIPTION_SERVICE_DELIVERY_MAX_ATTEMPTS
SUBSCRIPTION_SERVICE_DELIVERY_TIMEOUT_MS SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW SUBSCRIPTION_SERVICE_ENDPOINT_DENY
SUBSCRIPTION_SERVICE_MULTITENANCY_ROW_SECURITY SUBSCRIPTION_SERVICE_SIGNING_SECRET
SUBSCRIPTION_SERVICE_SUBSCRIBERS_READ
SUBSCRIPTION_SERVICE_VALIDATION_MODE
"""
ALONE = frozenset(_ALONE.split())
"""Settings that work without another one; also limits and intervals of parts that may not be used."""


class PartnerTests(TestCase):
    def test_every_setting_is_on_one_list(self) -> None:
        paired = {name for name, *_ in PAIRS}
        self.assertEqual((paired | ALONE, paired & ALONE), (set(variables()), set()))

    def test_a_setting_without_its_partner_is_refused(self) -> None:
        for name, value, partner, named in PAIRS:
            read({**partner, name: value})
            with self.assertRaises(InvalidSetting) as caught:
                read({name: value})
            self.assertIn(named.partition(" ")[0], str(caught.exception))

    def test_processes_that_do_not_use_a_setting_may_have_it(self) -> None:
        """The environment is that of all processes of a deployment."""
        urls = {"IPF_DB_URL": "postgresql:///ipf", "IPF_FHIR_DB_URL": "postgresql:///fhir"}
        for roles, name, value in (
            ("convert", "IPF_HL7_HTTP_TOKEN", "t"),
            ("convert", "IPF_MLLP_CLIENT_NAMES", "lab.example.org"),
            ("receive", "IPF_MLLP_TENANTS", "tcp:2575=north"),
        ):
            read({**urls, "IPF_ROLES": roles, name: value})

    def test_the_default_tenant_needs_no_tenants(self) -> None:
        read({"IPF_MLLP_TENANTS": "tcp:2575=default", "IPF_LEGAL_HOLDS": "Patient/1 default:Patient/2"})

    def test_the_master_switch_of_the_audit_trail(self) -> None:
        """Source: interface specification "FHIR AuditEvent resources": a master switch."""
        off = {"SUBSCRIPTION_SERVICE_AUDIT_ENABLED": "false"}
        for name in ("READS", "SEARCH", "DELIVERIES"):
            on = {f"SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_{name}": "true"}
            self.assertEqual(read(on)[1], [])
            (warning,) = read(on | off)[1]
            self.assertIn("SUBSCRIPTION_SERVICE_AUDIT_ENABLED is false", warning)

    def test_a_list_of_endpoints_that_limits_nothing(self) -> None:
        """It was the list of all that is allowed, before it became additive."""
        allow, deny = {"SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW": "sink"}, {"SUBSCRIPTION_SERVICE_ENDPOINT_DENY": "*"}
        for environ in (deny, allow | deny, allow | TENANTS):
            self.assertEqual(read(environ)[1], [])
        (warning,) = read(allow)[1]
        self.assertIn("SUBSCRIPTION_SERVICE_ENDPOINT_DENY", warning)


class IssuerTests(TestCase):
    def test_an_issuer_switches_authentication_on(self) -> None:
        on, off = {"SUBSCRIPTION_SERVICE_AUTH_ENABLED": "true"}, {"SUBSCRIPTION_SERVICE_AUTH_ENABLED": "false"}
        blank = {"SUBSCRIPTION_SERVICE_AUTH_ENABLED": " "}
        for environ, is_enabled, is_sandbox in (
            ({}, False, False), (ISSUER, True, False), (ISSUER | on, True, False), (ISSUER | off, False, True),
            (off, False, False), (ISSUER | blank, True, False),
        ):  # fmt: skip
            found, warnings = read(environ)
            self.assertEqual((found.auth_enabled, found.is_auth_sandbox), (is_enabled, is_sandbox), environ)
            self.assertEqual(warnings, [])

    def test_what_needs_tokens_is_refused_in_the_sandbox(self) -> None:
        for name, value in (
            ("SUBSCRIPTION_SERVICE_MULTITENANCY", "enabled"), ("IPF_ACCESS_LABELS", "R"),
            ("IPF_ACCESS_CONSENT", "true"),
        ):  # fmt: skip
            with self.assertRaisesRegex(InvalidSetting, f"^{name}: .*SUBSCRIPTION_SERVICE_AUTH_ENABLED=false"):
                read(SANDBOX | {name: value})
