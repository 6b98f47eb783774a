"""The texts: complete in every language, with the same placeholders, and none that no page uses."""

from __future__ import annotations

import re
import string
import tomllib
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.console.html.texts import LANGUAGES, language_of, texts
from ipf.console.pages.messages import MESSAGES
from ipf.console.pages.operations import LISTS

CONSOLE = Path(__file__).resolve().parents[2] / "ipf/console"
_KEY = re.compile(r"""t(?:\.get)?\(["']([a-z_]+\.[A-Za-z_]*[A-Za-z])["']""")
_DYNAMIC = (
    "field.",
    "state.",
    "nav.",
    "list.none_",
    "problem.",
    "sign_in.",
    "message.",
    "app.theme_",
    "dead.",
    "field.",
    "state.",
    "nav.",
    "list.none_",
    "problem.",
    "sign_in.",
    "message.",
    "app.theme_",
    "dead.",
    "browse.",
    "overview.wrong_",
    "trace.kind_",
    "job.kind_",
    "conflict.",
    "effects.",
    "profile.",
    "timeline.",
    "subscription.",
    "interfaces.kind_",
    "topic.",
    "code.",
    "sample.",
    "send.",
)
"""Sections with keys that are put together from a value."""


def own(language: str) -> dict[str, str]:
    """The texts that a language has itself."""
    sections = tomllib.loads((CONSOLE / f"texts/{language}.toml").read_text())
    return {f"{section}.{name}": text for section, entries in sections.items() for name, text in entries.items()}


def placeholders(text: str) -> set[str]:
    """The names in braces."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


class TextTests(TestCase):
    def test_every_language_has_every_text(self) -> None:
        for language in LANGUAGES:
            self.assertEqual(own("en").keys() - own(language).keys() - {"app.name"}, set(), language)
            self.assertEqual(own(language).keys() - own("en").keys(), set(), language)

    def test_placeholders_are_the_same(self) -> None:
        for language in LANGUAGES:
            for key, text in own(language).items():
                self.assertEqual(placeholders(text), placeholders(texts("en")[key]), key)

    def test_templates_use_texts_that_there_are(self) -> None:
        used = {key for path in (CONSOLE / "templates").glob("*.html") for key in _KEY.findall(path.read_text())}
        self.assertEqual({key for key in used if key not in texts("en")}, set())
        unused = {key for key in own("en") if key not in used and not key.startswith(_DYNAMIC)}
        self.assertEqual(unused, set())

    def test_lists_have_their_texts(self) -> None:
        for one in (MESSAGES, *LISTS):
            keys = [f"nav.{one.area}", f"list.none_{one.area}", *(f"field.{c.name}" for c in one.columns)]
            keys += [f"field.{f.name}" for f in one.filters] + [f"state.{c}" for f in one.filters for c in f.choices]
            self.assertEqual([key for key in keys if key not in texts("en")], [])


class LanguageTests(TestCase):
    def test_the_language_of_a_person(self) -> None:
        for wanted, chosen, language in [
            ("de-DE,de;q=0.9,en;q=0.8", "", "de"), ("fr,en;q=0.5,de;q=0.4", "", "en"), ("", "", "en"), ("fr", "", "en"),
            ("de", "en", "en"), ("en;q=0,de;q=0.1", "", "de"), ("x;q=y,de", "nothing", "de"),
        ]:  # fmt: skip
            self.assertEqual(language_of(wanted, chosen), language, wanted)
