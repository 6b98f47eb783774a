"""The documentation as a site (etc/site/conf.py): what is broken is an error, and nothing comes from elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import TestCase

ROOT = Path(__file__).resolve().parent.parent
README = """# Start

## Documentation

| page | contents |
|---|---|
| [one](docs/part/one.md#one) | a [folder](etc/units), a [file](etc/ipf.env) |
| [contributing](CONTRIBUTING.md) | rules |
"""


class SiteTests(TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ipf-site-"))
        self.addCleanup(shutil.rmtree, self.folder)
        for name in ("etc/man/ipf.rst", "etc/man/ipfctl.rst"):
            self.write(name, "Title\n=====\n")
        self.write("CONTRIBUTING.md", "# Contributing\n")
        self.write("etc/ipf.env", "IPF_X=1\n")
        self.write("etc/units/ipf.service", "[Unit]\n")
        self.write("README.md", README)
        self.write("CHANGELOG.md", "# Changes\n")
        self.write("maps/README.md", "# Maps\n")
        self.write("docs/README.md", "# Index\n\n[part](part/README.md)\n")
        self.write("docs/part/README.md", "# Part\n\n[one](one.md)\n")

    def write(self, name: str, text: str) -> None:
        """A file of the site."""
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def build(self) -> tuple[int, str]:
        """Exit status of Sphinx, and its warnings."""
        command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--no-color"]
        command += ["--conf-dir", str(ROOT / "etc/site"), str(self.folder), str(self.folder / "dist/site")]
        quiet = {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": ""}  # warnings of Sphinx, not of its libraries
        ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | quiet)
        return ended.returncode, ended.stderr

    def test_what_is_broken_is_named(self) -> None:
        self.write("docs/part/one.md", "# One\n\n[a](../../README.md#nothing) [b](two.md#nothing) [c](three.md)\n")
        self.write("docs/part/two.md", "# Two\n")
        self.write("docs/other/README.md", "# Other\n")
        status, said = self.build()
        self.assertEqual(status, 1, said)
        for place, rule in (
            ("docs/part/one.md:3", "'nothing'"),
            ("docs/part/one.md:3", "'three.md'"),
            ("docs/part/two.md", "docs/part/README.md does not name this page"),
            ("docs/other/README.md", "docs/README.md does not name this page"),
        ):
            self.assertTrue([line for line in said.splitlines() if place in line and rule in line], (place, said))
        self.assertEqual(len(re.findall("'nothing'", said)), 2, said)

    def test_a_site_that_needs_no_other_host(self) -> None:
        self.write("docs/part/one.md", "# One\n\n[start](../../README.md#documentation)\n")
        status, said = self.build()
        self.assertEqual((status, said), (0, ""))
        pages = [path.read_text() for path in (self.folder / "dist/site").rglob("*.html")]
        self.assertGreater(len(pages), 4)
        for page in pages:
            elsewhere = r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*"'
            self.assertEqual(re.findall(elsewhere, page), [])
        for sheet in (self.folder / "dist/site").rglob("*.css"):
            self.assertNotRegex(sheet.read_text(), r"url\(\s*['\"]?(?:https?:)?//|@import")
        start = (self.folder / "dist/site/index.html").read_text()
        self.assertIn('href="docs/part/one.html#one"', start)
        self.assertRegex(start, r'href="_downloads/[^"]+/ipf\.env"')
        self.assertNotIn('etc/units"', start)

    def test_the_rows_of_a_table_are_on_its_page(self) -> None:
        self.write("docs/part/one.md", "# One\n")
        self.write("docs/part/README.md", "# Part\n\n[one](one.md)\n")
        self.write("docs/reference/README.md", "# Reference\n\n[coverage](mapping-coverage.md)\n")
        self.write("docs/README.md", "# Index\n\n[part](part/README.md) [reference](reference/README.md)\n")
        self.write("docs/reference/mapping-coverage.md", "# Coverage\n\n[rows](mapping-coverage.csv)\n")
        self.write("docs/reference/mapping-coverage.csv", 'row,reason\nPID-3,"a, <b>"\n')
        status, said = self.build()
        self.assertEqual((status, said), (0, ""))
        page = (self.folder / "dist/site/docs/reference/mapping-coverage.html").read_text()
        self.assertIn("<tr><td>PID-3</td><td>a, &lt;b&gt;</td></tr>", page)
        self.assertIn('class="table-search"', page)
        self.assertRegex(page, r'src="[./]*_static/table-search\.js')
        self.assertRegex(page, r'href="[./]*_downloads/[^"]+/mapping-coverage\.csv"')
