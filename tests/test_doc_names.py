"""Every file and command that a page of the documentation names is there, and every page that a file names."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).resolve().parent.parent
_NAMED = re.compile(r"(?<![\w/.-])((?:tests|bench|conformance|bin)/[\w./-]*[\w/])")
_MODULE = re.compile(r"\bbin/test (tests[\w.]*\w)")
_PAGE = re.compile(r"(?<![\w/.-])docs/(?:tutorials|how-to|reference|explanation)/[a-z0-9-]+\.(?:md|csv)")
_SOURCES = ("ipf", "etc", "bin", "tests", "maps", "bench", "conformance")
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

    def test_pages_that_files_name_are_there(self) -> None:
        """Links in code, units, alerts, chart and messages follow a page that moves."""
        gone, found = set(), 0
        for path in (path for folder in _SOURCES for path in (ROOT / folder).rglob("*")):
            if path.suffix in (".pyc", ".png", ".gz", ".woff2") or not path.is_file():
                continue
            names = _PAGE.findall(path.read_text(errors="replace"))
            found += len(names)
            gone |= {f"{path.relative_to(ROOT)}: {name}" for name in names if not (ROOT / name).exists()}
        self.assertEqual(gone, set())
        self.assertGreater(found, 50)
