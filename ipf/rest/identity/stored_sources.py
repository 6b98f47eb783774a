"""Stored sources (`Version.sources`), as JSON: the HL7 v2 fields of each element, of a list by the digest of each item.

A list whose items all have one source has its fields alone.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

from ipf.fhir.model.json import dumps, loads
from ipf.rest.identity.elements import items_of

_BY_ITEM = frozenset(("identifier", "extension", "modifierExtension"))
"""Lists that clients and several senders add to: each item has its own fields."""


SETS = "*"
"""In place of an element: by segment and sender the ids of what a set of segments has (`segment_sets`)."""


def read_sources(text: str) -> dict[str, Any]:
    """Fields by element, of a list fields by digest; empty: no message wrote the resource."""
    return loads(text.encode()) if text else {}


def digest(item: Any) -> str:
    """What tells an item from others of its list."""
    return f"{crc32(dumps(item)):08x}"


def origins_in(held: Any, given: Any) -> dict[str, str]:
    """The fields of each item of a list, by digest.  `given`: as stored."""
    if type(given) is str and given:
        return {digest(one): given for one in items_of(held)}
    return given if type(given) is dict else {}


def written(path: str, items: list[Any], fields: list[str]) -> Any:
    """What is stored of a list: the fields, if all items have the same, else by digest."""
    if path not in _BY_ITEM and fields and fields.count(fields[0]) == len(fields):
        return fields[0]
    return {digest(one): origin for one, origin in zip(items, fields, strict=False) if origin}


def text_of(found: dict[str, Any]) -> str:
    """Stored sources as text; empty: there are none."""
    known = {path: one for path, one in found.items() if one}
    return dumps(known).decode() if known else ""
