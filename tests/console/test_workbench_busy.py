"""The workbench while other trials of maps take all places: its page asks again."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.console.html.rendering import Renderer
from ipf.console.html.static import StaticFiles
from ipf.console.pages.workbench import run
from ipf.console.serving.backend import BackendRefused


class View:
    """The part of a view that the page uses; the engine refuses with a status."""

    is_masked = False

    def __init__(self, status: int, message: str = "MSH|") -> None:
        self.form = {"map": "map", "message": message}
        self._status = status

    async def send(self, method: str, path: str, body: Any) -> Any:
        raise BackendRefused(self._status, "the reason <b>")

    def page(self, template: str, **values: Any) -> str:
        return Renderer(StaticFiles()).page(template, "en", values).decode()


class BusyTests(TestCase):
    async def shown(self, status: int, message: str = "MSH|") -> str:
        view: Any = View(status, message)
        return str(await run(view))

    async def test_it_asks_again_while_there_is_no_place(self) -> None:
        text = await self.shown(503)
        self.assertIn('hx-post="/workbench/run" hx-trigger="load delay:2s"', text)
        self.assertIn("the reason &lt;b&gt;", text)

    async def test_it_asks_once_about_what_is_wrong(self) -> None:
        for status in (400, 413, 422):
            text = await self.shown(status)
            self.assertNotIn("hx-post", text)
            self.assertIn('class="error"', text)
        self.assertNotIn("hx-post", await self.shown(503, " "))
