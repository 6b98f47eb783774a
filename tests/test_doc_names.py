"""Every file of tests, and every command, that a page of the documentation names is there."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).resolve().parent.parent
_NAMED = re.compile(r"(?<![\w/.-])((?:tests|bench|conformance|bin)/[\w./-]*[\w/])")
_MODULE = re.compile(r"\bbin/test (tests[\w.]*\w)")
_OTHER_TESTS = "vendor-profiles.md"  # `tests/` there is a folder of a vendor profile


class NameTests(SynchronousTestCase):
    def test_files_and_modules_that_pages_name_are_there(self) -> None:
        gone, found = [], 0
        for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
            if page.name == _OTHER_TESTS:
                continue
            text = page.read_text()
            names = _NAMED.findall(text) + [name.replace(".", "/") for name in _MODULE.findall(text)]
            found += len(names)
            gone += [f"{page.name}: {name}" for name in names if not self.is_there(name)]
        self.assertEqual(gone, [])
        self.assertGreater(found, 50)

    def is_there(self, name: str) -> bool:
        """Whether a file, a folder or a module has this name."""
        return (ROOT / name).exists() or (ROOT / f"{name}.py").exists()
