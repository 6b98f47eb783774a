"""A viewer to whom patient data is masked, in a real browser; and what anybody looked at, in the audit trail."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.console.browser import send
from tests.console.people import PeopleTest
from tests.console.process import ConsoleProcess
from tests.console.stage import Stage
from tests.faults.feed import admission

GROUP = "browsers"
FAMILY = "console"

SECRETS = ("Hansen", "Kari", "SECRET77", "+47SECRET")


class MaskingTests(PeopleTest):
    """`IPF_UI_MASK=viewer`: vic sees no patient data, ada does."""

    console_name = "masked"

    @classmethod
    def open_console(cls, stage: Stage) -> ConsoleProcess:
        """The console, with masking."""
        console = super().open_console(stage)
        console.environment["IPF_UI_MASK"] = "viewer"
        return console

    @classmethod
    def prepare(cls, stage: Stage) -> None:
        """One patient comes."""
        send(stage.engine.mllp_port, admission("M77", "SECRET77", "+47SECRET"))

    def admitted(self) -> str:
        """The patient has come; his id."""
        self.message = f"/messages/{self.message_id('M77', 'DELIVERED')}"
        return str(self.engine.get("/fhir/Patient?identifier=SECRET77")[1]["entry"][0]["resource"]["id"])

    def check_masked(self, page: Page, url: str, *, shows: str = "") -> None:
        """A page of the console has none of the secrets."""
        page.goto(url)
        text = page.content()
        for secret in SECRETS:
            self.assertNotIn(secret, text, url)
        self.assertIn(shows, text, url)

    def test_a_viewer_sees_no_patient_data_on_any_page(self) -> None:
        id, page = self.admitted(), self.page()
        self.sign_in(page, "vic")
        expect(page.get_by_text("Patient data is masked for your role.")).to_be_visible()
        message, patient = self.message, f"/browse/Patient/{id}"
        for url, shows in [
            (message, "***"), (f"{message}?tab=raw", "PID|1||***"), (f"{message}/trace", "***"),
            (f"{message}?tab=effects", id), ("/messages", "M77"), (patient, "***"), (f"{patient}?tab=json", "***"),
            (f"{patient}?tab=history", "***"), (f"{patient}?tab=timeline", ""), ("/browse?type=Patient", id),
            (f"/workbench?message={message.rpartition('/')[2]}", "***"), ("/audit", ""), ("/conflicts", ""),
        ]:  # fmt: skip
            self.check_masked(page, url, shows=shows)

    def test_searches_by_patient_are_refused(self) -> None:
        self.admitted()
        page = self.page()
        self.sign_in(page, "vic")
        for url in (
            "/messages?patient=SECRET77", "/messages?text=hansen", "/messages/export.csv?text=kari",
            "/browse?type=Patient&name=hansen", "/browse?type=Patient&parameter=identifier&value=x",
        ):  # fmt: skip
            page.goto(url)
            heading = page.get_by_role("heading", name="Your role cannot see patient data")
            expect(heading).to_be_visible()

    def test_the_proxy_obeys_the_same_rule(self) -> None:
        self.admitted()
        page = self.page()
        self.sign_in(page, "vic")
        answer = page.request.get(f"/api/admin{self.message}")
        self.assertEqual(answer.status, 200)
        for secret in SECRETS:
            self.assertNotIn(secret, answer.text())
        for path in ("rejects/1", "messages?patient=SECRET77", "audit/export", f"{self.message[1:]}%2Ftrace"):
            self.assertIn(page.request.get(f"/api/admin/{path}").status, (400, 403), path)

    def test_others_see_it_and_the_trail_says_so(self) -> None:
        id, page = self.admitted(), self.page()
        self.sign_in(page, "ada", f"/browse/Patient/{id}")
        expect(page.get_by_text("Hansen").first).to_be_visible()
        page.goto(f"{self.message}?tab=raw")
        expect(page.get_by_text("Hansen").first).to_be_visible()
        of_ada = "actor=ada%20of%20the%20ward%20(ada)"
        views = f"/admin/audit?{of_ada}&interaction=view&patient={id}"
        self.wait(lambda: self.engine.get(views)[1]["total"] == 1)
        (found,) = self.engine.get(views)[1]["items"]
        self.assertEqual((found["target"], found["entities"]), (f"/browse/Patient/{id}", [f"Patient/{id}"]))
        reads = f"/admin/audit?{of_ada}&interaction=read&entity={self.message[1:]}"
        self.wait(lambda: self.engine.get(reads)[1]["total"] == 1)
        page.goto(f"/audit?patient={id}&interaction=view")
        expect(page.get_by_text("ada of the ward (ada)").first).to_be_visible()
