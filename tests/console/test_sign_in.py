"""Sign-in at a real OpenID provider, as people do it."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.console.browser import admission_from, send
from tests.console.people import PeopleTest

GROUP = "browsers"
FAMILY = "console"


class SignInTests(PeopleTest):
    """The console with OIDC_* set."""

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
        send(self.engine.mllp_port, admission_from("RETRIED", "R1", "ZZZ^Z01"))
        id, page = self.message_id("R1", "DEAD_LETTER"), self.page()
        self.sign_in(page, "ada", f"/messages/{id}")
        page.get_by_role("button", name="Retry").click()
        query = "/admin/audit?interaction=retry&actor=ada%20of%20the%20ward%20(ada)"
        self.wait(lambda: self.engine.get(query)[1]["total"] == 1)
        (found,) = self.engine.get(query)[1]["items"]
        self.assertEqual((found["target"], found["http_status"]), (f"admin/messages/{id}/retry", 200))

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
