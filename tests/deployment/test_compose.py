"""etc/docker/compose.yaml, and the files beside it, against the project and the published schema."""

from __future__ import annotations

import atexit
import copy
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from jsonschema import ValidationError, validate
from twisted.tap.portforward import Options as PortForward
from twisted.trial.unittest import TestCase

from ipf.config.console import ConsoleSettings
from ipf.config.environment import read, read_rows
from ipf.config.settings import Settings
from tests.deployment.compose import FOLDER, ROOT, compose, mounts
from tests.waiting import PATIENCE

OURS = "ipf:compose"
SECRETS = "/etc/ipf/secrets"


def schema() -> Any:
    """The schema of the Compose specification, as check-jsonschema brings it."""
    file = resources.files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json"
    return json.loads(file.read_text())


def text_of(service: dict[str, Any]) -> str:
    """Command and environment of a service."""
    return json.dumps([service.get("command", []), service.get("environment", {})])


class ComposeTestCase(TestCase):
    def setUp(self) -> None:
        self.compose = compose()
        self.services: dict[str, Any] = self.compose["services"]


class SchemaTests(ComposeTestCase):
    def test_the_file_is_valid(self) -> None:
        validate(self.compose, schema())

    def test_the_schema_refuses_an_unknown_key(self) -> None:
        wrong = copy.deepcopy(self.compose)
        wrong["services"]["ipf"]["read_onyl"] = True
        with self.assertRaises(ValidationError):
            validate(wrong, schema())


class ServiceTests(ComposeTestCase):
    def test_every_service_is_confined(self) -> None:
        for name, service in self.services.items():
            self.assertIs(service["read_only"], True, name)
            self.assertEqual(service["cap_drop"], ["ALL"], name)
            self.assertEqual(service["security_opt"], ["no-new-privileges:true"], name)
            self.assertNotIn("privileged", service)
            if service["image"] != OURS:  # the user of ours is in the image
                self.assertNotIn(service["user"].partition(":")[0], ("0", "root"), name)

    def test_ports_are_published_on_loopback_only(self) -> None:
        published = [port for one in self.services.values() for port in one.get("ports", ())]
        self.assertGreater(len(published), 4)
        for port in published:
            self.assertRegex(port, r"^127\.0\.0\.1:\d+:\d+$")
        hosts = [port.split(":")[1] for port in published]
        self.assertEqual(len(hosts), len(set(hosts)))
        head = (FOLDER / "compose.yaml").read_text().partition("\nname:")[0]
        self.assertEqual(set(re.findall(r"127\.0\.0\.1:(\d+)", head)), set(hosts), "the ports that the file explains")

    def test_versions_are_pinned(self) -> None:
        for name, service in self.services.items():
            tag = service["image"].rpartition(":")[2]
            self.assertNotIn(tag, ("latest", service["image"]), name)
        built = [name for name, one in self.services.items() if "build" in one]
        self.assertEqual(built, ["secrets"], "one build, which every other service waits for")
        build = self.services["secrets"]["build"]
        context = (FOLDER / build["context"]).resolve()
        self.assertEqual(context, ROOT)
        self.assertTrue((context / build["dockerfile"]).is_file())

    def test_what_is_waited_for(self) -> None:
        for name, service in self.services.items():
            for other, how in service.get("depends_on", {}).items():
                waited = self.services[other]
                if how["condition"] == "service_healthy":
                    has_check = waited["image"] == OURS or "test" in waited.get("healthcheck", {})
                    self.assertTrue(has_check, f"{name} waits for {other}")
                else:
                    self.assertEqual((other, how["condition"]), ("secrets", "service_completed_successfully"))
                    self.assertEqual(waited["restart"], "no")
            if f"{SECRETS}" in json.dumps(service) and name != "secrets":
                self.assertIn("secrets", self._before(name), name)

    def _before(self, name: str) -> set[str]:
        """Everything that has to be there before a service starts."""
        direct = set(self.services[name].get("depends_on", {}))
        return direct.union(*(self._before(one) for one in direct))

    def test_hosts_that_commands_and_settings_name_are_services(self) -> None:
        found: set[str] = set()
        for service in self.services.values():
            found |= set(re.findall(r"(?:https?://|--to=)([a-z0-9.-]+)", text_of(service)))
        self.assertEqual(found - {"127.0.0.1"} - self.services.keys(), set())
        self.assertIn("subscriber", found)


