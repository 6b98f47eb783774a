"""Access to children of HL7 v2 nodes without node objects: presence and text of a numbered child.

A message map makes hundreds of these accesses, and most find nothing or a short text.  Usual cases work on the raw
parts; the rest calls the node.  Results equal those of `children(name)` and `text`; a test compares them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, Final

from ipf.config.paths import folder
from ipf.hl7.escape import NULL, Encoding
from ipf.hl7.message import Component, Field, Segment, number_of

Read = Callable[[Any, Any], Sequence[Any]]

MANY: Final = object()
"""The text of more than one child."""

_UNUSUAL = {3: ("NTE",), 5: ("OBX",), 1: ("MSH", "BHS", "FHS"), 2: ("MSH", "BHS", "FHS")}
"""By number of a field: segments in which it is split in another way."""


class _Unknown:
    """Parts of a node of another model: any child may be present."""

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, number: int) -> str:
        return "?"


_UNKNOWN = _Unknown()


def raw_parts(node: Any) -> tuple[Any, int]:
    """Parts of a node as sent, and the offset from the number of a child to its index."""
    kind = type(node)
    if kind is Segment:
        return node.fields, 0
    if kind is Field or kind is Component:
        return node.parts, -1
    return _UNKNOWN, 0


@cache
def reader(name: str) -> Read:
    """`children(name)` of a node, given the raw child, which is not empty."""
    number = number_of(name)
    unusual = _UNUSUAL.get(number, ())

    def read(node: Any, raw: Any) -> Sequence[Any]:
        kind = type(node)
        if kind is Field:
            return () if raw == NULL else (Component(raw, node.encoding, node, number),)
        if kind is Segment and node.name not in unusual:
            encoding = node.encoding
            separator = encoding.separators.repetition
            if raw != NULL and not (separator and separator in raw):
                return (Field(raw, encoding, node.name, number),)
        children: Sequence[Any] = node.children(name)
        return children

    return read


@cache
def text_reader(name: str, inner: str = "") -> Read:
    """The texts of those children, or of their children `inner`."""
    if inner:
        return _inner_text_reader(name, inner)
    unusual = _UNUSUAL.get(number_of(name), ())

    def read(node: Any, raw: Any) -> Sequence[str | None]:
        kind = type(node)
        if (kind is Field or kind is Segment) and raw.isalnum():  # nothing to split, no escapes, no null
            return (raw,)
        if kind is Field:
            return () if raw == NULL else (_component_text(raw, node),)
        if kind is Segment and node.name not in unusual:
            encoding = node.encoding
            separator = encoding.separators.repetition
            if raw != NULL and not (separator and separator in raw):
                return (_first_text(raw, encoding),)
        return [child.text for child in node.children(name)]

    return read


def _inner_text_reader(name: str, inner: str) -> Read:
    """`PV1_3.PL_4`: usually a component of a field that does not repeat."""
    unusual, place = _UNUSUAL.get(number_of(name), ()), number_of(inner) - 1

    def read(node: Any, raw: Any) -> Sequence[str | None]:
        if type(node) is Segment and node.name not in unusual:
            encoding = node.encoding
            separators = encoding.separators
            if raw != NULL and not (separators.repetition and separators.repetition in raw):
                parts = raw.split(separators.component)
                part = parts[place] if place < len(parts) else ""
                return (_first_text(part, encoding),) if part and part != NULL else ()
        return [grandchild.text for child in node.children(name) for grandchild in child.children(inner)]

    return read


def _component_text(raw: str, field: Field) -> str | None:
    encoding = field.encoding
    separators = encoding.separators
    if separators.subcomponent and separators.subcomponent in raw and not field.literal:
        raw = raw.partition(separators.subcomponent)[0]
    if raw and separators.escape and separators.escape in raw:
        return encoding.value(raw)
    return raw if raw and raw != NULL else None


def _first_text(raw: str, encoding: Encoding) -> str | None:
    separators = encoding.separators
    if separators.component in raw:
        raw = raw.partition(separators.component)[0]
    if separators.subcomponent and separators.subcomponent in raw:
        raw = raw.partition(separators.subcomponent)[0]
    if raw and separators.escape and separators.escape in raw:
        return encoding.value(raw)
    return raw if raw and raw != NULL else None


@cache
def children(name: str) -> Callable[[Any], Sequence[Any]]:
    """A function equal to `children(name)` of any node."""
    number = number_of(name)
    if not number:
        return _children_named(name)
    read = reader(name)

    def find(node: Any) -> Sequence[Any]:
        parts, shift = raw_parts(node)
        place = number + shift
        return read(node, parts[place]) if len(parts) > place and parts[place] else ()

    return find


def _children_named(name: str) -> Callable[[Any], Sequence[Any]]:
    def find(node: Any) -> Sequence[Any]:
        found: Sequence[Any] = node.children(name)
        return found

    return find


@cache
def is_present(name: str, inner: str = "") -> Callable[[Any, Any], bool]:
    """The same, given the raw child; with `inner`, whether one of the children has such a child."""
    if inner:
        read = text_reader(name, inner)
        return lambda node, raw: bool(read(node, raw))
    unusual = _UNUSUAL.get(number_of(name), ())

    def present(node: Any, raw: Any) -> bool:
        kind = type(node)
        if kind is Field or kind is Component:
            return bool(raw != NULL)
        if kind is Segment and raw.isalnum():
            return True
        if kind is Segment and node.name not in unusual:
            separator = node.encoding.separators.repetition
            if not separator or separator not in raw:
                return bool(raw != NULL)
        return bool(node.children(name))

    return present


@cache
def only_text(name: str, inner: str = "") -> Callable[[Any, Any], Any]:
    """Text of the only child, given the raw child: None without a child, MANY for several."""
    read = text_reader(name, inner)

    def text(node: Any, raw: Any) -> Any:
        found = read(node, raw)
        if len(found) == 1:
            return found[0]
        return MANY if found else None

    return text


@cache
def first_text(name: str, inner: str = "") -> Callable[[Any, Any], str | None]:
    """Text of the first child, given the raw child."""
    read = text_reader(name, inner)

    def text(node: Any, raw: Any) -> str | None:
        found = read(node, raw)
        return found[0] if found else None

    return text


_OLDER = {"CWE": ("CE", "IS"), "DTM": ("TS",), "CNE": ("CE",), "XCN": ("CN",), "XTN": ("TN",), "XAD": ("AD",)}


@lru_cache(maxsize=1)
def _types() -> dict[str, list[str]]:
    tables = json.loads((folder("fhir") / "v2" / "datatypes.json").read_text(encoding="utf-8"))
    return {name: types.split() for name, types in tables["types"].items()}


def types_of(name: str) -> tuple[str, ...]:
    """Names of the type of `PID_5`, the newest first; empty when unknown."""
    parts = _types().get(name[: max(name.rfind("_"), name.rfind("."), 0)], ())
    number = number_of(name)
    found = parts[number - 1] if 0 < number <= len(parts) else "-"
    return () if found == "-" else (found, *_OLDER.get(found, ()))


def field_count(segment: str) -> int:
    """The number of fields of a segment; 0 when HL7 v2 has no such segment."""
    return 0 if segment in _data_types() else count_of_parts(segment)


@lru_cache(maxsize=4096)
def is_data_type(name: str) -> bool:
    """Whether `CX_1` is a part of a data type, not a field of a segment."""
    return name[: max(name.rfind("_"), name.rfind("."), 0)] in _data_types()


@lru_cache(maxsize=1)
def _data_types() -> frozenset[str]:
    return frozenset(kind for kinds in _types().values() for kind in kinds if len(kind) > 1)


_FIELDS_OF_2_9 = {"FT1": 56, "MSH": 28, "NTE": 9, "OBR": 55, "OBX": 33, "ORC": 38, "PRT": 24, "TXA": 28}
"""Number of fields in v2.9, of segments that the tables (to v2.8.2) know with fewer."""


def count_of_parts(name: str) -> int:
    """Number of the fields of a segment or components of a data type, in its newest version; 0 when unknown."""
    return _FIELDS_OF_2_9.get(name) or len(_types().get(name, ()))
