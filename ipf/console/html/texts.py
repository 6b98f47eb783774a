"""The texts of the pages in each language: `texts/en.toml`, `texts/de.toml`.

A key is a section and a name (`messages.title`).  A text that a language lacks is shown in English; a key that is in no
file is an error, so that a test finds it.

Source: RFC 9110 section 12.5.4 (Accept-Language).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

LANGUAGES = ("en", "de")


@cache
def texts(language: str) -> Mapping[str, str]:
    """All texts of a language by key."""
    found = {} if language == "en" else dict(texts("en"))
    sections = tomllib.loads((files("ipf.console") / "texts" / f"{language}.toml").read_text("utf-8"))
    for section, entries in sections.items():
        found |= {f"{section}.{name}": text for name, text in entries.items()}
    return found


def language_of(wanted: str, chosen: str = "") -> str:
    """The language of a person: his choice, else the first of Accept-Language that there is, else English."""
    if chosen in LANGUAGES:
        return chosen
    weighted = []
    for number, part in enumerate(wanted.lower().split(",")[:20]):
        name, _, quality = part.strip().partition(";q=")
        try:
            weight = float(quality or 1)
        except ValueError:
            weight = 0.0
        weighted.append((-weight, number, name.split("-")[0]))
    return next((name for weight, _, name in sorted(weighted) if name in LANGUAGES and weight < 0), "en")
