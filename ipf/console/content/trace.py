"""The trace of a conversion, side by side: the fields of the message, and the elements of the resources.

What arrives: the text of a message, and the answer of `GET /admin/messages/{id}/trace`.  What leaves: `TraceView`: each
field with what became of it, each element with the fields and the rule that it comes from.  No IO.

What was fetched as JSON is one segment; its fields are the elements, each with its path.

A place in a message is `PID-3`, or `OBX[2]-5` where the segment repeats.  Source: docs/reference/mapping.md "Traces".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ipf.console.content.elements import leaves
from ipf.errors import Problem
from ipf.fhir.model.json import loads

_PLACE = re.compile(r"([A-Z][A-Z0-9]{2}(?:\[\d+\])?-\d+)")
_NUMBER = re.compile(r"\d+")
_DELIMITERS = ("MSH", "FHS", "BHS")


@dataclass(frozen=True, slots=True)
class Part:
    """A component or the repetitions of a field; `kind`, `reason`: why no rule reads it."""

    path: str
    kind: str
    reason: str


@dataclass(slots=True)
class Field:
    """One field of a segment.  `place`: `OBX[2]-5`; `path`: `OBX-5`; `text`: as it was sent.

    `elements`: how many elements come from it.  `kind`, `reason`: why no rule reads it; "": a rule does.  `parts`:
    components of a field that a rule reads, which no rule reads (`OBX-3.1`), and its further repetitions (`PID-5[2]`).
    """

    place: str
    path: str
    text: str
    elements: int = 0
    kind: str = ""
    reason: str = ""
    parts: list[Part] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment: its name, its number among those of its name, its fields with content."""

    name: str
    number: int
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Element:
    """One element.  `path`: below the resource (`name[0].family`); `places`: fields; `rule`: `FILE:LINE rule`."""

    path: str
    value: str
    places: tuple[str, ...]
    rule: str


@dataclass(slots=True)
class Entry:
    """One entry of the Bundle: what is asked of the server, and the elements of its resource."""

    title: str
    request: str
    elements: list[Element] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TraceView:
    """Both sides."""

    segments: tuple[Segment, ...]
    entries: tuple[Entry, ...]


def segments_of(raw: str) -> tuple[Segment, ...]:
    """The segments of a message as the sender wrote them; MSH-1 and MSH-2 are the delimiters."""
    if is_json(raw):
        return _of_json(raw)
    separator, found, seen = raw[3:4] or "|", [], Counter[str]()
    lines = [line for line in raw.replace("\n", "\r").split("\r") if line.strip()]
    totals = Counter(line.split(separator)[0] for line in lines)
    for line in lines:
        name, *texts = line.split(separator)
        seen[name] += 1
        texts = [separator, *texts] if name in _DELIMITERS else texts
        place = f"{name}[{seen[name]}]" if totals[name] > 1 else name
        fields = (Field(f"{place}-{number}", f"{name}-{number}", text) for number, text in enumerate(texts, 1) if text)
        found.append(Segment(name, seen[name], tuple(fields)))
    return tuple(found)


def is_json(raw: str) -> bool:
    """Whether it is what was fetched from a polled source."""
    return raw.startswith("{")


def _of_json(raw: str) -> tuple[Segment, ...]:
    try:
        content = loads(raw)
    except Problem:
        return ()
    fields = (Field(path, path, value) for path, value in leaves(content) if path != "resourceType")
    return (Segment(str(content.get("resourceType", "JSON")), 1, tuple(fields)),)


def trace_view(raw: str, trace: Mapping[str, Any]) -> TraceView:
    """Both sides of a trace."""
    segments = segments_of(raw)
    fields = {one.place: one for segment in segments for one in segment.fields}
    rules = _rules(trace["steps"])
    entries = tuple(_entry(number, one, rules) for number, one in enumerate(trace["result"].get("entry", ())))
    for element in (element for entry in entries for element in entry.elements):
        for place in element.places:
            if place in fields:
                fields[place].elements += 1
    for unread in trace["unread"]:
        _mark(fields, unread)
    return TraceView(segments, entries)


def _mark(fields: Mapping[str, Field], unread: Mapping[str, Any]) -> None:
    """Mark what no rule reads: a field, a part of one, or all fields of a segment."""
    path, kind, reason = unread["path"], unread["kind"], unread.get("reason") or ""
    segment, number, part = unread["segment"], path.partition("-")[2], ""
    found = _NUMBER.match(number)
    if found:
        number, part = found[0], number[found.end() :]
    for place in (f"{segment}-{number}", path):
        if place in fields and part and place != path:
            fields[place].parts.append(Part(path, kind, reason))
            return
        if place in fields:
            fields[place].kind, fields[place].reason = kind, reason
            return
    if path and segment and segment.partition("[")[0] == path:
        of_segment = [one for one in fields.values() if one.place.rpartition("-")[0] == segment]
        for one in of_segment:
            one.kind, one.reason = kind, reason


_Rule = tuple[tuple[str, ...], str]


def _rules(steps: Sequence[Mapping[str, Any]]) -> dict[tuple[int, str], _Rule]:
    """Fields and rule of each element that a step produced, by entry and path; the last step of an element counts."""
    found: dict[tuple[int, str], _Rule] = {}
    for step in steps:
        places = tuple(dict.fromkeys(place for source in step["sources"] for place in _PLACE.findall(source)))
        rule = f"{step['file']}:{step['line']} {step['rule']}"
        for one in step["produced"]:
            found[one["entry"], one["path"].partition(".")[2]] = places, rule
    return found


def _entry(number: int, entry: Mapping[str, Any], rules: Mapping[tuple[int, str], _Rule]) -> Entry:
    resource, request = entry.get("resource") or {}, entry.get("request") or {}
    made = Entry(str(resource.get("resourceType", "")), f"{request.get('method', '')} {request.get('url', '')}".strip())
    for path, value in leaves(resource):
        if path != "resourceType":
            places, rule = _rule_of(number, path, rules)
            made.elements.append(Element(path, value, places, rule))
    return made


def _rule_of(number: int, path: str, rules: Mapping[tuple[int, str], _Rule]) -> _Rule:
    """The rule of an element, else of the nearest element around it; the resource as a whole does not count."""
    while path:
        if (number, path) in rules:
            return rules[number, path]
        path = path.rpartition(".")[0] if "." in path else ""
    return (), ""
