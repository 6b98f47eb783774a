"""The trace of a run: for each executed rule its sources, its products and its translations.

Only a program compiled with `traced=True` writes a trace; other programs contain no code for it.  Elements are recorded
by the object that holds them, and get their paths when the result is finished.  Elements that were pruned, overwritten
or merged are omitted.

A step is one execution of one rule for one item:

    {"map": "urn:ipf:map:PID_Patient", "file": "segments/PID_Patient.fml", "line": 12, "column": 3,
     "group": "PID_Patient", "rule": "identifier", "sources": ["PID-3[1]"],
     "produced": [{"entry": 0, "resourceType": "Patient", "reference": "urn:uuid:...",
                   "path": "Patient.identifier[0].value", "value": "A1"}],
     "translations": [{"table": "urn:ipf:concepts:HL70001", "code": "X", "result": null}]}

Sources of HL7 v2 are counted from 1: `PID-3[1].1.2` (segment, field, repetition, component, subcomponent),
`OBX[2]-5[1]` for the second OBX of several, `PATIENT_RESULT[1].ORDER_OBSERVATION[2]` for groups.  All other paths are
FHIRPath, counted from 0: `Observation.component[1].valueQuantity`.

`entry` is the index of the Bundle entry, None for other targets and for the Bundle itself.  `reference` is the fullUrl
of the entry, which the server replaces by `Type/id`.  `value` is missing for an element with parts only.  A translation
without a `result` is a code that the table does not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ipf.hl7.message import Message, Segment, number_of
from ipf.ports import Json

MADE: Any = object()
"""The value of an element with parts only."""


@dataclass(frozen=True, slots=True)
class RulePosition:
    """A rule and its position in the source text."""

    map_url: str
    file: str
    group: str
    rule: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Produced:
    """One element of the result.  `value` is MADE for an element with parts only."""

    entry: int | None
    resource_type: str
    reference: str | None
    path: str
    value: Any

    def as_json(self) -> Json:
        """As the module describes."""
        made: Json = {"entry": self.entry, "resourceType": self.resource_type, "reference": self.reference}
        made["path"] = self.path
        return made if self.value is MADE else {**made, "value": self.value}


@dataclass(frozen=True, slots=True)
class Translation:
    """A code and the table in which it was looked up.  `result` None: the table does not have it."""

    table: str
    code: str
    result: Any

    def as_json(self) -> Json:
        """As the module describes."""
        return {"table": self.table, "code": self.code, "result": self.result}


@dataclass(slots=True)
class Step:
    """One execution of one rule for one item; `produced` is filled when the result is finished."""

    at: RulePosition
    sources: tuple[str, ...] = ()
    produced: list[Produced] = field(default_factory=list)
    translations: list[Translation] = field(default_factory=list)

    @property
    def map_url(self) -> str:
        """Canonical of the map."""
        return self.at.map_url

    @property
    def group(self) -> str:
        """Name of the group."""
        return self.at.group

    @property
    def rule(self) -> str:
        """Name of the rule."""
        return self.at.rule

    @property
    def line(self) -> int:
        """Line of the rule in the map's file."""
        return self.at.line

    def as_json(self) -> Json:
        """As the module describes."""
        at = self.at
        return {
            "map": at.map_url,
            "file": at.file,
            "line": at.line,
            "column": at.column,
            "group": at.group,
            "rule": at.rule,
            "sources": list(self.sources),
            "produced": [one.as_json() for one in self.produced],
            "translations": [one.as_json() for one in self.translations],
        }


Mark = tuple[tuple[str, int, int], ...]
"""State of an object: by key, the id() of the value and the length of a list."""


