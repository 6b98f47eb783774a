"""The values of the Helm chart are those of the table of settings: each variable, its default, its type."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import yaml
from jsonschema import Draft7Validator
from twisted.trial.unittest import TestCase

from ipf import __version__
from ipf.config.console import OIDC, ConsoleSettings, console_variables
from ipf.config.environment import read, read_rows
from ipf.config.settings import Settings, variables
from tests.deployment.helm_values import CHART, COMPUTED, CONTRACT, OF_THE_CHART, ROOT, defaults, files, homes

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


def at(path: str) -> Any:
    """The value at a path of keys."""
    found: Any = VALUES
    for key in path.split("."):
        found = found[key]
    return found


class HelmValuesTests(TestCase):
    def test_what_the_script_writes_is_what_is_there(self) -> None:
        for path, text in files().items():
            self.assertEqual(path.read_text(), text, f"{path.relative_to(ROOT)}: run bin/helm-values")

    def test_every_variable_has_a_home(self) -> None:
        known = {*variables(), *console_variables()}
        self.assertEqual(set(homes()), known)
        for path in homes().values():
            at(path)
        self.assertEqual([name for name in (*CONTRACT, *OF_THE_CHART, *COMPUTED) if name not in known], [])

    def test_the_keys_of_the_contract(self) -> None:
        """Source: interface specification "Limits", "Authentication", "FHIR AuditEvent resources"."""
        self.assertEqual(at("interfaceEngine.admin.authToken"), "")
        expected = {"maxAttempts": 5, "backoffBaseMs": 1000, "backoffFactor": 2.0, "backoffMaxMs": 300_000}
        self.assertEqual(at("interfaceEngine.worker.retry"), expected | {"dlqLogLevel": "WARN"})
        audit = {"enabled": True, "captureReads": False, "captureSearch": False, "retentionDays": 365}
        self.assertEqual(at("featureToggles.audit"), audit)

    def test_defaults_mean_what_the_tables_say(self) -> None:
        """The text of each default is read back by the parser of its variable."""
        for declared, reader in ((Settings, read), (ConsoleSettings, lambda env: read_rows(ConsoleSettings, env))):
            given = {name: value for name, value in defaults(declared).items() if value is not None}
            self.assertGreater(len(given), 5)
            texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
            found, warnings = reader(texts)
            self.assertEqual(warnings, [])
            for one in fields(declared):
                self.assertEqual(getattr(found, one.name), one.default, one.metadata["variable"].name)

    def test_every_secret_can_be_one_that_exists(self) -> None:
        for name, row in variables().items():
            if row.secret and name != "IPF_ADMIN_AUTH_TOKEN":
                self.assertEqual(at(f"secrets.{name}"), {"value": "", "existingSecret": {"name": "", "key": ""}})
        for path in ("interfaceEngine.admin.existingSecret", "console.oidc.existingSecret"):
            self.assertEqual(at(path), {"name": "", "key": ""})
        self.assertEqual(OIDC, ("OIDC_ISSUER", "OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET"))

    def test_the_schema_takes_the_values_of_the_chart(self) -> None:
        schema = json.loads((CHART / "values.schema.json").read_text())
        Draft7Validator.check_schema(schema)
        self.assertEqual([str(error) for error in Draft7Validator(schema).iter_errors(VALUES)], [])

    def test_the_version_is_that_of_the_program(self) -> None:
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        self.assertEqual((chart["version"], chart["appVersion"]), (__version__, __version__))
