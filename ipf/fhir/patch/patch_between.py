"""Two versions of a resource in, the FHIRPath Patch that makes one of the other out.

`id`, `meta.versionId` and `meta.lastUpdated` are left out: a patch does not change them.  Lists are compared by index.
Elements that differ in their id or extensions are replaced whole, and so are contained resources.

Source: https://hl7.org/fhir/R4/fhirpatch.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.definitions import Element, definitions
from ipf.ports import Json

_SERVERS = frozenset(("versionId", "lastUpdated"))
_COMPLEX = frozenset((
    "Address", "Age", "Annotation", "Attachment", "CodeableConcept", "Coding", "ContactDetail", "ContactPoint",
    "Contributor", "Count", "DataRequirement", "Distance", "Dosage", "Duration", "Expression", "HumanName",
    "Identifier",
    "Meta", "Money", "ParameterDefinition", "Period", "Quantity", "Range", "Ratio", "Reference", "RelatedArtifact",
    "SampledData", "Signature", "Timing", "TriggerDefinition", "UsageContext",
))  # fmt: skip
"""Structures that `Parameters.parameter.value[x]` may have; others are written as nested parts."""


def patch_between(before: Json, after: Json) -> Json:
    """The patch, a Parameters resource; without operations when nothing differs.

    Problem VALUE when the resource types differ.
    """
    kind = before.get("resourceType")
    if kind != after.get("resourceType"):
        raise Problem(Category.VALUE, "resources of different types have no difference that is a patch")
    operations = list(_changes(_own(before), _own(after), str(kind), str(kind)))
    made: Json = {"resourceType": "Parameters"}
    return {**made, "parameter": operations} if operations else made


def _own(resource: Json) -> Json:
    """The resource without what the server sets.  `meta` stays, as it is never absent in what is stored."""
    meta = {name: value for name, value in (resource.get("meta") or {}).items() if name not in _SERVERS}
    kept = {name: value for name, value in resource.items() if name not in ("id", "resourceType", "meta")}
    return {**kept, "meta": meta}


@dataclass(frozen=True, slots=True)
class _Member:
    """One element of a structure: its value, the sibling property `_name` of a primitive, and its type."""

    element: Element
    type: str
    value: Any
    sibling: Any

    @property
    def items(self) -> list[_Member]:
        """The items of a list."""
        values, siblings = self.value or [], self.sibling or []
        return [
            _Member(self.element, self.type, _at(values, number), _at(siblings, number))
            for number in range(max(len(values), len(siblings)))
        ]

    def equals(self, other: _Member) -> bool:
        """Whether both are the same."""
        return (self.type, self.value, self.sibling) == (other.type, other.value, other.sibling)


def _at(items: list[Any], number: int) -> Any:
    return items[number] if number < len(items) else None


def _members(value: Json, type_: str) -> dict[str, _Member]:
    """The elements of a structure by name; a choice by its name without a type."""
    found = {}
    for json_name in dict.fromkeys(name.removeprefix("_") for name in value):
        element = definitions().element(type_, json_name)
        if element is None:
            raise Problem(Category.INVALID, f"{type_} has no element {json_name[:60]}")
        member = _Member(element, element.types[0], value.get(json_name), value.get("_" + json_name))
        found[element.path.rpartition(".")[2]] = member
    return found


def _changes(before: Json, after: Json, path: str, type_: str) -> Iterator[Json]:
    """The operations; what is removed comes last, so that no structure becomes empty meanwhile."""
    old, new = _members(before, type_), _members(after, type_)
    removed: list[Json] = []
    for name, member in new.items():
        earlier = old.get(name)
        if earlier is None:
            for one in member.items if member.element.many else (member,):
                yield _operation("add", path, ("name", {"valueString": name}), ("value", _value(one)))
        elif not member.element.many:
            yield from _change(earlier, member, f"{path}.{name}")
        else:
            yield from _list_changes(earlier.items, member.items, path, name, removed)
    for name, member in old.items():
        if name not in new:
            count = len(member.items) if member.element.many else None
            removed += [_delete(f"{path}.{name}")] if count is None else _deletions(f"{path}.{name}", 0, count)
    yield from removed


def _list_changes(old: list[_Member], new: list[_Member], path: str, name: str, removed: list[Json]) -> Iterator[Json]:
    for number, (one, other) in enumerate(zip(old, new, strict=False)):
        yield from _change(one, other, f"{path}.{name}[{number}]")
    for one in new[len(old) :]:
        yield _operation("add", path, ("name", {"valueString": name}), ("value", _value(one)))
    removed += _deletions(f"{path}.{name}", len(new), len(old))


def _change(one: _Member, other: _Member, path: str) -> Iterator[Json]:
    if one.equals(other):
        return
    is_structure = isinstance(one.value, dict) and isinstance(other.value, dict)
    if is_structure and one.type == other.type and one.type not in ("Resource", "Extension"):
        yield from _changes(one.value, other.value, path, one.type)
    else:
        yield _operation("replace", path, ("value", _value(other)))


def _deletions(path: str, start: int, end: int) -> list[Json]:
    return [_delete(f"{path}[{number}]") for number in reversed(range(start, end))]


def _delete(path: str) -> Json:
    return _operation("delete", path)


def _operation(kind: str, path: str, *others: tuple[str, Json]) -> Json:
    parts = [{"name": "type", "valueCode": kind}, {"name": "path", "valueString": path}]
    return {"name": "operation", "part": [*parts, *({"name": name, **value} for name, value in others)]}


def _value(member: _Member) -> Json:
    """The value of a part: value[x], a resource, or nested parts."""
    kind, value = member.type, member.value
    if kind == "Resource":
        return {"resource": value}
    if isinstance(value, dict) and kind not in _COMPLEX:
        return {"part": list(_parts(value, kind))}
    if not isinstance(value, dict) and (kind not in definitions().primitive_types or kind == "xhtml"):
        kind = "string"  # of an id or a narrative
    name = f"value{kind[:1].upper()}{kind[1:]}"
    made = {} if value is None else {name: value}
    return made if member.sibling is None else {**made, "_" + name: member.sibling}


def _parts(value: Json, type_: str) -> Iterator[Json]:
    for name, member in _members(value, type_).items():
        for one in member.items if member.element.many else (member,):
            yield {"name": name, **_value(one)}
