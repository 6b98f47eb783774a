"""Runs the code blocks of pages, each test with an engine of its own."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests.documentation.snippets import Page, PageEngine
from tests.runner.shared import scratch
from tests.service_process import ROOT


class PageTestCase(TestCase):
    """Tests that block: the engine is another process."""

    def run_pages(self, *names: str, changed: tuple[str, str] = ("", "")) -> None:
        """Run pages under docs one after the other, on one engine.  `changed`: a text and its replacement."""
        engine = PageEngine(Path(tempfile.mkdtemp(prefix="ipf-page-", dir=scratch())))
        self.addCleanup(shutil.rmtree, engine.folder, ignore_errors=True)
        self.addCleanup(engine.close)
        for name in names:
            Page(ROOT / "docs" / name, engine, changed).run()
