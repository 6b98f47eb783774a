"""Each code block of a tutorial or a how-to guide runs in a test, or says why it cannot."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.documentation.snippets import expected, settings, snippets
from tests.service_process import ROOT

_KINDS = {
    "run": {"", "fails", "until", "engine", "background"},
    "output": {"", "background"},
}
_SHOWS = {"", "text", "hl7", "ini", "toml", "yaml", "json", "fml", "sql", "conf"}
"""Languages of blocks that show something and are no command."""
_RUN_BY = re.compile(r"run_pages\(\s*((?:\"[^\"]+\",?\s*)+)")


def guides() -> list[Path]:
    """The pages whose commands people copy."""
    return sorted(path for part in ("tutorials", "how-to") for path in (ROOT / "docs" / part).glob("*.md"))


def pages_that_run() -> set[str]:
    """The pages that a test of this package runs."""
    tests = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    return {name for call in _RUN_BY.findall(tests) for name in re.findall(r'"([^"]+)"', call)}


class SnippetTests(SynchronousTestCase):
    def test_each_command_runs_or_says_why_not(self) -> None:
        wrong, ran = [], pages_that_run()
        for page in guides():
            name = str(page.relative_to(ROOT / "docs"))
            for block in snippets(page.read_text()):
                place = f"{name}:{block.line}"
                if block.kind in ("not run", "file"):
                    wrong += [] if block.argument else [f"{place}: no reason or name"]
                elif block.kind in _KINDS:
                    wrong += [] if block.argument in _KINDS[block.kind] else [f"{place}: {block.argument}"]
                    wrong += [] if name in ran else [f"{place}: no test runs this page"]
                elif block.kind or block.language not in _SHOWS:
                    wrong.append(f"{place}: a command without a comment {block.kind}")
        self.assertEqual(wrong, [])

    def test_the_list_of_what_does_not_run(self) -> None:
        """The page lists the reasons, with their pages."""
        reasons: dict[str, set[str]] = {}
        for page in guides():
            for block in snippets(page.read_text()):
                if block.kind == "not run":
                    reasons.setdefault(block.argument, set()).add(page.name)
        index = (ROOT / "docs/how-to/README.md").read_text().partition("## Commands")[2]
        rows = re.findall(r"^\| ([^|\n]+) \| (\[[^|\n]+\)) \|$", index, re.MULTILINE)
        listed = {reason: set(re.findall(r"/?([^/(]+\.md)\)", pages)) for reason, pages in rows}
        self.assertEqual(listed, reasons)


class ReadingTests(SynchronousTestCase):
    def test_comments_before_blocks(self) -> None:
        page = "a\n<!-- run -->\n```sh\nb\n```\n\n   <!-- file: x.y -->\n\n   ```\n   c\n   ```\n\n```json\nd\n```\n"
        found = [(one.kind, one.argument, one.language, one.text) for one in snippets(page)]
        self.assertEqual(found, [("run", "", "sh", "b\n"), ("file", "x.y", "", "c\n"), ("", "", "json", "d\n")])

    def test_what_output_may_be(self) -> None:
        for text, printed, fits in (
            ("a", "a\n", True),
            ("a", "ab\n", False),
            ("a...", "ab\n", True),
            ("a\n...\nb", "x\na\n1\n2\nb\n", True),
            ("a\n...\nb", "a\nb\n", False),
            ("...\nb", "1\n2\nb  \n", True),
            ("a\nb", "b\na\n", False),
        ):
            with self.subTest(text=text, printed=printed):
                self.assertEqual(expected(text).search(printed) is not None, fits)

    def test_settings_before_the_start(self) -> None:
        self.assertEqual(settings('A=1 B="2 3" \\\n bin/run   # comment\n'), {"A": "1", "B": "2 3"})
