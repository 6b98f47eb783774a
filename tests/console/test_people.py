"""Two people at once, roles, sessions that end, forged forms."""

from __future__ import annotations

from urllib.parse import urlencode

from playwright.sync_api import APIResponse, Page, expect

from tests.console import data
from tests.console.people import PeopleTest
from tests.console.stage import Stage

GROUP = "browsers"
FAMILY = "console"


class PeopleTests(PeopleTest):
    @classmethod
    def prepare(cls, stage: Stage) -> None:
        engine = data.Engine(stage.engine)
        engine.send(data.message("ZPE^Z01", "PEOPLE1", "ZPE|1|nothing maps this"))
        engine.settled()

    def setUp(self) -> None:
        super().setUp()
        self.number = self.message_id("PEOPLE1", "DEAD_LETTER")

    def person(self, name: str, path: str = "/") -> Page:
        """A signed-in person in a browser of his own."""
        page = self.page()
        self.sign_in(page, name, path)
        expect(page.get_by_text(f"{name} of the ward")).to_be_visible()
        return page

    def token(self, page: Page) -> str:
        """The token against forged requests of this page."""
        return str(page.locator("meta[name=csrf]").get_attribute("content"))

    def post(self, page: Page, path: str, **form: str) -> APIResponse:
        """A form that this person's browser sends; redirects are not followed."""
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.console.url}
        return page.request.post(path, data=urlencode(form), headers=headers, max_redirects=0)

    def test_two_people_have_nothing_of_each_other(self) -> None:
        viewer, admin = self.person("vic", f"/messages/{self.number}"), self.person("ada", f"/messages/{self.number}")
        expect(admin.get_by_role("button", name="Retry")).to_be_visible()
        expect(viewer.get_by_role("button", name="Retry")).to_have_count(0)
        self.assertEqual(self.post(viewer, f"/messages/{self.number}/retry", csrf=self.token(viewer)).status, 403)
        self.assertEqual(self.post(viewer, f"/messages/{self.number}/retry", csrf=self.token(admin)).status, 403)
        self.assertEqual(self.post(admin, f"/messages/{self.number}/retry", csrf=self.token(viewer)).status, 403)
        self.assertEqual(self.post(viewer, "/sign-out", csrf=self.token(viewer)).status, 200)
        admin.reload()
        expect(admin.get_by_text("ada of the ward")).to_be_visible()

    def test_the_proxy_knows_the_role(self) -> None:
        for name, delete, reload in (("vic", 403, 403), ("olga", 404, 403), ("ada", 404, 200)):
            page = self.person(name)
            headers = {"X-CSRF-Token": self.token(page), "Origin": self.console.url}
            self.assertEqual(page.request.get("/api/admin/messages").status, 200, name)
            for method, path, expected in (
                ("DELETE", "messages/999", delete), ("POST", "mapping/reload", reload),
            ):  # fmt: skip
                answer = page.request.fetch(f"/api/admin/{path}", method=method, headers=headers)
                self.assertEqual(answer.status, expected, f"{name} {path} {answer.text()}")

    def test_a_form_without_its_token_is_refused(self) -> None:
        page = self.person("ada")
        for form in ({}, {"csrf": ""}, {"csrf": self.token(page)[:-1]}):
            answer = self.post(page, f"/messages/{self.number}/retry", **form)
            self.assertEqual((answer.status, "has expired" in answer.text()), (403, True))

    def test_a_cookie_from_before_the_sign_in_is_not_taken_over(self) -> None:
        page = self.page()
        page.context.add_cookies([{"name": "ipf", "value": "planted", "url": self.console.url}])
        self.sign_in(page, "olga")
        (cookie,) = [one for one in page.context.cookies(self.console.url) if one["name"] == "ipf"]
        self.assertNotEqual(cookie["value"], "planted")

    def end_all_sessions(self) -> None:
        """They end with the process."""
        self.console.stop()
        self.console.start()

    def test_after_the_end_of_a_session_he_comes_back_to_the_page(self) -> None:
        page = self.person("olga", f"/messages/{self.number}?tab=raw")
        self.end_all_sessions()
        page.get_by_role("link", name="Effects").click()  # the provider still knows her
        expect(page).to_have_url(f"{self.console.url}/messages/{self.number}?tab=effects")

    def test_what_is_sent_after_the_end_of_a_session_is_not_done_and_said(self) -> None:
        page = self.person("olga", f"/messages/{self.number}?tab=raw")
        self.end_all_sessions()
        page.get_by_role("button", name="Retry").click()
        expect(page.get_by_role("heading", name="Your session has ended")).to_be_visible()
        page.get_by_role("link", name="Sign in again").click()
        expect(page).to_have_url(f"{self.console.url}/messages/{self.number}?tab=raw")
        expect(page.get_by_text("olga of the ward")).to_be_visible()

    def test_a_part_of_a_page_after_the_end_of_a_session(self) -> None:
        page = self.person("ada", f"/workbench?message={self.number}")
        self.end_all_sessions()
        with page.expect_navigation():
            page.locator("textarea[name=message]").fill("MSH|^~\\&|A")
        expect(page).to_have_url(f"{self.console.url}/workbench?message={self.number}")
        expect(page.get_by_text("ada of the ward")).to_be_visible()
