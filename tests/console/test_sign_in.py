"""Sign-in at a real OpenID provider, as people do it."""

from __future__ import annotations

import shutil
import subprocess
from functools import partial
from pathlib import Path

from playwright.sync_api import Page, expect
from twisted.trial.unittest import SkipTest

from tests.console.browser import Backstage, BrowserTest, ConsoleProcess, send
from tests.faults.feed import admission
from tests.flows.idp import NODE, prepared
from tests.waiting import free_port

SCRIPT = Path(__file__).with_name("provider.mjs")


def _end(provider: subprocess.Popen[bytes]) -> None:
    provider.kill()
    provider.communicate()


class SignInTests(BrowserTest):
    """The console with OIDC_* set."""

    @classmethod
    def open_console(cls, backstage: Backstage) -> ConsoleProcess:
        installed = prepared()
        if installed is None:
            raise SkipTest("the identity provider cannot be installed: npm, or its registry, is not there")
        port = free_port()
        console = ConsoleProcess(
            backstage.folder, backstage.engine.base_url, OIDC_ISSUER=f"http://127.0.0.1:{port}",
            OIDC_CLIENT_ID="console", OIDC_CLIENT_SECRET="a secret: with signs",
        )  # fmt: skip
        script = shutil.copy(SCRIPT, installed / f"provider-{port}.mjs")
        backstage.add_stop(Path(script).unlink)
        command = [str(NODE), script, str(port), console.url]
        with (backstage.folder / "provider.log").open("wb") as log:
            provider = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        backstage.add_stop(partial(_end, provider))
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

    def test_a_person_comes_back_to_the_page_that_he_asked_for(self) -> None:
        page = self.page()
        self.sign_in(page, "vic", "/messages?status=FAILED")
        expect(page).to_have_url(f"{self.console.url}/messages?status=FAILED")
        expect(page.get_by_text("vic of the ward")).to_be_visible()
        cookies = {one["name"]: one for one in page.context.cookies(self.console.url)}
        self.assertTrue(cookies["ipf"]["httpOnly"])
        self.assertEqual(cookies["ipf"]["sameSite"], "Lax")
        self.assertNotIn("eyJ", page.content() + str(cookies))

    def test_a_retry_names_the_person_in_the_audit_trail(self) -> None:
        send(self.engine.mllp_port, admission("R1", "P1", "1").replace(b"ADT^A01^ADT_A01", b"ZZZ^Z01"))
        page = self.page()
        self.wait(lambda: self.engine.get("/admin/messages/1")[1]["status"] == "FAILED")
        self.sign_in(page, "ada", "/messages/1")
        page.get_by_role("button", name="Retry").click()
        query = "/admin/audit?interaction=retry&actor=ada%20of%20the%20ward%20(ada)"
        self.wait(lambda: self.engine.get(query)[1]["total"] == 1)
        (found,) = self.engine.get(query)[1]["items"]
        self.assertEqual((found["target"], found["http_status"]), ("admin/messages/1/retry", 200))

    def test_signing_out_ends_both_sessions(self) -> None:
        page = self.page()
        self.sign_in(page, "ada")
        page.get_by_text("ada of the ward").click()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("button", name="Yes").click()
        expect(page.get_by_role("heading", name="You are signed out")).to_be_visible()
        page.goto("/messages")
        expect(page.get_by_placeholder("password")).to_be_visible()

    def test_a_person_without_a_role_sees_nothing(self) -> None:
        page = self.page()
        self.sign_in(page, "nobody")
        expect(page.get_by_role("heading", name="You have no role here")).to_be_visible()
