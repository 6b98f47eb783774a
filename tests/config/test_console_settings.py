"""The settings of the console, and the example file that shows them."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.config.console import OIDC, ConsoleSettings, Oidc, console_variables, oidc
from ipf.config.environment import read, read_rows

ROOT = Path(__file__).resolve().parents[2]


class ConsoleSettingsTests(TestCase):
    def test_the_example_file_shows_every_variable_with_its_default(self) -> None:
        shown = dict(re.findall(r"^#([A-Z_]+)=(.*)$", (ROOT / "etc/ipf-ui.env").read_text(), re.M))
        self.assertEqual(set(shown), set(console_variables()) | set(OIDC))
        self.assertEqual(
            shown.pop("IPF_UI_BASE_URL"), "https://ipf.hospital.example"
        )  # an example: the default is none
        found, warnings = read_rows(ConsoleSettings, shown)
        self.assertEqual(warnings, [])
        for one in fields(ConsoleSettings):
            self.assertEqual(getattr(found, one.name), one.default, one.name)

    def test_the_admin_token_is_any_that_the_engine_takes(self) -> None:
        """`bin/run` gives both the same environment."""
        for token in ("t", "only-operators-know-this"):
            environ = {"IPF_ADMIN_AUTH_TOKEN": token}
            self.assertEqual(read_rows(ConsoleSettings, environ)[0].admin_token, token)
            self.assertEqual(read(environ)[0].admin_token, token)

    def test_the_provider_is_complete_or_names_what_is_missing(self) -> None:
        given = {"OIDC_ISSUER": "https://id.example", "OIDC_CLIENT_ID": " console ", "OIDC_CLIENT_SECRET": "x"}
        self.assertEqual(oidc(given), Oidc("https://id.example", "console", "x"))
        self.assertEqual(oidc(given | {"OIDC_CLIENT_ID": " "}), ("OIDC_CLIENT_ID",))
        self.assertEqual(oidc({}), OIDC)
