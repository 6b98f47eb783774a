"""The pages that `bin/reference` writes are current."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.documentation.generated import FOLDER, PAGES


class GeneratedTests(SynchronousTestCase):
    def test_pages_are_those_of_the_code(self) -> None:
        for name, text in PAGES.items():
            with self.subTest(page=name):
                current = (FOLDER / name).read_text(encoding="utf-8") == text()
                self.assertTrue(current, "run bin/reference")
