"""The fields of a message as people read them: HL7 names, components, escape sequences decoded.

What arrives: the text of a message.  What leaves: its segments with fields, repetitions and components, each with its
path and its name.  The names are those of HL7 v2.5.1 and, where that has none, of v2.8.2 (`hl7_names.txt`); a Z segment
has none.  Nothing is left out: text that is in no known component is shown as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from ipf.console.content.trace import Field, Segment, is_json, segments_of
from ipf.hl7.escape import Separators, separators_of, unescape

MOST = 100
"""Segments of one page."""
_DELIMITERS = frozenset(("MSH", "FHS", "BHS"))
_LITERAL = 2  # MSH-1 and MSH-2 are the separators themselves
_OBX_TYPE, _OBX_VALUE = "OBX-2", "OBX-5"


@dataclass(frozen=True, slots=True)
class Name:
    """What the standard calls a field or component, and its data type; each "" when it is not known."""

    text: str = ""
    type: str = ""


UNKNOWN = Name()


@dataclass(frozen=True, slots=True)
class Part:
    """A component or subcomponent.  `path`: `PID-5.1`; `text`: decoded; `raw`: as sent, "" when that is the same."""

    path: str
    name: str
    text: str
    raw: str
    before: str
    """The separator in front of it."""


@dataclass(frozen=True, slots=True)
class ShownField:
    """One field.  `repetitions`: the parts with content of each."""

    path: str
    name: str
    repetitions: tuple[tuple[Part, ...], ...]


@dataclass(frozen=True, slots=True)
class ShownSegment:
    """One segment; `number` is 0 unless the segment repeats."""

    name: str
    number: int
    fields: tuple[ShownField, ...]


def fields_view(raw: str, start: int = 0, most: int = MOST) -> tuple[tuple[ShownSegment, ...], int]:
    """The segments from `start` on, at most `most`, and how many there are."""
    segments = segments_of(raw)
    if is_json(raw):
        return tuple(map(_of_json, segments)), len(segments)
    separators = separators_of(raw[3:4] or "|", raw[4:9].partition(raw[3:4] or "|")[0])
    repeated = {one.name for one in segments if one.number > 1}
    shown = [_segment(one, separators, one.name in repeated) for one in segments[start : start + most]]
    return tuple(shown), len(segments)


def _of_json(segment: Segment) -> ShownSegment:
    shown = (ShownField(one.path, "", _literal(one.path, one.text)) for one in segment.fields)
    return ShownSegment(segment.name, 0, tuple(shown))


def _segment(segment: Segment, separators: Separators, is_repeated: bool) -> ShownSegment:
    texts = {field.path: field.text for field in segment.fields}
    fields = []
    for field in segment.fields:
        number = int(field.path.rpartition("-")[2])
        name = name_of(segment.name, number)
        if field.path == _OBX_VALUE:
            name = Name(name.text, texts.get(_OBX_TYPE, ""))
        is_literal = segment.name in _DELIMITERS and number <= _LITERAL
        parts = _literal(field.path, field.text) if is_literal else _repetitions(field, name.type, separators)
        fields.append(ShownField(field.path, name.text, parts))
    return ShownSegment(segment.name, segment.number if is_repeated else 0, tuple(fields))


def _literal(path: str, text: str) -> tuple[tuple[Part, ...], ...]:
    return ((Part(path, "", text, "", ""),),)


def _repetitions(field: Field, type_name: str, separators: Separators) -> tuple[tuple[Part, ...], ...]:
    texts = field.text.split(separators.repetition)
    return tuple(tuple(_components(field.path, one, type_name, separators)) for one in texts)


def _components(path: str, text: str, type_name: str, separators: Separators) -> list[Part]:
    """The components with content of one repetition; a single one has the path of the field."""
    texts = text.split(separators.component)
    if len(texts) == 1 and separators.subcomponent not in text:
        return [_part(path, "", text, "", separators)]
    found = []
    for number, component in enumerate(texts, 1):
        name, inner = name_of(type_name, number), component.split(separators.subcomponent)
        before = separators.component if number > 1 else ""
        if len(inner) == 1:
            found.append(_part(f"{path}.{number}", name.text, component, before, separators))
            continue
        for position, one in enumerate(inner, 1):
            label = " / ".join(filter(None, (name.text, name_of(name.type, position).text)))
            between = separators.subcomponent if position > 1 else before
            found.append(_part(f"{path}.{number}.{position}", label, one, between, separators))
    return found


def _part(path: str, name: str, text: str, before: str, separators: Separators) -> Part:
    shown = unescape(text, separators) if separators.escape in text else text
    return Part(path, name, shown, text if shown != text else "", before)


def name_of(group: str, number: int) -> Name:
    """The name of a field of a segment, or of a component of a data type."""
    found = _names().get(group, ())
    return found[number - 1] if 0 < number <= len(found) else UNKNOWN


@lru_cache(maxsize=1)
def _names() -> Mapping[str, Sequence[Name]]:
    names = {}
    for line in (files("ipf.console") / "hl7_names.txt").read_text("ascii").splitlines():
        group, *rest = line.split("|")
        names[group] = [Name(*one.split(":")) for one in rest]
    return names
