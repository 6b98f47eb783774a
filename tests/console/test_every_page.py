"""Every page, as it looks: light and dark, on a narrow screen, enlarged, for a screen reader, in German, its weight.

The pages are those that links lead to (`crawl.py`), so that a new page is tested without a word here.
IPF_SCREENSHOTS=FOLDER keeps a picture of each.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, Route, ViewportSize

from ipf.console.serving.web import PLACES
from tests.console import data
from tests.console.browser import BrowserTest
from tests.console.crawl import Client, Found, crawl, patterns
from tests.console.stage import Stage

GROUP = "browsers"
FAMILY = "console"

WIDE: ViewportSize = {"width": 1280, "height": 900}
NARROW: ViewportSize = {"width": 400, "height": 800}
ENLARGED: ViewportSize = {"width": 640, "height": 450}
"""What a window of 1280 x 900 shows at 200 %."""
MOST_BYTES = 200_000
_WEIGHT = """() => performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource'))
    .map((one) => one.encodedBodySize).reduce((sum, one) => sum + one, 0)"""
_OVERFLOW = """() => document.documentElement.scrollWidth > document.documentElement.clientWidth + 1
    ? [...document.querySelectorAll('body *')].filter((one) => one.getBoundingClientRect().right > innerWidth + 1
        && !one.closest('.scroll, .places, .both section'))
        .slice(0, 5).map((one) => one.outerHTML.slice(0, 120))
    : null"""
_FOCUS = """() => {
    const active = document.activeElement, one = active.shadowRoot?.activeElement ?? active;
    if (one === document.body) return null;
    const box = one.getBoundingClientRect(), style = getComputedStyle(one.closest('.cm-editor') ?? one);
    const ring = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1;
    return {seen: box.width > 0 && box.height > 0 && ring};
}"""
_PAINTED = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(
    () => done(true)))))"""
COLOURS = {"type": "tag", "values": ["cat.color"]}
"""The rules of axe that a colour scheme decides; the others find the same in each."""
_SERIOUS = ("serious", "critical")


