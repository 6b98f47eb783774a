"""Removes the extensions of a vendor, and what is empty afterwards.

A modifierExtension changes the meaning of what it is in, so it is not removed: the resource is refused.

Source: https://hl7.org/fhir/R4/extensibility.html
"""

from __future__ import annotations

from typing import Any

from ipf.errors import Category, Problem
from ipf.ports import Json


def stripped(resource: Json, beginnings: tuple[str, ...], place: str) -> list[str]:
    """Remove in place the extensions whose URL has one of these beginnings; returns the URLs.

    Problem MAPPING: a modifierExtension has one.  `place`: of the resource, for the message.
    """
    removed: list[str] = []
    if beginnings:
        _strip(resource, beginnings, place, removed)
    return removed


def _strip(value: Json, beginnings: tuple[str, ...], place: str, removed: list[str]) -> None:
    for name, held in list(value.items()):
        if name == "modifierExtension":
            _refuse(held, beginnings, f"{place}.{name}")
        if name == "extension" and isinstance(held, list):
            held[:] = [one for one in held if not _begins(one, beginnings, removed)]
        below = held if isinstance(held, list) else [held]
        for one in below:
            if isinstance(one, dict):
                _strip(one, beginnings, f"{place}.{name}", removed)
        if held == {} or held == [] or (isinstance(held, list) and all(one in (None, {}) for one in held)):
            del value[name]


def _begins(extension: Any, beginnings: tuple[str, ...], removed: list[str]) -> bool:
    url = extension.get("url") if isinstance(extension, dict) else None
    if not isinstance(url, str) or not url.startswith(beginnings):
        return False
    removed.append(url)
    return True


def _refuse(held: Any, beginnings: tuple[str, ...], place: str) -> None:
    for one in held if isinstance(held, list) else ():
        url = one.get("url") if isinstance(one, dict) else None
        if isinstance(url, str) and url.startswith(beginnings):
            text = f"the modifierExtension {url[:200]} changes the meaning, so it is not removed; a map must handle it"
            raise Problem(Category.MAPPING, text, place)
