"""The texts: complete in every language, with the same placeholders, and none that no page uses."""

from __future__ import annotations

import re
import string
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from twisted.trial.unittest import TestCase

from ipf.cli.main import cli
from ipf.console.html.rendering import Words, number
from ipf.console.html.texts import LANGUAGES, language_of, texts
from ipf.console.pages.messages import MESSAGES
from ipf.console.pages.operations import LISTS
from ipf.wire.reference.table import admin_document, observe_api_document
from tests.cli.samples import commands

CONSOLE = Path(__file__).resolve().parents[2] / "ipf/console"
_KEY = re.compile(r"""t(?:\.get|\.count)?\(["']([a-z_]+\.[A-Za-z_]*[A-Za-z])["']""")
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
    "app.zone_",
    "list.ago_",
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


_SAME_FOR_ONE = {
    "interfaces.silent_senders_one", "workbench.first_differing", "subscription.more_tries", "overview.all_senders",
    "overview.no_subscriptions", "timeline.failed",
}  # fmt: skip
"""Texts in which the count is never one, or the word after it is the same."""
OUT = (
    "needs you", "maps of now", "came of (it|a)", "became of", "by means of", "decided otherwise",
    "nothing is found", "not served:", "looked at it", "of who", "begin with", "take this sample",
    "sees no patient data", "what happened", "was not done", "nobody signs in",
    "braucht sie", "auf einen menschen", "verstummt\\w*", "binnen", "aufgehoben", "heutigen maps", "jetzigen maps",
    "nicht übersetzbar", "was (es|er) (ansah|änderte)", "was geschah", "was daraus wurde", "lebenszeichen",
    "übergangen",
    "mittels", "worüber", "gescheitert\\w*",
)  # fmt: skip
"""Phrases that people stumble over when they read them aloud; plain ones take their place."""


def spoken() -> Iterator[tuple[str, str]]:
    """What people read, with its place."""
    for language in LANGUAGES:
        yield from ((f"{language} {key}", text) for key, text in own(language).items())
    for words, command in commands(cli):
        yield f"ipfctl {words}", " ".join((command.help or "").split())
        yield from ((f"ipfctl {words}", one.help or "") for one in command.params if isinstance(one, click.Option))
    yield from _summaries(admin_document("x"))
    yield from _summaries(observe_api_document("x"))


def _summaries(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        yield from (("OpenAPI", text) for name, text in value.items()
                    if name in ("summary", "description") and isinstance(text, str))  # fmt: skip
        for inner in value.values():
            yield from _summaries(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _summaries(inner)


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
        used |= {f"{key}{count}" for key in used for count in ("_one", "_none")}
        unused = {key for key in own("en") if key not in used and not key.startswith(_DYNAMIC)}
        self.assertEqual(unused, set())

    def test_lists_have_their_texts(self) -> None:
        for one in (MESSAGES, *LISTS):
            keys = [f"nav.{one.area}", f"list.none_{one.area}", *(f"field.{c.name}" for c in one.columns)]
            keys += [f"field.{f.name}" for f in one.filters] + [f"state.{c}" for f in one.filters for c in f.choices]
            self.assertEqual([key for key in keys if key not in texts("en")], [])


class CountTests(TestCase):
    def test_singular_and_plural(self) -> None:
        """Of every text with a count: one of something is no plural."""
        for language, key, count, text in (
            ("en", "dead.ask_retry", 1, "Retry 1 message?"),
            ("en", "dead.ask_retry", 12345, "Retry 12\u202f345 messages?"),
            ("de", "dead.ask_discard", 1, "1 Nachricht verwerfen?"),
            ("en", "overview.no_subscriptions", 0, "There are no subscriptions."),
            ("en", "overview.no_subscriptions", 1, "The subscription works."),
            ("de", "overview.no_subscriptions", 7, "Alle 7 Subscriptions funktionieren."),
            ("en", "subscription.more_tries", 1, "and 1 more"),
        ):
            self.assertEqual(Words(texts(language), language).count(key, count), text)

    def test_every_count_before_a_noun_has_a_singular(self) -> None:
        """`{count} messages` has a text `..._one` beside it, unless the word is no noun."""
        for language in LANGUAGES:
            for key, text in own(language).items():
                if re.search(r"\{count\} \w+", text) and key not in _SAME_FOR_ONE:
                    self.assertIn(f"{key}_one", own(language), f"{language} {key}: {text}")
                self.assertNotRegex(text, r"\{total\} [a-zA-Z]{4,}", f"{language} {key}: a total goes by `t.count`")

    def test_one_format_of_numbers(self) -> None:
        """Thin spaces, at most one digit of a fraction, the decimal sign of the language."""
        for value, english, german in (
            (0, "0", "0"), (1234, "1\u202f234", "1\u202f234"), (1234567, "1\u202f234\u202f567", "1\u202f234\u202f567"),
            (0.5, "0.5", "0,5"), (12.0, "12", "12"), (1234.56, "1\u202f234.6", "1\u202f234,6"), (-1234, "-1\u202f234",
            "-1\u202f234"), (None, "–", "–"), ("a", "a", "a"),
        ):  # fmt: skip
            self.assertEqual((number(value, "en"), number(value, "de")), (english, german))

    def test_no_script_formats_numbers_in_another_way(self) -> None:
        for path in (CONSOLE / "static").glob("*.js"):
            self.assertNotRegex(path.read_text(), r"NumberFormat|toLocaleString\(", path.name)


class WordTests(TestCase):
    def test_phrases_that_are_out(self) -> None:
        """In texts of the console, help of the commands, summaries of the operator API, and what the engine says."""
        for place, text in spoken():
            for phrase in OUT:
                self.assertNotRegex(text, rf"(?i)\b{phrase}\b", place)
        for language, words in (("en", ("Look", "Good", "What")), ("de", ("Ansehen", "Gut", "Was"))):
            for key, text in own(language).items():
                self.assertNotIn(text, words, f"{language} {key}")


class LanguageTests(TestCase):
    def test_the_language_of_a_person(self) -> None:
        for wanted, chosen, language in [
            ("de-DE,de;q=0.9,en;q=0.8", "", "de"), ("fr,en;q=0.5,de;q=0.4", "", "en"), ("", "", "en"), ("fr", "", "en"),
            ("de", "en", "en"), ("en;q=0,de;q=0.1", "", "de"), ("x;q=y,de", "nothing", "de"),
        ]:  # fmt: skip
            self.assertEqual(language_of(wanted, chosen), language, wanted)
