"""What senders, subscribers and links may say: every page shows it as it is, and runs none of it."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from playwright.sync_api import Page, expect

from tests.console import data
from tests.console.browser import BrowserTest
from tests.console.crawl import Client, crawl
from tests.console.stage import Stage

GROUP = "browsers"
FAMILY = "console"

SCRIPT = "<script>window.pwned=1</script>"
IMAGE = '"><img src=/pwned.png onerror=window.pwned=1>'
TEMPLATE = "{{70707*70707}}${70707*70707}"
LINK = "javascript:window.pwned=1"
HOSTILE = (SCRIPT, IMAGE, TEMPLATE, LINK)


def messages() -> Iterator[bytes]:
    """Messages with one of the texts in every field; the kind of the second has no map, so it stands in an error."""
    for number, text in enumerate(HOSTILE):
        header = f"MSH|^~\\&|{text}|{text}|{text}|{text}|20260301083000||%s|{text}{number}|P|2.5.1"
        body = (
            f"EVN|A01|20260301083000||{text}|{text}",
            f"PID|1||X{number}{text}^^^{text}^MR||{text}^{text}^{text}||19580214|M|||{text}^^{text}^^50674^DE||{text}",
            f"NK1|1|{text}^{text}|{text}^{text}^{text}|{text}|{text}",
            f"PV1|1|I|{text}^{text}^{text}^{text}|R|||1^{text}^{text}|||{text}||||1|||1^{text}^{text}|IP|V{number}{text}",
            f"AL1|1|DA|{text}^{text}^{text}|{text}|{text}", f"DG1|1||{text}^{text}^{text}||20260301|A",
            f"ZZZ|{text}|{text}",
        )  # fmt: skip
        for kind, suffix in (("ADT^A01^ADT_A01", ""), (f"{text}^{text}", "K")):
            given = (header.replace("|P|2.5.1", f"{suffix}|P|2.5.1") % kind, *body)
            yield "".join(f"{one}\r" for one in given).encode()
        panel = (
            f"OBR|1|P{number}|F{number}|{text}^{text}^{text}|||20260301|||||||||||||||20260301||CH|F",
            f"OBX|1|ST|{text}^{text}^{text}|{text}|{text}|{text}|{text}|{text}|||F",
            f"OBX|2|CWE|{text}^{text}^{text}|{text}|{text}^{text}^{text}||||||F", f"NTE|1||{text}",
        )  # fmt: skip
        header = header.replace(f"{text}{number}|P", f"{text}{number}R|P")
        yield "".join(f"{one}\r" for one in (header % "ORU^R01^ORU_R01", body[1], *panel)).encode()


class HostileContentTests(BrowserTest):
    has_own_engine = True  # every field of it is hostile

    @classmethod
    def prepare(cls, stage: Stage) -> None:
        engine = data.Engine(stage.engine)
        for number, text in enumerate(HOSTILE):
            channel = {
                "type": "rest-hook",
                "endpoint": f"http://127.0.0.1:9/{quote(text)}",
                "header": [f"X-Text: {text}"],
            }
            engine.must("POST", "/fhir/Subscription", {
                "resourceType": "Subscription", "status": "requested", "reason": text, "channel": channel,
                "criteria": f"Patient?family={text}",
            })  # fmt: skip
            engine.must("PUT", f"/fhir/Patient/hostile{number}", {
                "resourceType": "Patient", "id": f"hostile{number}", "name": [{"text": text, "family": text}],
                "identifier": [{"value": text}],
                "contact": [{"organization": {"display": text}}],
                "photo": [{"url": text.replace(" ", "/"), "title": text}],
                "generalPractitioner": [{"display": text}], "telecom": [{"system": "url", "value": text}],
            })  # fmt: skip
        engine.send(*messages())
        engine.send(SCRIPT.encode(), IMAGE.encode())
        engine.settled()

    def setUp(self) -> None:
        super().setUp()
        self.tab = self.page()
        self.asked: list[str] = []
        self.tab.on("request", lambda one: None if one.is_navigation_request() else self.asked.append(one.url))
        self.tab.on("dialog", lambda dialog: self.fail(dialog.message))
        self.tab.goto("/")

    def check(self, page: Page) -> None:
        """Nothing on this page ran, became an element, or is a link that would run."""
        self.assertIsNone(page.evaluate("() => window.pwned ?? null"), page.url)
        self.assertEqual([one for one in self.asked if "/pwned.png" in one], [], page.url)
        self.assertEqual(page.locator("img[src*=pwned], [onerror], [href^='javascript:' i]").count(), 0, page.url)
        self.assertNotIn("4999479849", page.content())  # the result, if it were a template

    def test_pages_of_hostile_data(self) -> None:
        client = Client(self.console.port)
        client.sign_in()
        found = [one for one in crawl(client, most=15) if one.kind == "text/html"]
        self.assertEqual([one.url for one in found if one.status != 200], [])
        for one in found:
            self.tab.goto(one.url)
            self.tab.wait_for_load_state()
            self.check(self.tab)
        texts = {
            text: {one.pattern.partition("?")[0] for one in found if _escaped(text) in one.body} for text in HOSTILE
        }
        for pattern in ("messages/", "messages/<int:id>", "codes/", "subscriptions/", "browse/"):
            self.assertEqual([text for text in HOSTILE if pattern not in texts[text]], [], pattern)
        self.assertIn("dead-letters/", set().union(*texts.values()))  # of texts that differ little it shows one

    def test_hostile_addresses(self) -> None:
        for text in HOSTILE:
            given = quote(text)
            for url in (
                f"/messages?text={given}&status={given}&source_system={given}&columns={given}&offset={given}&x={given}",
                f"/messages/{given}", f"/messages/1?tab={given}", f"/{given}", f"/browse?type=Patient&{given}={given}",
                f"/browse?type={given}", f"/browse/Patient/{given}", f"/browse/{given}/1", f"/dead-letters/{given}",
                f"/dead-letters/x?action={given}", f"/subscriptions/{given}", f"/workbench?map={given}&message={given}",
                f"/sign-in?to={given}", f"/sign-in/begun?to={given}", f"/jobs/{given}",
                f"/sign-in/callback?code={given}&state={given}&error={given}",
                f"/audit?agent={given}&since={given}", f"/system?changed={given}",
            ):  # fmt: skip
                self.tab.goto(url)
                self.check(self.tab)
                self.assertTrue(self.tab.url.startswith(self.console.url), self.tab.url)

    def test_a_trace_shows_hostile_fields_as_text(self) -> None:
        self.tab.goto("/messages?text=pwned&message_type=ADT_A01")
        self.tab.get_by_role("row").nth(1).get_by_role("link").first.click()
        self.tab.get_by_role("link", name="Trace").click()
        for one in self.tab.locator(".field").all()[:30]:
            one.click()
        expect(self.tab.locator(".both").get_by_text("window.pwned=1").first).to_be_visible()
        self.check(self.tab)

    def test_the_workbench_shows_hostile_text(self) -> None:
        self.tab.goto("/workbench")
        for text in HOSTILE:
            self.tab.locator("textarea[name=message]").fill(
                f"MSH|^~\\&|{text}|{text}|||20260301||ADT^A01|{text}|P|2.5.1"
            )
            self.tab.locator(".cm-content").click()
            self.tab.keyboard.press("Control+a")
            self.tab.keyboard.press("Delete")
            self.tab.keyboard.insert_text(f'map "{text}" = "{text}" {text}')
            expect(self.tab.locator("#result")).to_contain_text("candidate.fml")
            self.check(self.tab)


def _escaped(text: str) -> str:
    """As Jinja2 writes it."""
    for sign, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&#34;"), ("'", "&#39;")):
        text = text.replace(sign, name)
    return text