class FileTests(ComposeTestCase):
    def test_mounted_files_exist(self) -> None:
        for name, service in self.services.items():
            for source, target, options in mounts(service):
                if source.startswith("/"):
                    self.assertTrue(Path(source).exists(), f"{name}: {source}")
                    self.assertEqual(options, "ro", f"{name}: {source}")
                    if target.startswith("/usr/local/bin/") or target.endswith(".sh"):
                        self.assertTrue(os.access(source, os.X_OK), source)
                else:
                    self.assertIn(source, self.compose["volumes"], name)

    def test_only_one_service_writes_secrets(self) -> None:
        for name, service in self.services.items():
            options = [how for source, _, how in mounts(service) if source == "secrets"]
            if options:
                self.assertEqual(options, [""] if name == "secrets" else ["ro"], name)
                self.assertTrue(service["image"] == OURS or "10001" in service["group_add"], name)

    def test_programs_of_the_repository_know_their_options(self) -> None:
        for name in ("feed", "subscriber"):
            command, *arguments = self.services[name]["command"]
            (source,) = [one for one, target, _ in mounts(self.services[name]) if target == f"/usr/local/bin/{command}"]
            told = subprocess.run(
                [source, "--help"], capture_output=True, text=True, timeout=PATIENCE, check=True
            ).stdout
            for option in (one.partition("=")[0] for one in arguments if one.startswith("--")):
                self.assertIn(f"{option} ", told)

    def test_the_port_in_front_of_the_console(self) -> None:
        service = self.services["console-port"]
        name, *arguments = service["command"]
        self.assertEqual((name, service["network_mode"]), ("twistd", "service:console"))
        options = PortForward()
        options.parseOptions(arguments[arguments.index("portforward") + 1 :])
        self.assertEqual((options["host"], str(options["dest_port"])), ("127.0.0.1", "3000"))
        self.assertEqual(ConsoleSettings().listen, "tcp:3000")
        published = self.services["console"]["ports"][0].rpartition(":")[2]
        self.assertEqual(options["port"], f"tcp:{published}")


def make_secrets(folder: Path) -> str:
    """Run make-secrets; what it prints."""
    command = [str(FOLDER / "make-secrets"), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout


@cache
def secrets() -> Path:
    """A folder in which it ran."""
    folder = Path(tempfile.mkdtemp(prefix="ipf-secrets-"))
    atexit.register(shutil.rmtree, folder, True)
    make_secrets(folder)
    return folder


class SecretTests(ComposeTestCase):
    """make-secrets, run for real; the settings of the services are read with what it makes."""

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.mktemp()).resolve()
        shutil.copytree(secrets(), self.folder)

    def contents(self) -> dict[str, str]:
        return {one.name: one.read_text() for one in self.folder.iterdir()}

    def test_each_is_another_one_and_for_its_group_only(self) -> None:
        made = self.contents()
        self.assertEqual(len(set(made.values())), len(made))
        for one in self.folder.iterdir():
            self.assertEqual(stat.S_IMODE(one.stat().st_mode), 0o640, one.name)
            self.assertGreater(len(one.read_text()), 30)

    def test_a_second_run_keeps_them(self) -> None:
        before = self.contents()
        self.assertEqual(make_secrets(self.folder), "")
        (self.folder / "IPF_METRICS_TOKEN").unlink()
        self.assertEqual(make_secrets(self.folder), "made IPF_METRICS_TOKEN\n")
        after = self.contents()
        self.assertNotEqual(after.pop("IPF_METRICS_TOKEN"), before.pop("IPF_METRICS_TOKEN"))
        self.assertEqual(after, before)

    def test_every_secret_that_is_named_is_made(self) -> None:
        files = [FOLDER / "prometheus/prometheus.yml", FOLDER / "compose.yaml"]
        wanted = {name for one in files for name in re.findall(rf"{SECRETS}/([\w-]+)", one.read_text())}
        self.assertGreater(len(wanted), 5)
        self.assertEqual(wanted - self.contents().keys(), set())

    def settings_of(self, name: str) -> dict[str, str]:
        """The environment of a service, with the files that were made here."""
        given = self.services[name]["environment"]
        return {key: value.replace(SECRETS, str(self.folder)) for key, value in given.items()}

    def test_the_service_takes_its_settings(self) -> None:
        """Every variable is known, and every value is valid: there is no warning."""
        settings, warnings = read(self.settings_of("ipf"))
        self.assertEqual(warnings, [])
        assert settings.db_url and settings.fhir_db_url
        self.assertRegex(settings.db_url, r"^postgresql://ipf:[\w-]{20,}@postgres/ipf$")
        self.assertRegex(settings.fhir_db_url, r"^postgresql://fhir:[\w-]{20,}@postgres/fhir$")
        self.assertEqual(settings.channel_security, "permissive")
        self.assertEqual((settings.endpoint_allow, settings.endpoint_deny), (("subscriber",), ("*",)))
        default = Settings()
        self.assertEqual(settings.http_listen, f"{default.http_listen}:interface=0.0.0.0")
        self.assertEqual(settings.mllp_listen[0].endpoint, f"{default.mllp_listen[0].endpoint}:interface=0.0.0.0")

    def test_the_console_takes_its_settings(self) -> None:
        environment = self.settings_of("console")
        settings, _ = read_rows(ConsoleSettings, environment)
        self.assertEqual(read(environment)[1], [])
        self.assertEqual(settings.engine_url, "http://ipf:8090")
        self.assertEqual(
            (settings.admin_token, read(self.settings_of("ipf"))[0].admin_token), (None, None), "a sandbox"
        )
        self.assertEqual(settings.listen, ConsoleSettings().listen, "loopback, as the sandbox needs it")

    def test_the_databases_get_the_passwords_of_the_urls(self) -> None:
        script = (FOLDER / "databases.sh").read_text()
        (names,) = re.findall(r"for name in (.*); do", script)
        self.assertEqual(names.split(), ["ipf", "fhir"])
        self.assertIn(f'{SECRETS}/$name-password"', script)
        made = self.contents()
        for name, variable in (("ipf", "IPF_DB_URL"), ("fhir", "IPF_FHIR_DB_URL")):
            self.assertIn(f"//{name}:{made[f'{name}-password'].strip()}@", made[variable])