@dataclass(slots=True)
class Trace:
    """The trace of one run.  `at`: the rule that began last, for the text of a failure."""

    steps: list[Step] = field(default_factory=list)
    at: RulePosition | None = None
    _paths: dict[int, str] = field(default_factory=dict)
    _alive: list[Any] = field(default_factory=list)
    _made: dict[tuple[int, str, int], tuple[Step, Json, Any, bool]] = field(default_factory=dict)

    def begin(self, source: Any) -> None:
        """Name the source, and the segments of a message."""
        self._paths[id(source)] = source.get("resourceType", "") if type(source) is dict else ""
        if isinstance(source, Message):
            segments: dict[str, list[Segment]] = {}
            for segment in source.all_segments:
                segments.setdefault(segment.name, []).append(segment)
            for name, same in segments.items():
                for number, segment in enumerate(same, start=1):
                    self._paths[id(segment)] = name if len(same) == 1 else f"{name}[{number}]"
        elif isinstance(source, Segment):
            self._paths[id(source)] = source.name

    def found(self, owner: Any, name: str, items: Sequence[Any]) -> None:
        """Name the items found by a step from `owner`."""
        self._alive.extend(items)
        base = self._paths.get(id(owner), "")
        for index, path in zip(range(len(items)), _paths(base, owner, name, items), strict=True):
            if type(items[index]) is not Segment or id(items[index]) not in self._paths:
                self._paths[id(items[index])] = path

    def path(self, item: Any) -> str:
        """Path of an item of the source; empty for other items (a default)."""
        return self._paths.get(id(item), "")

    def enter(self, at: RulePosition, sources: tuple[str, ...]) -> Step:
        """A rule begins for an item."""
        step = Step(at, tuple(path for path in sources if path))
        self.steps.append(step)
        return step

    def mark(self, owner: Any, keys: tuple[str, ...]) -> Mark:
        """State of an object before a target writes to it."""
        held = owner if type(owner) is dict else {}
        return tuple((key, id(held.get(key)), _length(held.get(key))) for key in keys)

    def produced(self, step: Step, owner: Any, mark: Mark, made: bool) -> None:
        """Record what a target has written to an object.  `made`: an element without a value."""
        if type(owner) is not dict:
            return
        for key, before, length in mark:
            value = owner.get(key)
            if type(value) is list:
                for index in range(length, len(value)):
                    self._note(step, owner, (key, index), value[index], made)
            elif value is not None and id(value) != before:
                self._note(step, owner, (key, -1), value, made)

    def _note(self, step: Step, owner: Json, place: tuple[str, int], held: Any, made: bool) -> None:
        """A later write to the same element replaces the record."""
        self._alive += (owner, held)
        self._made.pop((id(owner), *place), None)
        self._made[(id(owner), *place)] = (step, owner, held, made)

    def finish(self, result: Json, merged: dict[int, str]) -> None:
        """Give every element its path in the finished result.  `merged`: fullUrl by id() of each resource."""
        places = dict(_places(result))
        entries = {one.get("fullUrl"): one for one in result.get("entry", ()) if type(one) is dict}
        for (_, key, index), (step, owner, held, made) in self._made.items():
            if type(held) is dict:
                twin = entries.get(merged.get(id(held)))
                place = places.get(id(held)) or (places.get(id(twin["resource"])) if twin else None)
                if place is not None:
                    step.produced.append(Produced(*place, MADE if made else held))
                continue
            place, now = places.get(id(owner)), _value(owner, key, index)
            if place is not None and now is not None:
                path = f"{place[3]}.{key.removeprefix('_')}" + (f"[{index}]" if index >= 0 else "")
                step.produced.append(Produced(*place[:3], path.removeprefix("."), now))


def _length(value: Any) -> int:
    return len(value) if type(value) is list else 0


def _value(owner: Json, key: str, index: int) -> Any:
    value = owner.get(key)
    if index < 0:
        return value
    return value[index] if type(value) is list and index < len(value) else None


def _paths(base: str, owner: Any, name: str, items: Sequence[Any]) -> Iterator[str]:
    """Paths of the items found under `name`."""
    number = number_of(name)
    for index, item in enumerate(items):
        kind = getattr(item, "kind", "")
        if kind == "field":
            yield f"{base}-{number}[{_repetition(owner, number, index)}]"
        elif kind in ("component", "subcomponent"):
            yield base if item is owner else f"{base}.{number}"
        elif kind in ("segment", "group"):
            yield f"{base}.{name}[{index + 1}]".removeprefix(".")
        else:
            yield _json_path(base, owner, name, item, index)


def _repetition(segment: Any, number: int, index: int) -> int:
    """Number of a repetition in its field; empty repetitions count."""
    fields = segment.fields if type(segment) is Segment else []
    separator = segment.encoding.separators.repetition if fields else ""
    if not separator or number >= len(fields):
        return index + 1
    filled = [place for place, raw in enumerate(fields[number].split(separator), start=1) if raw and raw != '""']
    return filled[index] if index < len(filled) else index + 1


def _json_path(base: str, owner: Any, name: str, item: Any, index: int) -> str:
    """Path of an element of a JSON object; a choice of types by its JSON name."""
    if item is owner:
        return base
    key = name
    if type(owner) is dict and name not in owner:
        key = next((one for one, held in owner.items() if held is item), name)
    many = type(owner) is dict and type(owner.get(key)) is list
    return f"{base}.{key}".removeprefix(".") + (f"[{index}]" if many else "")


Place = tuple[int | None, str, str | None, str]
"""Entry, type of resource, fullUrl, path."""


def _places(result: Json) -> Iterator[tuple[int, Place]]:
    """Every object of the result by its id(), with its path; every entry of a Bundle by itself."""
    resource_type = str(result.get("resourceType", ""))
    if resource_type != "Bundle":
        yield from _below(result, (None, resource_type, None, resource_type))
        return
    rest = {key: value for key, value in result.items() if key != "entry"}
    yield id(result), (None, "Bundle", None, "Bundle")
    yield from _parts(rest, (None, "Bundle", None, "Bundle"))
    for number, entry in enumerate(result.get("entry", ())):
        resource = entry.get("resource")
        where = (None, "Bundle", None, f"Bundle.entry[{number}]")
        yield id(entry), where
        yield from _parts({key: value for key, value in entry.items() if key != "resource"}, where)
        if resource is not None:
            name = str(resource.get("resourceType", ""))
            yield from _below(resource, (number, name, entry.get("fullUrl"), name))


def _below(value: Json, place: Place) -> Iterator[tuple[int, Place]]:
    yield id(value), place
    yield from _parts(value, place)


def _parts(value: Json, place: Place) -> Iterator[tuple[int, Place]]:
    entry, resource_type, reference, base = place
    for key, held in value.items():
        path = f"{base}.{key.removeprefix('_')}".removeprefix(".")
        if type(held) is dict:
            yield from _below(held, (entry, resource_type, reference, path))
        elif type(held) is list:
            for index, one in enumerate(held):
                if type(one) is dict:
                    yield from _below(one, (entry, resource_type, reference, f"{path}[{index}]"))


__all__ = ["MADE", "Produced", "RulePosition", "Step", "Trace", "Translation"]
