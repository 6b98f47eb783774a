"""Settings: each variable read, refused with its name, documented with its default."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.config import environment, settings
from ipf.config.environment import InvalidSetting
from ipf.config.parsers import integer
from ipf.config.roles import ALL, CONSOLE, CONVERT, ENGINE, FHIR, POLL, RECEIVE, ROLES
from ipf.config.settings import Listener, Settings

ROOT = Path(__file__).resolve().parents[2]

ACCEPTED = [
    ("IPF_MAX_ATTEMPTS", "7", "max_attempts", 7),
    ("IPF_BACKOFF_FACTOR", "1.5", "backoff_factor", 1.5),
    ("IPF_DLQ_LOG_LEVEL", "error", "dlq_log_level", "ERROR"),
    ("IPF_WORKER_ENABLED", "off", "worker_enabled", False),
    ("IPF_ROLES", "engine,mapping,fhir", "roles", ALL),
    ("IPF_ROLES", "ALL console", "roles", ROLES),
    ("IPF_ROLES", "fhir engine", "roles", (*ENGINE, FHIR)),
    ("IPF_ROLES", "console", "roles", (CONSOLE,)),
    ("IPF_PASSTHROUGH_TYPES", "", "passthrough_types", ()),
    ("IPF_PASSTHROUGH_TYPES", "ADT_A04, ADT_A08", "passthrough_types", ("ADT_A04", "ADT_A08")),
    ("IPF_ADMIN_AUTH_TOKEN", "", "admin_token", None),
    ("IPF_BACKOFF_BASE_MS", " ", "backoff_base_ms", 1000),
    (
        "IPF_MLLP_LISTEN",
        "tcp:2575 lab=tcp:2576:interface=127.0.0.1",
        "mllp_listen",
        (Listener("tcp:2575", "tcp:2575"), Listener("lab", "tcp:2576:interface=127.0.0.1")),
    ),
    ("IPF_MLLP_LISTEN", "tcp:2575:interface=::1", "mllp_listen", (Listener(*["tcp:2575:interface=::1"] * 2),)),
    ("SUBSCRIPTION_SERVICE_CHANNEL_SECURITY", "open", "channel_security", "strict"),
    ("SUBSCRIPTION_SERVICE_CHANNEL_SECURITY", "PERMISSIVE", "channel_security", "permissive"),
    ("SUBSCRIPTION_SERVICE_AUTH_ENABLED", "false", "auth_enabled", False),
    ("SUBSCRIPTION_SERVICE_AUTH_ISSUER", "https://idp.example", "auth_enabled", True),
    ("IPF_MLLP_ALLOW", "10.1.2.3/16, tcp:2575=::1", "mllp_allow", (("", "10.1.0.0/16"), ("tcp:2575", "::1/128"))),
    (
        "IPF_EXPECTED_INTERVALS",
        "LAB=15m, EPIC ADT = 2h,*=1d",
        "expected_intervals",
        (("LAB", 900), ("EPIC ADT", 7200), ("*", 86_400)),
    ),
    ("IPF_MLLP_TENANTS", "tcp:2575=default", "mllp_tenants", (("tcp:2575", "default"),)),
]

REFUSED = [
    ("IPF_MAX_ATTEMPTS", "0"),
    ("IPF_MAX_ATTEMPTS", "many"),
    ("IPF_BACKOFF_FACTOR", "0.5"),
    ("IPF_BACKOFF_FACTOR", "inf"),
    ("IPF_DLQ_LOG_LEVEL", "LOUD"),
    ("IPF_ORDERING", "hospital"),
    ("IPF_WORKER_ENABLED", "maybe"),
    ("IPF_ROLES", "receive,engines"),
    ("IPF_ROLES", ","),
    ("IPF_DEFAULT_ZONE", "Europe/Wien"),
    ("IPF_DEFAULT_ZONE", "../etc/passwd"),
    ("IPF_MLLP_LISTEN", "a=tcp:1 a=tcp:2"),
    ("SUBSCRIPTION_SERVICE_AUTH_ISSUER", "idp.example"),
    ("SUBSCRIPTION_SERVICE_MULTITENANCY", "enabled"),  # without bearer tokens
    ("IPF_MLLP_TENANTS", "lab"),
    ("IPF_MLLP_TENANTS", "nowhere=hospital-a"),
    ("IPF_MLLP_ALLOW", "10.1.0.0/99"),
    ("IPF_MLLP_ALLOW", "nowhere=10.1.0.0/16"),
    ("IPF_HTTP_CORS_ORIGINS", "https://app.example.org/path"),
    ("IPF_SECRET_KEY", "short"),
    ("IPF_AUDIT_SYSLOG", "tcp://siem.example.org"),
    ("IPF_AUDIT_SYSLOG", "tls://siem.example.org:0"),
    ("IPF_AUDIT_SYSLOG", "tls://siem.example.org:70000"),
    ("IPF_AUDIT_SYSLOG", "tls://user@siem.example.org"),
    ("IPF_AUDIT_SYSLOG_SURFACES", "fhir,mllp"),
    ("SUBSCRIPTION_SERVICE_VALIDATION_MODE", "strict"),
    ("IPF_FHIR_URL", "hapi.example/fhir"),
    ("IPF_MLLP_FALLBACK_CHARSET", "klingon"),
    ("IPF_MLLP_FALLBACK_CHARSET", "base64"),
    ("IPF_PASSTHROUGH_TYPES", "ADT^A04"),
    ("IPF_REQUIRE_MAP_TYPES", "ADT"),
    ("SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW", "10.0.0.0/99"),
    ("SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW", "https://hook.example.org"),
]
UNBOUNDED = ("99999999999999999999999", "1e30", "1_000", "nan", "-1", "0x10", "١")
"""Numbers that no timer and no column of the database takes, and such as only Python reads."""


class SettingsTests(TestCase):
    def test_accepted(self) -> None:
        for name, value, attribute, expected in ACCEPTED:
            found, warnings = environment.read({name: value})
            self.assertEqual(getattr(found, attribute), expected, name)
            if name != "SUBSCRIPTION_SERVICE_CHANNEL_SECURITY":
                self.assertEqual(warnings, [])

    def test_refused_with_the_name(self) -> None:
        for name, value in REFUSED:
            with self.assertRaises(InvalidSetting) as caught:
                environment.read({name: value})
            self.assertTrue(str(caught.exception).startswith(name + ":"), str(caught.exception))

    def test_no_number_is_without_bound(self) -> None:
        numbers = [one.metadata["variable"].name for one in fields(Settings) if type(one.default) in (int, float)]
        self.assertGreater(len(numbers), 20)
        for name in numbers:
            for value in UNBOUNDED:
                with self.assertRaisesRegex(InvalidSetting, f"^{name}: expected a (whole )?number from "):
                    environment.read({name: value})

    def test_roles_that_other_processes_depend_on_need_a_shared_database(self) -> None:
        urls = {"IPF_DB_URL": "postgresql:///ipf", "IPF_FHIR_DB_URL": "postgresql:///fhir"}
        for roles in ("receive", "poll,admin", "convert", "receive,convert", "fhir"):
            with self.assertRaisesRegex(InvalidSetting, "^IPF_ROLES: .* without .*IPF_DB_URL"):
                environment.read({"IPF_ROLES": roles})
            environment.read({"IPF_ROLES": roles} | urls)
        for complete in ("engine", "fhir,deliver", "mapping", "admin", "console", "receive,convert,deliver"):
            environment.read({"IPF_ROLES": complete})
        environment.read({"IPF_ROLES": "receive,convert", "IPF_FHIR_URL": "http://hapi.example/fhir"})

    def test_two_switches_take_roles_away(self) -> None:
        settings, _ = environment.read({"IPF_WORKER_ENABLED": "false", "IPF_POLLING_ENABLED": "false"})
        self.assertEqual(settings.running, tuple(role for role in ALL if role not in (CONVERT, POLL)))
        self.assertTrue(settings.runs(CONVERT, RECEIVE))
        self.assertFalse(settings.runs(CONVERT, POLL))
        with self.assertRaisesRegex(
            InvalidSetting, "^IPF_ROLES: with IPF_POLLING_ENABLED=false there is nothing to run"
        ):
            environment.read({"IPF_ROLES": "poll", "IPF_POLLING_ENABLED": "false"})

    def test_both_databases_or_none_and_not_the_same(self) -> None:
        url = "postgresql:///ipf"
        for given in ({"IPF_DB_URL": url}, {"IPF_DB_URL": url, "IPF_FHIR_DB_URL": url}):
            with self.assertRaisesRegex(InvalidSetting, "IPF_FHIR_DB_URL"):
                environment.read(given)

    def test_a_standby_needs_a_primary(self) -> None:
        with self.assertRaisesRegex(InvalidSetting, "IPF_FHIR_READ_DB_URL: requires IPF_FHIR_DB_URL"):
            environment.read({"IPF_FHIR_READ_DB_URL": "postgresql://standby/fhir"})

    def test_tokens_need_an_issuer_and_a_reader_a_writer(self) -> None:
        for environ, name in (
            ({"SUBSCRIPTION_SERVICE_AUTH_ENABLED": "true"}, "SUBSCRIPTION_SERVICE_AUTH_ISSUER"),
            ({"IPF_ADMIN_READ_TOKEN": "r"}, "IPF_ADMIN_AUTH_TOKEN"),
            ({"IPF_ADMIN_READ_TOKEN": "same", "IPF_ADMIN_AUTH_TOKEN": "same"}, "IPF_ADMIN_READ_TOKEN"),
        ):
            with self.assertRaisesRegex(InvalidSetting, f"^{name}: "):
                environment.read(environ)

    def test_the_feed_of_audit_records(self) -> None:
        server = {"IPF_AUDIT_SYSLOG": "tls://siem.example.org"}
        for environ, name in (
            ({**server, "IPF_AUDIT_SYSLOG_KEY": "k"}, "IPF_AUDIT_SYSLOG_CERTIFICATE"),
            ({**server, "IPF_AUDIT_SYSLOG_CERTIFICATE": "c"}, "IPF_AUDIT_SYSLOG_KEY"),
            ({**server, "SUBSCRIPTION_SERVICE_AUDIT_ENABLED": "false"}, "IPF_AUDIT_SYSLOG"),
        ):
            with self.assertRaisesRegex(InvalidSetting, f"^{name}: "):
                environment.read(environ)

    def test_tenants_of_messages_are_served(self) -> None:
        """What is sent for a tenant that is not on the list could be read by nobody."""
        served = {
            "IPF_TENANTS": "north south", "IPF_MLLP_LISTEN": "lab=mtls:1 ward=tcp:2",
            "SUBSCRIPTION_SERVICE_AUTH_ISSUER": "https://idp.example", "SUBSCRIPTION_SERVICE_MULTITENANCY": "enabled",
        }  # fmt: skip
        for name, value, unknown in (
            ("IPF_MLLP_TENANTS", "lab=north ward=east", "east"),
            ("IPF_MLLP_TENANTS", "lab=North", "North"),
            ("IPF_MLLP_CLIENT_NAMES", "a.example=south b.example=west", "west"),
        ):
            text = f"^{name}: {unknown}, the tenant of .* is not among IPF_TENANTS$"
            with self.assertRaisesRegex(InvalidSetting, text):
                environment.read({**served, name: value})
            environment.read({**served, name: value, "IPF_TENANTS": ""})
        environment.read({**served, "IPF_MLLP_TENANTS": "lab=north ward=default", "IPF_MLLP_CLIENT_NAMES": "a.example"})

    def test_secrets_in_files(self) -> None:
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "token").write_text("from a file\n")
        (folder / "IPF_ADMIN_AUTH_TOKEN").write_text("a credential")
        (folder / "empty").write_text("\n")
        for one in folder.iterdir():
            one.chmod(0o600)
        named, kept = {"IPF_ADMIN_AUTH_TOKEN_FILE": str(folder / "token")}, {"CREDENTIALS_DIRECTORY": str(folder)}
        for environ, token, warned in (
            (named, "from a file", 0),
            (kept, "a credential", 0),
            (kept | named, "from a file", 0),
            (named | {"IPF_ADMIN_AUTH_TOKEN": "itself"}, "itself", 1),
            ({"CREDENTIALS_DIRECTORY": str(folder / "none")}, None, 0),
        ):
            found, warnings = environment.read(environ)
            self.assertEqual((found.admin_token, len(warnings)), (token, warned), environ)
        for name in ("empty", "absent"):
            with self.assertRaisesRegex(InvalidSetting, f"IPF_ADMIN_AUTH_TOKEN_FILE: .*{name}"):
                environment.read({"IPF_ADMIN_AUTH_TOKEN_FILE": str(folder / name)})
        (folder / "token").chmod(0o644)
        self.assertIn("every user", environment.read(named)[1][0])

    def test_a_secret_is_not_shown(self) -> None:
        row = settings.Variable("X", integer(1), "", secret=True)
        with self.assertRaises(InvalidSetting) as caught:
            environment._parse(row, "hunter2")
        self.assertNotIn("hunter2", str(caught.exception))

    def test_unknown_names_are_warned_about(self) -> None:
        _, warnings = environment.read({"IPF_MAX_ATEMPTS": "3", "PATH": "/bin", "SUBSCRIPTION_SERVICE_X": "1"})
        self.assertEqual(len(warnings), 2)
        self.assertIn("did you mean IPF_MAX_ATTEMPTS?", warnings[0])

    def test_a_wrong_security_mode_is_warned_about(self) -> None:
        """The contract's fallback: it can be weakened by no typing error, and not be switched off."""
        for value in ("open", "none", "off", "false", "0"):
            found, (warning,) = environment.read({"SUBSCRIPTION_SERVICE_CHANNEL_SECURITY": value})
            self.assertEqual(found.channel_security, "strict")
            self.assertTrue(
                warning.startswith("SUBSCRIPTION_SERVICE_CHANNEL_SECURITY: expected one of strict, "), warning
            )
            self.assertTrue(warning.endswith(f"(it is '{value}'): strict is used"), warning)

    def test_the_example_file_shows_every_variable_with_its_default(self) -> None:
        shown = dict(re.findall(r"^#((?:IPF|SUBSCRIPTION)_\w+)=(.*)$", (ROOT / "etc/ipf.env").read_text(), re.M))
        self.assertEqual(set(shown), set(settings.variables()))
        defaults = {f.metadata["variable"].name: f.default for f in fields(Settings)}
        for name in ("IPF_DB_URL", "IPF_FHIR_DB_URL", "IPF_WORKER_PROCESSES"):
            del shown[name]
        found, _ = environment.read(shown)
        for one in fields(Settings):
            name = one.metadata["variable"].name
            if name in shown:
                self.assertEqual(getattr(found, one.name), defaults[name], name)
