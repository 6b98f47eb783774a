"""The Helm chart, rendered by helm: every setting reaches its pod, secrets are in Secrets only."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

from ipf.config.console import ConsoleSettings, console_variables
from ipf.config.environment import read, read_rows
from ipf.config.parsers import boolean
from ipf.config.settings import Settings, variables
from tests.deployment.helm import DATABASES, NAME, HelmError, HelmTestCase, Rendered, helm, with_databases
from tests.deployment.helm_samples import CONSOLE, EVERYTHING, LISTENERS, merged, nested, strings
from tests.deployment.helm_values import CHART, COMPUTED, CONTRACT, OF_THE_CHART, defaults, homes

GROUP = "deployment"
FAMILY = "helm"

SECRETS = [name for name, row in variables().items() if row.secret]


class HelmSettingsTests(HelmTestCase):
    """The variables that a pod gets are settings, and those that the values mean."""

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.addCleanup(shutil.rmtree, self.folder)

    def environment(self, rendered: Rendered, name: str = NAME) -> dict[str, str]:
        """The environment of a container, with its files of secrets below `self.folder`."""
        secrets = rendered.secrets()
        for file, (secret, key) in rendered.secret_files(name).items():
            (self.folder / file).write_text(secrets[key] if secret == NAME else f"of-{secret}-{key}-0123456789")
            (self.folder / file).chmod(0o440)
        found = rendered.environment(name)
        return {key: value.replace("/etc/ipf/secrets", str(self.folder)) for key, value in found.items()}

    def test_the_defaults_are_those_of_the_table(self) -> None:
        rendered = Rendered({})
        found, warnings = read(self.environment(rendered))
        self.assertEqual(warnings, [])
        for one in fields(Settings):
            name = one.metadata["variable"].name
            if name not in {*OF_THE_CHART, *COMPUTED, *DATABASES}:
                self.assertEqual(getattr(found, one.name), one.default, name)
        self.assertEqual(found.db_url, DATABASES["IPF_DB_URL"]["value"])
        self.assertEqual(found.base_url, f"http://{NAME}.hospital.svc:8090/fhir")
        console, warnings = read_rows(ConsoleSettings, self.environment(rendered, CONSOLE))
        self.assertEqual(warnings, [])
        self.assertEqual(console.engine_url, f"http://{NAME}.hospital.svc:8090")
        for one in fields(ConsoleSettings):
            if one.metadata["variable"].name not in OF_THE_CHART:
                self.assertEqual(getattr(console, one.name), one.default, one.name)

    def test_every_setting_reaches_its_pod(self) -> None:
        """Each variable set to another value than its default, at its home, and to the empty text."""
        for given in ("other", ""):
            values, expected = {}, {}
            for name, default in (defaults(Settings) | defaults(ConsoleSettings)).items():
                value: Any = given
                if (variables() | console_variables())[name].parse is boolean:
                    value = not default
                elif isinstance(default, (int, float)):
                    value = 67_108_865
                elif name == "IPF_WORKER_PROCESSES":
                    value = 3
                elif name == "IPF_BASE_URL":
                    value = "https://fhir.example/fhir"
                values = merged(values, nested(homes()[name], value))
                expected[name] = value if isinstance(value, str) else json.dumps(value)
            rendered = Rendered(values)
            found = rendered.environment() | rendered.environment(CONSOLE)
            if given:
                expected["IPF_HOSTS"] = f"other {NAME}.hospital.svc {NAME}"
            self.assertEqual({name: found.get(name) for name in expected}, expected)
            made = {name for name in OF_THE_CHART if name in variables()} - {"IPF_METRICS_LISTEN", "IPF_FHIR_LISTEN"}
            self.assertLessEqual(made, found.keys())

    def test_the_keys_of_the_contract_are_set_on_the_command_line(self) -> None:
        """Each key with `--set`, as the contract writes its value.

        Source: interface specification "Limits" (`interfaceEngine.worker.retry.*`, `backoffFactor` 2.0),
        "Authentication" (`interfaceEngine.admin.authToken`), "FHIR AuditEvent resources" (`featureToggles.audit.*`).
        """
        retry, audit = "interfaceEngine.worker.retry", "featureToggles.audit"
        by_contract = {
            f"{retry}.maxAttempts": ("IPF_MAX_ATTEMPTS", "5", "7"),
            f"{retry}.backoffBaseMs": ("IPF_BACKOFF_BASE_MS", "1000", "250"),
            f"{retry}.backoffFactor": ("IPF_BACKOFF_FACTOR", "2.0", "1.5"),
            f"{retry}.backoffMaxMs": ("IPF_BACKOFF_MAX_MS", "300000", "60000000"),
            f"{retry}.dlqLogLevel": ("IPF_DLQ_LOG_LEVEL", "WARN", "ERROR"),
            f"{audit}.enabled": ("SUBSCRIPTION_SERVICE_AUDIT_ENABLED", "true", "false"),
            f"{audit}.captureReads": ("SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_READS", "false", "true"),
            f"{audit}.captureSearch": ("SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_SEARCH", "false", "true"),
            f"{audit}.retentionDays": ("SUBSCRIPTION_SERVICE_AUDIT_RETENTION_DAYS", "365", "30"),
        }
        self.assertEqual({name: key for key, (name, *_) in by_contract.items()}, CONTRACT)
        for number in (1, 2):
            values = {key: row[number] for key, row in by_contract.items()}
            values["interfaceEngine.admin.authToken"] = "s3cret"
            arguments = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
            rendered = Rendered({}, *arguments)
            found, _ = read(self.environment(rendered))
            expected, _ = read({name: row[number - 1] for name, *row in by_contract.values()})
            for name, *_ in by_contract.values():
                field = next(one.name for one in fields(Settings) if one.metadata["variable"].name == name)
                self.assertEqual(getattr(found, field), getattr(expected, field), name)
            self.assertEqual(rendered.secrets()["IPF_ADMIN_AUTH_TOKEN"], "s3cret")

    def test_every_number_can_be_set_on_the_command_line(self) -> None:
        """helm reads `--set x=2.5` as a text, and whole numbers as numbers."""
        numbers = {name: value for name, value in defaults(Settings).items() if type(value) in (int, float)}
        self.assertGreater(len(numbers), 30)
        for as_float in (False, True):
            given = {name: value + (0.5 if as_float else 1) for name, value in numbers.items()
                     if type(value) is float or not as_float}  # fmt: skip
            arguments = [part for name, value in given.items() for part in ("--set", f"{homes()[name]}={value}")]
            found = self.environment(Rendered({}, *arguments))
            self.assertEqual(
                {name: float(found[name]) for name in given}, {name: float(one) for name, one in given.items()}
            )

    def test_listeners(self) -> None:
        settings, warnings = read(self.environment(Rendered(LISTENERS)))
        self.assertEqual(warnings, [])
        files = "privateKey=/etc/ipf/tls/{0}/tls.key:certKey=/etc/ipf/tls/{0}/tls.crt"
        lab, ward = settings.mllp_listen
        self.assertEqual((lab.name, ward.name), ("lab", "no"))
        ca = "clientCa=/etc/ipf/tls/lab/ca.crt"
        self.assertEqual(lab.endpoint, f"mtls:2576:{files.format('lab')}:{ca}:interface=0.0.0.0")
        self.assertEqual(ward.endpoint, "tcp:2577:interface=0.0.0.0")
        self.assertEqual(settings.hl7_http_listen[0].endpoint, f"ssl:2580:{files.format('portal')}:interface=0.0.0.0")
        self.assertEqual(settings.http_listen, f"ssl:8443:{files.format('http')}:interface=0.0.0.0")
        self.assertEqual((settings.metrics_listen, settings.fhir_listen), (None, None))
        settings, _ = read(self.environment(Rendered(EVERYTHING)))
        self.assertEqual(settings.metrics_listen, "tcp:9464:interface=\\:\\:")
        self.assertEqual(settings.fhir_listen, f"ssl:8444:{files.format('fhir')}:interface=\\:\\:")

    def test_tls_files_are_mounted_where_the_endpoints_say(self) -> None:
        rendered = Rendered(EVERYTHING)
        for name in (NAME, CONSOLE):
            files = set()
            volumes = {one["name"]: one for one in rendered.pod(name)["volumes"]}
            for mount in rendered.container(name)["volumeMounts"]:
                for source in volumes[mount["name"]].get("projected", {}).get("sources", ()):
                    files |= {f"{mount['mountPath']}/{one['path']}" for one in source["secret"]["items"]}
            named = re.findall(r"=(/etc/ipf/[^:\s]*)", " ".join(rendered.environment(name).values()))
            self.assertGreater(len(named), 1)
            self.assertLessEqual(set(named), files)

    def test_values_that_make_no_settings_are_refused(self) -> None:
        settings, _ = read(self.environment(Rendered(merged(EVERYTHING, {"settings": {"IPF_MAPS_DIR": "/etc/ipf"}}))))
        self.assertEqual(settings.maps_dir, "/etc/ipf")
        for path, value, text in (
            ("settings.IPF_WORKER_PROCESSES", "two", "/settings/IPF_WORKER_PROCESSES"),
            ("settings.IPF_GENERIC_MAP", "yes", "/settings/IPF_GENERIC_MAP"),
            ("settings.IPF_MAX_ATTEMPTS", 5, "IPF_MAX_ATTEMPTS"),  # its home is the contract's key
            ("interfaceEngine.worker.retry.maxAttempts", "many", "/interfaceEngine/worker/retry/maxAttempts"),
            ("interfaceEngine.admin.authtoken", "x", "authtoken"),
            ("featureToggles.audit.enabled", "on", "/featureToggles/audit/enabled"),
            ("mllp.listeners", [], "/mllp/listeners"),
            ("mllp.listeners", [{"name": "Lab", "port": 1}], "/mllp/listeners/0/name"),
            ("http.port", 99_999, "/http/port"),
            ("services.http.type", "Ingress", "/services/http/type"),
            ("engine.replicas", "3", "/engine/replicas"),
        ):
            with self.assertRaisesRegex(HelmError, re.escape(text)):
                Rendered(nested(path, value))

    def test_errors_of_templates_name_the_value(self) -> None:
        both = {"value": "x", "existingSecret": {"name": "theirs"}}
        for values, text in (
            ({"secrets": {"IPF_DB_URL": {}}}, r"secrets\.IPF_DB_URL: give a value or an existingSecret"),
            (
                {"secrets": {"IPF_SMTP_URL": both}},
                r"secrets\.IPF_SMTP_URL: give a value or an existingSecret, not both",
            ),
            ({"secrets": {"IPF_SMTP_URL": {"existingSecret": {"key": "k"}}}}, r"secrets\.IPF_SMTP_URL: .*needs"),
            ({"mllp": {"listeners": [{"name": "lab", "port": 1, "tls": {"clientCaSecretName": "c"}}]}}, "lab: tls"),
        ):
            with self.assertRaisesRegex(HelmError, text):
                Rendered(values)


class HelmSecretsTests(HelmTestCase):
    def marked(self) -> dict[str, Any]:
        """Values with each secret given."""
        secrets = {name: {"value": f"secret-{name}"} for name in SECRETS if name != "IPF_ADMIN_AUTH_TOKEN"}
        admin = {"interfaceEngine": {"admin": {"authToken": "secret-IPF_ADMIN_AUTH_TOKEN"}}}
        oidc = {"issuer": "https://id.example", "clientId": "console", "clientSecret": "secret-OIDC_CLIENT_SECRET"}
        return admin | {"secrets": secrets, "console": {"oidc": oidc}}

    def test_values_are_in_the_secret_only(self) -> None:
        rendered = Rendered(self.marked())
        self.assertEqual(rendered.secrets(), {name: f"secret-{name}" for name in [*SECRETS, "OIDC_CLIENT_SECRET"]})
        for one in rendered.objects:
            if one["kind"] != "Secret":
                self.assertEqual([text for text in strings(one) if "secret-" in text], [], one["kind"])
        self.assertEqual(rendered.secret_files(), {name: (NAME, name) for name in SECRETS})
        self.assertEqual(rendered.secret_files(CONSOLE), {"IPF_ADMIN_AUTH_TOKEN": (NAME, "IPF_ADMIN_AUTH_TOKEN")})
        environment = rendered.environment()
        for name in SECRETS:
            self.assertEqual(environment[f"{name}_FILE"], f"/etc/ipf/secrets/{name}")

    def test_nothing_is_shown_by_the_notes(self) -> None:
        text = helm("install", NAME, str(CHART), "--dry-run=client", values=self.marked())
        notes = text.partition("\nNOTES:\n")[2]
        self.assertIn("is installed", notes)
        self.assertNotIn("secret-", notes)
        self.assertNotIn("/admin needs no token", notes)
        bare = helm("install", NAME, str(CHART), "--dry-run=client", values=with_databases({}))
        self.assertIn("WARNING: /admin needs no token", bare.partition("\nNOTES:\n")[2])

    def test_each_secret_can_be_one_that_exists(self) -> None:
        for name in SECRETS:
            for key in ("", "the-key"):
                path = "interfaceEngine.admin" if name == "IPF_ADMIN_AUTH_TOKEN" else f"secrets.{name}"
                existing = {"existingSecret": {"name": "theirs", "key": key}}
                rendered = Rendered(nested(path, existing))
                self.assertEqual(rendered.secret_files()[name], ("theirs", key or name))
                self.assertNotIn(name, rendered.secrets())

    def test_only_secrets_that_exist(self) -> None:
        """Then the release has none of its own."""
        existing = {name: {"existingSecret": {"name": "theirs", "key": ""}} for name in DATABASES}
        oidc = {"issuer": "https://id.example", "clientId": "c", "existingSecret": {"name": "sign-in", "key": "s"}}
        rendered = Rendered({"secrets": existing, "console": {"oidc": oidc}})
        self.assertNotIn("Secret", rendered.kinds())
        (variable,) = rendered.container(CONSOLE)["env"]
        self.assertEqual(variable["name"], "OIDC_CLIENT_SECRET")
        self.assertEqual(variable["valueFrom"]["secretKeyRef"], {"name": "sign-in", "key": "s"})
        environment = rendered.environment(CONSOLE)
        self.assertEqual((environment["OIDC_ISSUER"], environment["OIDC_CLIENT_ID"]), ("https://id.example", "c"))

    def test_a_changed_secret_restarts_the_pods(self) -> None:
        def sums(token: str) -> list[Any]:
            rendered = Rendered({"interfaceEngine": {"admin": {"authToken": token}}})
            templates = [rendered.one("Deployment", name)["spec"]["template"] for name in (NAME, CONSOLE)]
            return [one["metadata"]["annotations"]["checksum/secrets"] for one in templates]

        self.assertEqual(sums("a"), sums("a"))
        for former, later in zip(sums("a"), sums("b"), strict=True):
            self.assertNotEqual(former, later)