class MonitoringTests(ComposeTestCase):
    def test_prometheus_scrapes_ipf_and_finds_the_rules(self) -> None:
        config = yaml.safe_load((FOLDER / "prometheus/prometheus.yml").read_text())
        (job,) = config["scrape_configs"]
        self.assertEqual(job["static_configs"], [{"targets": ["ipf:8090"]}])
        self.assertEqual(job["metrics_path"], "/actuator/prometheus")
        rules = (ROOT / "etc/prometheus/ipf-alerts.yml").read_text()
        self.assertIn(f'up{{job="{job["job_name"]}"}}', rules)
        self.assertEqual(job["authorization"]["credentials_file"], f"{SECRETS}/IPF_METRICS_TOKEN")
        targets = {target: source for source, target, _ in mounts(self.services["prometheus"])}
        (pattern,) = config["rule_files"]
        folder, _, names = pattern.rpartition("/")
        self.assertEqual([one.name for one in Path(targets[folder]).glob(names)], ["ipf-alerts.yml"])
        arguments = self.services["prometheus"]["command"]
        self.assertIn("--config.file=/etc/prometheus/prometheus.yml", arguments)
        self.assertIn("--storage.tsdb.path=/prometheus", arguments)
        self.assertEqual(targets["/prometheus"], "prometheus")

    def test_grafana_has_the_data_source_and_the_dashboards(self) -> None:
        targets = {target: source for source, target, _ in mounts(self.services["grafana"])}
        base = "/etc/grafana/provisioning"
        (source,) = yaml.safe_load(Path(targets[f"{base}/datasources/ipf.yaml"]).read_text())["datasources"]
        self.assertEqual((source["type"], source["url"]), ("prometheus", "http://prometheus:9090"))
        (provider,) = yaml.safe_load(Path(targets[f"{base}/dashboards/ipf.yaml"]).read_text())["providers"]
        dashboards = list(Path(targets[provider["options"]["path"]]).glob("*.json"))
        self.assertEqual({one.name for one in dashboards}, {"fhir.json", "messages.json", "service.json"})
        for one in dashboards:
            (variable,) = [
                each for each in json.loads(one.read_text())["templating"]["list"] if each["type"] == "datasource"
            ]
            self.assertEqual(variable["query"], source["type"], one.name)
