"""Browser tests with people: the console in front of a real OpenID provider (`provider.mjs`)."""

from __future__ import annotations

import shutil
import subprocess
from functools import partial
from pathlib import Path

from playwright.sync_api import Page
from twisted.trial.unittest import SkipTest

from tests.console.browser import BrowserTest
from tests.console.process import ConsoleProcess
from tests.console.stage import Stage
from tests.flows.idp import NODE, prepared
from tests.waiting import free_port

SCRIPT = Path(__file__).with_name("provider.mjs")


class PeopleTest(BrowserTest):
    """Base of tests in which people sign in: `ada` is an admin, `olga` an operator, `vic` a viewer."""

    console_name = "people"

    @classmethod
    def open_console(cls, stage: Stage) -> ConsoleProcess:
        installed = prepared()
        if installed is None:
            raise SkipTest("the identity provider cannot be installed: npm, or its registry, is not there")
        port = free_port()
        console = ConsoleProcess(
            stage.folder, stage.engine.base_url, OIDC_ISSUER=f"http://127.0.0.1:{port}",
            OIDC_CLIENT_ID="console", OIDC_CLIENT_SECRET="a secret: with signs",
        )  # fmt: skip
        script = shutil.copy(SCRIPT, installed / f"provider-{port}.mjs")
        stage.add_stop(Path(script).unlink)
        command = [str(NODE), script, str(port), console.url]
        with (stage.folder / "provider.log").open("wb") as log:
            provider = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        stage.add_stop(partial(_end, provider))
        assert provider.stdout is not None
        line = provider.stdout.readline()
        assert line == b"ready\n", line
        return console

    def sign_in(self, page: Page, person: str, path: str = "/") -> None:
        """Open a page, and pass the provider's two forms."""
        page.goto(path)
        page.get_by_role("textbox").first.fill(person)
        page.get_by_placeholder("password").fill("any")
        page.get_by_role("button").click()
        page.get_by_role("button", name="Continue").click()


def _end(provider: subprocess.Popen[bytes]) -> None:
    provider.kill()
    provider.communicate()
