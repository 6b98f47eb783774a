"""Words of the documentation: plain technical English, subject first.

Source: the section "Prose" of the architecture.
"""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.documentation.generated import PAGES
from tests.service_process import ROOT

OUT = {
    r"what (?:is|it|its|they|he|the|a|an|was|were|came|comes|has|have|does|did|makes?|that|this|somebody|nobody)\b": (
        "name the thing: `the stored value`, not `what is stored`"
    ),
    r"\bwhose\b": "`a message with the number`, not `a message whose number`",
    r"\bthere (?:is|are) none\b": "`if it is missing`",
    r"\bof who\b": "name the person or the system",
    r"\bof (?:its|their|his|her|our|your|one's) own\b": "`a separate process`, not `a process of its own`",
    r"\bby (?:itself|themselves|himself)\b": "leave it out",
    r"\btold\b": "`notified`, `answered`, `reported`",
    r"\bstands?\b(?! (?:by|for))": "`is`",
    r"\bmend(?:s|ed|ing)?\b": "`correct`",
    r"\bhad better\b": "`should`",
    r"\bwhoever\b": "name the person or the system",
    r"\b(?:he|she) may\b": "name the person or the system",
    r"\b(?:is|are|be) (?:thrown|looked) (?:away|at)\b": "`read`, `removed`",
    r"\bfor ever\b": "`without a limit`",
    r"\bwithout a word\b": "`silently`",
    r"\bnothing needs you\b": "`all systems normal`",
    r"\b(?:was not tried|not tried|nobody (?:ran|tried))\b": "leave out claims that nobody checked",
}
"""Patterns that are out, each with a better wording."""
_CODE = re.compile(r"```.*?```|`[^`\n]*`|<!--.*?-->|\]\([^)]*\)|https?://\S+", re.DOTALL)


def pages() -> list[Path]:
    """All pages that people write."""
    written = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return sorted(path for path in written if path.name not in {*PAGES, "mapping-coverage.md"})


def found(text: str) -> list[tuple[int, str, str]]:
    """Line, words and advice of each phrase that is out; code, links and comments do not count."""
    prose = _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    return [
        (prose.count("\n", 0, hit.start()) + 1, hit[0], advice)
        for pattern, advice in OUT.items()
        for hit in re.finditer(pattern, prose, re.IGNORECASE)
    ]


class WordTests(SynchronousTestCase):
    def test_plain_words(self) -> None:
        wrong = [
            f"{page.relative_to(ROOT)}:{line}: {words!r}: {advice}"
            for page in pages()
            for line, words, advice in found(page.read_text())
        ]
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))

    def test_it_finds_them(self) -> None:
        text = "It says what it is.\n`what is`\n[x](what-is.md) whose\n```\ntold\n```\nBy\nitself and of its own.\n"
        self.assertEqual(
            sorted((line, words.lower()) for line, words, _ in found(text)),
            [(1, "what it"), (3, "whose"), (8, "of its own")],
        )
