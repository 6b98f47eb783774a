"""Generates the snapshot of a StructureDefinition from its base and its differential.

Input: a StructureDefinition, and a function that gives the snapshot elements of another one by canonical url.  Output:
ElementDefinitions with ids, in order.  SnapshotError names the element that does not fit the base.  Inputs are never
changed.

The elements of the base are copied; each element of the differential is merged into the element with its id.  A missing
element is created: a slice as a copy of the sliced element, a child by unfolding the type of its parent (or its only
profile, or its content reference).  `valueQuantity` means the slice `value[x]:valueQuantity`.  An unknown base is
replaced by the constrained type.  Of a profile, what would widen the base is left out (`narrowing`).

Sources: https://hl7.org/fhir/R4/profiling.html#snapshot, https://hl7.org/fhir/R4/elementdefinition.html#id
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipf.errors import Problem
from ipf.fhir.budget import Budget
from ipf.fhir.profiles.element_ids import with_ids
from ipf.fhir.profiles.narrowing import narrowing
from ipf.fhir.profiles.rows import canonical, path_of

Json = dict[str, Any]
Lookup = Callable[[str], list[Json]]

_MERGED_LISTS = ("constraint", "condition", "mapping")
_NOT_INHERITED = ("slicing", "sliceName", "sliceIsConstraining", "mustSupport")
_REPLACING = ("fixed", "pattern")
MOST_ELEMENTS = 20_000
"""Of a snapshot.  A slice copies what is below the sliced element: slices within one another double it each time."""
MOST_STEPS = 40_000_000
"""Elements that are looked at for one snapshot: two to three seconds."""
DEEPEST = 50  # parts of an id
_BY_URL: Json = {"discriminator": [{"type": "value", "path": "url"}], "ordered": False, "rules": "open"}
_BY_TYPE: Json = {"discriminator": [{"type": "type", "path": "$this"}], "ordered": False, "rules": "open"}


class SnapshotError(Exception):
    """A differential that does not fit its base, or whose snapshot is beyond the budget."""


def make_snapshot(structure: Json, snapshot: Lookup, rules: Lookup, as_published: bool = False) -> list[Json]:
    """The elements of `structure`; `snapshot` and `rules` give the elements, and the constraints, of a type by url.

    `as_published`: what widens the base stays, as the snapshots have it that guides publish.
    """
    return _built(structure, snapshot, rules, as_published).elements


def widenings(structure: Json, snapshot: Lookup, rules: Lookup) -> list[tuple[int, str]]:
    """What a differential would widen in its base: index of the element, and words."""
    return _built(structure, snapshot, rules, as_published=False).widened


def _built(structure: Json, snapshot: Lookup, rules: Lookup, as_published: bool) -> _Builder:
    base = structure.get("baseDefinition")
    elements = (snapshot(base) or snapshot(canonical(structure["type"]))) if base else []
    builder = _Builder(structure, elements, snapshot, rules)
    builder.narrows = not (builder.is_specialization or as_published)
    for number, element in enumerate(with_ids(structure.get("differential", {}).get("element", ()))):
        builder.place(element, number)
    return builder


class _Builder:
    """The snapshot under construction; ids are unique."""

    def __init__(self, structure: Json, base: list[Json], snapshot: Lookup, rules: Lookup) -> None:
        self.type = structure["type"]
        self.url = structure.get("url", "")
        self.is_specialization = structure.get("derivation", "specialization") != "constraint"
        self.narrows = True
        self.snapshot = snapshot
        self.rules = rules
        old = base[0]["path"] if base else self.type
        self.elements = [_renamed(one, old, self.type, is_base=True) for one in base]
        self.ids = {one["id"] for one in self.elements}
        self.widened: list[tuple[int, str]] = []
        self.left = Budget(MOST_STEPS, "its snapshot")

    def spend(self) -> None:
        """Count one search among all elements.  SnapshotError beyond the budget."""
        try:
            self.left.spend(len(self.elements))
        except Problem as problem:
            raise SnapshotError(f"{self.url}: {problem.text}") from None

    def place(self, declared: Json, number: int) -> None:
        """Merge one element of the differential; `number`: its index."""
        if declared["id"].count(".") > DEEPEST:
            raise SnapshotError(f"{self.url}: an element is more than {DEEPEST} deep")
        id = self.full_id(declared["id"])
        if id not in self.ids:
            self.create(id, declared)
        element = self.elements[self.index(id)]
        if self.narrows:
            declared, wrong = narrowing(element, declared)
            self.widened += [(number, text) for text in wrong]
        self.merge(element, declared)

    def full_id(self, id: str) -> str:
        """The id with shortcuts such as `valueQuantity` written out."""
        done: list[str] = []
        for part in id.split("."):
            wanted = ".".join([*done, part])
            if done and wanted not in self.ids and "[x]" not in part and ":" not in part:
                part = self.choice(".".join(done), part) or part
            done.append(part)
        return ".".join(done)

    def choice(self, parent: str, name: str) -> str | None:
        """`value[x]:valueQuantity` for `valueQuantity`, when the parent has such a choice."""
        if parent not in self.ids:
            return None
        self.unfold(parent)
        self.spend()
        for one in self.elements:
            if one["id"].startswith(parent + ".") and one["id"].endswith("[x]"):
                last = one["id"][len(parent) + 1 :]
                stem = last[:-3]
                if "." not in last and name.startswith(stem) and _type_named(one, name[len(stem) :]):
                    return f"{last}:{name}"
        return None

    def create(self, id: str, declared: Json) -> None:
        """Create the element with a new id, and its parents."""
        head, dot, last = id.rpartition(".")
        stem, colon, slice_name = last.partition(":")
        if colon:
            sliced = f"{head}{dot}{stem}" if "/" not in slice_name else f"{head}{dot}{last.rpartition('/')[0]}"
            self.require(sliced)
            self.slice(sliced, id)
        elif not head:
            self.insert(0, {"id": id, "path": id, "min": 0, "max": "*"})
        else:
            self.require(head)
            self.unfold(head)
            if id not in self.ids:
                self.add_element(head, id, declared)

    def require(self, id: str) -> None:
        """Create the element with this id if it does not exist."""
        if id not in self.ids:
            self.create(id, {})

    def add_element(self, head: str, id: str, declared: Json) -> None:
        """Add a new element to a type definition; SnapshotError in a constraint profile."""
        if not self.is_specialization or ("type" not in declared and "contentReference" not in declared):
            raise SnapshotError(f"{self.url}: {id} is in neither its base nor the types of its elements")
        own: Json = {"id": id, "path": path_of(id), "min": 0, "max": "1"}
        own["base"] = {"path": own["path"], "min": declared.get("min", 0), "max": declared.get("max", "1")}
        if not id.endswith((".id", "Extension.url")):  # XML has them as attributes
            rules = self.rules_of(declared.get("type", ()))
            own.update({"constraint": rules} if rules else {})
        self.insert(self.end(head), own)
        if [one["code"] for one in declared.get("type", ())] in (["BackboneElement"], ["Element"]):
            self.unfold(id, declared["type"][0]["code"])

    def rules_of(self, types: Sequence[Json]) -> list[Json]:
        """The constraints that R4 repeats on each element: those of Element, and on extensions of Extension."""
        codes = [one["code"] for one in types]
        if codes in (["Resource"], ["DomainResource"]):
            return []
        kind = "Extension" if codes == ["Extension"] else "Element"
        return [dict(one) for one in self.rules(canonical(kind))]

    def slice(self, sliced: str, id: str) -> None:
        """Copy an element as a slice of itself."""
        index = self.index(sliced)
        origin = self.elements[index]
        _, _, name = id.rpartition(".")[2].partition(":")
        choice = origin["path"].endswith("[x]")
        if "slicing" not in origin and "/" not in name:
            origin["slicing"] = dict(_BY_TYPE if choice else _BY_URL)
        copy = {key: value for key, value in origin.items() if key not in _NOT_INHERITED}
        copy.update(id=id, sliceName=name, min=0)
        if choice:
            stem = origin["path"].rpartition(".")[2][:-3]
            copy["type"] = [named] if (named := _type_named(origin, name[len(stem) :])) else origin["type"]
            if len(copy["type"]) == 1 and len(origin["type"]) == 1:
                copy["min"] = origin["min"]
        self.insert(self.end(sliced, slices=True), copy)

    def unfold(self, id: str, kind: str | None = None) -> None:
        """Insert the children of an element if they are missing."""
        index = self.index(id)
        if index + 1 < len(self.elements) and self.elements[index + 1]["id"].startswith(id + "."):
            return
        element = self.elements[index]
        if "." not in id and self.is_specialization:
            return  # a type definition lists all its elements
        children = self.children(element, kind)
        for number, child in enumerate(children):
            self.insert(index + 1 + number, child)

    def children(self, element: Json, kind: str | None) -> list[Json]:
        """The child elements of an element: from the sliced element, its content reference or its type."""
        id, path = element["id"], element["path"]
        head, dot, last = id.rpartition(".")
        if ":" in last:
            unsliced = f"{head}{dot}{last.partition(':')[0]}"
            found = self.below(unsliced)
            if found:
                return [_renamed(one, unsliced, id) for one in found]
        if "contentReference" in element:
            target = element["contentReference"].rpartition("#")[2]
            return [_renamed(one, target, id) for one in self.below(target)]
        types: list[Json] = [{"code": kind}] if kind else element.get("type", [])
        if len({one["code"] for one in types}) != 1:
            raise SnapshotError(f"{self.url}: {id} has no single type with elements to constrain")
        profiles = [each for one in types for each in one.get("profile", ())]
        source = self.snapshot(canonical(profiles[0] if len(profiles) == 1 else types[0]["code"]))
        if not source:
            raise SnapshotError(f"{self.url}: the type of {path} is not known")
        return [_renamed(one, source[0]["id"], id) for one in source[1:]]

    def below(self, id: str) -> list[Json]:
        """All elements below an id, without its slices."""
        self.spend()
        return [one for one in self.elements if one["id"].startswith(id + ".")]

    def merge(self, element: Json, declared: Json) -> None:
        """Merge an element of the differential; its members override the inherited ones."""
        for name, value in declared.items():
            if name in ("id", "path", "sliceName"):
                continue
            if name in _MERGED_LISTS:
                element[name] = _merged(element.get(name, []), value)
                continue
            if name == "binding":
                value = {**element.get("binding", {}), **value}
            for start in _REPLACING:
                if name.startswith(start):
                    for old in [key for key in element if key.startswith(start)]:
                        del element[old]
            element[name] = value

    def index(self, id: str) -> int:
        """The index of the element with this id."""
        self.spend()
        return next(number for number, one in enumerate(self.elements) if one["id"] == id)

    def end(self, id: str, slices: bool = False) -> int:
        """The index after an element, its descendants and, optionally, its slices."""
        number = self.index(id) + 1
        starts = (id + ".", id + ":", id + "/") if slices else (id + ".",)
        while number < len(self.elements) and self.elements[number]["id"].startswith(starts):
            number += 1
        return number

    def insert(self, index: int, element: Json) -> None:
        """Insert an element."""
        if len(self.elements) >= MOST_ELEMENTS:
            raise SnapshotError(f"{self.url}: its snapshot has more than {MOST_ELEMENTS} elements")
        self.elements.insert(index, element)
        self.ids.add(element["id"])


def _renamed(element: Json, old: str, new: str, is_base: bool = False) -> Json:
    """A copy of an element under another id.  `is_base`: it is copied from the base definition."""
    id = new + element["id"][len(old) :]
    copy = {**element, "id": id, "path": path_of(id)}
    if "base" not in copy:
        copy["base"] = {"path": element["path"], "min": element.get("min", 0), "max": element.get("max", "*")}
    if is_base and "." not in id:
        copy["base"] = {"path": new, "min": 0, "max": "*"}
    reference = copy.get("contentReference")
    if is_base and reference is not None:
        copy["contentReference"] = reference
    return copy


def _type_named(element: Json, suffix: str) -> Json | None:
    """The type of a choice that a JSON name ends with."""
    for one in element.get("type", ()):
        if suffix and one["code"][0].upper() + one["code"][1:] == suffix:
            return dict(one)
    return None


def _merged(old: list[Any], new: list[Any]) -> list[Any]:
    """The old items, replaced by new ones with the same key, then the other new items."""
    keys = {one.get("key") for one in new if isinstance(one, dict) and "key" in one}
    kept = [one for one in old if not (isinstance(one, dict) and one.get("key") in keys and "key" in one)]
    return kept + [one for one in new if isinstance(one, dict) or one not in old]
