"""`bin/console-screenshots`: the pictures of docs/reference/console.md, of invented data, light and dark.

usage: bin/console-screenshots [FOLDER]      default: docs/images/console
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.console import data
from tests.console.browser import CHROMIUM
from tests.console.process import ConsoleProcess
from tests.console.stage import SETTINGS
from tests.service_process import ROOT, ServiceProcess

SIZE = {"width": 1100, "height": 620}


def _click(name: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role("link", name=name).first.click()


def _opened(path: str, *links: str) -> Callable[[Page], None]:
    def look(page: Page) -> None:
        page.goto(path)
        for name in links:
            _click(name)(page)

    return look


def _first_row(path: str, tab: str = "") -> Callable[[Page], None]:
    def look(page: Page) -> None:
        page.goto(path)
        page.locator("tbody tr a").first.click()
        if tab:
            page.locator(".tabs").get_by_role("link", name=tab).click()

    return look


def _traced(page: Page) -> None:
    """A delivered admission, with the elements of its patient's name marked."""
    _first_row("/messages?source_id=A1", "Trace")(page)
    page.locator(".field[data-place='PID-5']").click()
    page.locator(".both").scroll_into_view_if_needed()


PICTURES: dict[str, Callable[[Page], None]] = {
    "overview": _opened("/"),
    "messages": _opened("/messages"),
    "message": _first_row("/messages?status=DEAD_LETTER"),
    "trace": _traced,
    "dead-letters": _opened("/dead-letters"),
    "conflict": _first_row("/conflicts?resource_type=Patient"),
    "interfaces": _opened("/interfaces"),
    "subscription": _first_row("/subscriptions"),
    "workbench": _opened("/workbench?message=1"),
}
DARK = ("overview", "trace")


def main(folder: Path) -> None:
    """Make all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ipf-pictures-")))
        os.chmod(scratch, 0o755)
        engine = ServiceProcess(scratch, **SETTINGS)
        engine.start()
        stack.callback(engine.stop)
        console = ConsoleProcess(scratch, engine.base_url)
        console.start()
        stack.callback(console.stop)
        subscriber = data.Subscriber()
        stack.callback(subscriber.stop)
        engine.wait_ready()
        data.seed(data.Engine(engine), f"{subscriber.url}/working", f"{subscriber.url}/broken")
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        stack.callback(browser.close)
        for scheme, names in (("light", tuple(PICTURES)), ("dark", DARK)):
            context = browser.new_context(base_url=console.url, viewport=SIZE, color_scheme=scheme, locale="en-GB")
            page = context.new_page()
            for name in names:
                PICTURES[name](page)
                page.wait_for_load_state()
                page.wait_for_timeout(1500)  # figures that follow the engine, and scripts that mark
                page.evaluate("() => document.querySelector('.banner').remove()")
                file = folder / (f"{name}.png" if scheme == "light" else f"{name}-dark.png")
                page.screenshot(path=file, scale="css")
                subprocess.run(["pngquant", "48", "--speed", "1", "--force", "--output", file, file], check=True)
                print(f"{file}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/images/console")
