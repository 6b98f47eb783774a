"""Defaults that pages state in a table or in brackets are those of the settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from ipf.config.console import ConsoleSettings
from ipf.config.settings import Settings
from tests.documentation.generated import PAGES

ROOT = Path(__file__).resolve().parent.parent
_NAME = r"`((?:IPF|SUBSCRIPTION_SERVICE)_[A-Z_]+)`"
_ROW = re.compile(rf"^\| {_NAME} \| `?([^|`]+?)`? \|", re.MULTILINE)
_IN_BRACKETS = re.compile(rf"{_NAME} \((?:default )?([0-9][0-9,]*(?:\.[0-9]+)?)( MiB| KiB)?[ ,;)]")
_UNITS = {"": 1, " KiB": 1024, " MiB": 1024 * 1024}
_UNSET = {"unset", "made", "-"}


def stated() -> Iterator[tuple[str, str, str]]:
    """Page, setting and default of each statement; a table states defaults when its second column says so."""
    written = [page for page in (ROOT / "docs").rglob("*.md") if page.name not in PAGES]
    for page in [*written, ROOT / "README.md"]:
        text = page.read_text()
        for table in re.split(r"\n\n", text):
            if re.match(r"\| [a-z]+ \| default \|", table.lstrip()):
                yield from ((page.name, name, value) for name, value in _ROW.findall(table))
        for name, number, unit in _IN_BRACKETS.findall(text):
            yield page.name, name, f"{float(number.replace(',', '')) * _UNITS[unit]:.10g}"


def plain(stated: str) -> str:
    """A stated default without what follows it (`2000, at least 1000`), and a size in bytes."""
    found = re.match(r"([0-9][0-9,]*(?:\.[0-9]+)?)( MiB| KiB)?(?: s)?(?=$|, |\D)", stated)
    if found is None:
        return stated.partition(":")[0]
    return f"{float(found[1].replace(',', '')) * _UNITS[found[2] or '']:.10g}"


def shown(value: object) -> set[str]:
    """The texts that a page may have for a default."""
    if value is None or value == ():
        return _UNSET
    if isinstance(value, tuple):
        return {",".join(value)}
    if isinstance(value, bool):
        return {str(value).lower()}
    return {f"{value:.10g}"} if isinstance(value, (int, float)) else {str(value)}


class DefaultTests(SynchronousTestCase):
    def test_stated_defaults_are_those_of_the_settings(self) -> None:
        rows = [*fields(Settings), *fields(ConsoleSettings)]
        defaults = {one.metadata["variable"].name: one.default for one in rows}
        found = list(stated())
        self.assertGreater(len(found), 15)
        wrong = [
            (page, name, value)
            for page, name, value in found
            if name in defaults and plain(value) not in shown(defaults[name])
        ]
        self.assertEqual(wrong, [])