class EveryPageTests(BrowserTest):
    has_own_engine = True  # a morning in a hospital
    found: list[Found] = []

    @classmethod
    def prepare(cls, stage: Stage) -> None:
        subscriber = data.Subscriber()
        stage.add_stop(subscriber.stop)
        engine = data.Engine(stage.engine)
        data.seed(engine, f"{subscriber.url}/working", f"{subscriber.url}/broken")

    def setUp(self) -> None:
        super().setUp()
        self.client = Client(self.console.port)
        self.client.sign_in()

    def crawled(self) -> list[Found]:
        """All pages in English, opened once for all tests: none of them changes what the engine holds."""
        case = type(self)
        case.found = case.found or crawl(self.client)
        return case.found

    def pages(self) -> Iterator[Found]:
        """The first page of each pattern."""
        seen = set()
        for found in self.crawled():
            if found.kind == "text/html" and found.pattern not in seen:
                seen.add(found.pattern)
                yield found

    def test_links_lead_to_pages_and_every_page_has_a_link(self) -> None:
        found = self.crawled()
        self.assertEqual([(one.url, one.status) for one in found if one.status != 200], [])
        reached = {one.pattern.partition("?")[0] for one in found}
        every = {f"{area}{path}" for area, paths in patterns().items() for path in paths}
        self.assertEqual(every - reached - PARTS, set())
        self.assertEqual({name for names in PLACES.values() for name in names} - set(patterns()), set())

    def test_every_page_in_german(self) -> None:
        self.client.headers["Accept-Language"] = "de"
        for found in crawl(self.client):
            if found.kind == "text/html":
                self.assertEqual(found.status, 200, found.url)
                self.assertIn('<html lang="de"', found.body, found.url)
                self.assertIn("Nachrichten", found.body, found.url)

    def test_every_page_on_every_screen(self) -> None:
        """No part is cut off, nothing comes from elsewhere, the scripts report nothing, axe finds nothing serious."""
        page, requests, reports = self.page(viewport=WIDE), [], []  # type: ignore[var-annotated]
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda line: reports.append(line.text) if line.type in ("error", "warning") else None)
        page.goto("/")
        wrong = [text for found in self.pages() for text in self._faults(page, found)]
        outside = {url for url in requests if not url.startswith((self.console.url, "data:"))}
        self.assertEqual("\n".join([*wrong, *outside, *reports]), "")

    def test_a_double_click_sends_once(self) -> None:
        """Each button of each form, without a hand on the engine: what it would send is counted."""
        page, sent = self.page(viewport=WIDE), []  # type: ignore[var-annotated]
        page.route("**/*", lambda route: _count(route, sent) if route.request.method == "POST" else route.continue_())
        page.on("dialog", lambda dialog: dialog.accept())
        page.goto("/")
        tried = 0
        for found in self.pages():
            for number in range(found.body.count('<form method="post"')):
                page.goto(found.url)
                form = page.locator('form[method="post"]').nth(number)
                for button in form.locator("button:visible:enabled").all():
                    fill(form)
                    sent.clear()
                    text = button.text_content()
                    button.dblclick()
                    self.wait(lambda: painted(page) and bool(sent), f"{found.url}: {text} sends")
                    self.assertTrue(painted(page))  # what a second click began has been sent too
                    self.assertEqual(len(sent), 1, f"{found.url}: {text}")
                    tried += 1
                    break  # the form has been sent
        self.assertGreater(tried, 4)

    def test_every_page_without_a_mouse(self) -> None:
        """The first stop leads past the navigation; each stop is visible, and its focus can be seen."""
        page = self.page(viewport=WIDE)
        page.goto("/")
        for found in self.pages():
            page.goto(found.url)
            page.keyboard.press("Tab")
            self.assertEqual(page.evaluate("() => document.activeElement.className"), "skip", found.url)
            page.keyboard.press("Enter")
            self.assertEqual(page.evaluate("() => document.activeElement.id"), "content", found.url)
            for _ in range(25):
                page.keyboard.press("Tab")
                if (focus := page.evaluate(_FOCUS)) is None:  # past the last one
                    break
                if not focus["seen"]:
                    page.wait_for_function(f"() => ({_FOCUS})()?.seen !== false")

    def _faults(self, page: Page, found: Found) -> Iterator[str]:
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(WIDE)
        page.goto(found.url)
        if not page.title().partition("·")[0].strip() or page.locator("h1").count() != 1:
            yield f"{found.url}: no title, or not one h1"
        if (weight := page.evaluate(_WEIGHT)) > MOST_BYTES:
            yield f"{found.url}: {weight} bytes"
        yield from (f"{found.url}: {text}" for text in _axe(page, "light"))
        keep(page, found, "light")
        page.emulate_media(color_scheme="dark")
        yield from (f"{found.url}: {text}" for text in _axe(page, "dark", runOnly=COLOURS))  # the rest is the same
        keep(page, found, "dark")
        for name, size in (("wide", WIDE), ("narrow", NARROW), ("enlarged", ENLARGED)):
            page.set_viewport_size(size)
            if (parts := page.evaluate(_OVERFLOW)) is not None:
                yield f"{found.url}: {name}: wider than the screen: {parts}"
            if name == "narrow":
                keep(page, found, name)


PARTS = {"codes/<int:id>/search", "messages/<int:id>/trace"}
"""Addresses that scripts ask for, without a link."""


def _count(route: Route, sent: list[str]) -> None:
    sent.append(route.request.url)
    route.fulfill(status=204)


def painted(page: Page) -> bool:
    """Whether the page has done what it had begun, twice over: handlers ran, forms were sent."""
    return bool(page.evaluate(_PAINTED))


def fill(form: Locator) -> None:
    """Something in every field that must be filled in."""
    for one in form.locator("input[required]:visible, textarea[required]:visible").all():
        if one.get_attribute("type") == "radio":
            one.check()
        else:
            one.fill("1")


def _axe(page: Page, scheme: str, **only: Any) -> Iterator[str]:
    """What axe finds, serious and critical."""
    found: dict[str, Any] = Axe().run(page, options={"resultTypes": ["violations"], **only}).response
    for one in found["violations"]:
        if one["impact"] in _SERIOUS:
            yield f"{scheme}: {one['id']}: {[node['html'][:160] for node in one['nodes'][:3]]}"


def keep(page: Page, found: Found, name: str) -> None:
    """A picture, where somebody wants one."""
    folder = os.environ.get("IPF_SCREENSHOTS")
    if folder:
        file = re.sub(r"[^a-z]+", "-", found.pattern.lower()).strip("-") or "overview"
        page.screenshot(path=Path(folder) / f"{file}.{name}.png", full_page=True)
