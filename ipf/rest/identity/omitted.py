"""What an update by an HL7 v2 message keeps of a stored resource: all that the message leaves out.

- An element whose fields the message leaves out keeps its stored value; a null (`""`) deletes it.
- A list keeps the items of fields that are left out; a field with a value replaces the items that it sent before.
- Items of a segment with an action code (DG1-21, ROL-2 ...) are replaced one by one: the others stay.
- A value that says "unknown" because nothing was sent does not replace a known one.
- An order that names another drug than the stored one keeps nothing of it.

What arrives: the resource of the message, the stored one, the sources of both.  What leaves: the resource to be stored,
the elements that were kept, and its sources.  The stored sources are text beside the version (`Version.sources`).  An
element without a stored source (written by a FHIR client, or before sources were stored) is replaced when the message
has this element, and else stays.  So does each element of a message of which no fields were recorded.

Source: HL7 v2.9 section 2.5.3
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ipf.fhir.model.json import dumps
from ipf.mapping.bundle.merging import other_types
from ipf.ports import Json
from ipf.ports.queries.field_sources import UNKNOWN_SOURCES, FieldSources, parts_of
from ipf.rest.identity.consistent import consistent
from ipf.rest.identity.elements import (
    at,
    by_subject,
    has_parts,
    is_group,
    is_within,
    items_of,
    says_unknown,
    subject_of,
    without,
)
from ipf.rest.identity.stored_sources import SETS, digest, origins_in, read_sources, text_of, written

_OWN = frozenset(("resourceType", "id", "meta", "text", "contained"))
"""Elements with rules of their own."""
_IDENTITY = frozenset(("identifier", "link"))
"""Elements of a Patient that `retained` decides about."""
_ACTION_CODES = {"DG1": "DG1-21", "ROL": "ROL-2", "PRT": "PRT-2", "GOL": "GOL-1", "PRB": "PRB-1", "PTH": "PTH-1"}
_MOST_ALIKE = 20
"""Stored items about one thing that a new item is compared with."""
_LABELS = ("security", "tag", "profile")
_EXTENSIONS = frozenset(("extension", "modifierExtension"))


@dataclass(frozen=True, slots=True)
class Kept:
    """The resource to be stored, the paths of what it keeps of the stored one, and the text of its sources."""

    resource: Json
    paths: tuple[str, ...]
    sources: str


def keep_omitted(resource: Json, stored: Json | None, sources: FieldSources, before: str) -> Kept:
    """The resource of a message with what it keeps.  `stored`: None when it is new; `before`: its sources."""
    if not stored:
        return Kept(resource, (), _new_sources(resource, sources))
    merge = _Merge(resource, stored, sources, {} if sources is UNKNOWN_SOURCES else read_sources(before))
    if not sources.is_snapshot:
        merge.keep_labels()
        if not _is_of_another_drug(resource, stored):
            merge.run()
    return Kept(merge.made, tuple(merge.kept), merge.sources())


def _new_sources(resource: Json, sources: FieldSources) -> str:
    found: dict[str, Any] = {}
    for path, given in sources.elements.items():
        held = at(resource, path) if type(given) is list else None
        found[path] = written(path, held, given) if type(given) is list and type(held) is list else given
    return text_of(found)


def _is_of_another_drug(resource: Json, stored: Json) -> bool:
    """Whether an order or administration names another drug: then no dose or route of the stored one is meant."""
    names = ("medicationCodeableConcept", "medicationReference")
    if any(name in resource and stored.get(name) != resource[name] for name in names):
        return True
    return names[1] in resource and resource.get("contained") != stored.get("contained")


class _Merge:
    """One update.  `made`: the result; `kept`: the paths of elements that it keeps."""

    def __init__(self, resource: Json, stored: Json, sources: FieldSources, before: dict[str, Any]) -> None:
        self.made: Json = dict(resource)
        self.kept: dict[str, None] = {}
        self._resource = resource
        self._stored = stored
        self._type: str = resource["resourceType"]
        self._sources = sources
        self._stated = sources.stated
        self._before = before
        self._own = _OWN | _IDENTITY if self._type == "Patient" else _OWN
        self._completed_items: dict[str, list[Any]] = {}
        self._lists: dict[str, dict[str, str]] = {}

    def run(self) -> None:
        """Keep what the message leaves out."""
        for name, held in self._stored.items():
            is_own = name in self._own and not (name == "text" and self._origin(name))
            if not is_own and not name.startswith("_"):
                self._keep_element(name, held)
        self._keep_companions()
        self._keep_contained()
        self.made = consistent(self.made, self._resource)
        self._keep_narrative()

    # -- one element

    def _keep_element(self, name: str, held: Any) -> None:
        if name in self._resource:
            self._combine(name, self._resource[name], held)
        elif not self._is_other_type(name, held):
            if type(held) is list:
                self._put(name, [one for one in held if self._stays(name, one)])
            elif type(held) is dict and has_parts(self._type, name):
                self._put(name, self._parts(name, {}, held))
            elif self._is_left_out(name, self._before.get(name)):
                self._put(name, held)

    def _put(self, name: str, value: Any) -> None:
        """Keep what there is of an element."""
        if value not in (None, [], {}):
            self.made[name] = value
            self.kept[name] = None

    def _is_left_out(self, path: str, origin: Any) -> bool:
        """Whether the message says nothing of a single element."""
        if type(origin) is str and origin:
            return not self._stated.states(origin)
        return not self._stated.is_null(" ".join(self._sources.known.get(path, ())))

    def _stays(self, name: str, item: Any) -> bool:
        """Whether an item of a list stays that the message does not have at all."""
        origin = self._of_list(name).get(digest(item))
        if origin:
            return not self._stated.states(origin)
        known = self._sources.known.get(name, frozenset())
        is_whole = bool(known) and all(self._stated.states(one) for one in known)
        return not (is_whole and self._stated.is_null(" ".join(known)))

    def _is_other_type(self, name: str, held: Any) -> bool:
        """Whether the message says the element in another type.  "True" does not replace a value that says more."""
        others = other_types(self._type, name) & self._resource.keys()
        if not others:
            return False
        (other, *_) = others
        says_less = self._resource[other] is True and type(held) is not bool
        if says_less and self._is_left_out(name, self._before.get(name)):
            self.made.pop(other)
            self._put(name, held)
        return True

    # -- elements on both sides

    def _combine(self, name: str, new: Any, held: Any) -> None:
        if type(new) is list and type(held) is list:
            if self._gives_way(name, new, held):
                self._put(name, held)
            else:
                self._combine_lists(name, new, held)
        elif self._gives_way(name, new, held):
            self._put(name, held)
        elif type(new) is dict and type(held) is dict and has_parts(self._type, name):
            self.made[name] = self._parts(name, new, held)

    def _gives_way(self, path: str, new: Any, held: Any) -> bool:
        """Whether a new value does not replace the stored one: it is an initial one and other fields said the stored
        one, or no field says it and the field of the stored one is left out.
        """
        origin = self._origin(path)
        if path in self._sources.initial:
            is_told_again = origin == self._sources.elements.get(path) or says_unknown(held)
            return bool(new != held) and not is_told_again and not (origin and self._stated.is_null(origin))
        given = [one for one in items_of(self._sources.elements.get(path, "")) if one]
        if new == held or (type(new) is dict and "reference" in new):
            return False
        if all(map(says_unknown, items_of(new))) and not all(map(says_unknown, items_of(held))):
            return not any(map(self._stated.states, given))
        is_default = not any(map(self._stated.states_any, given))
        return is_default and bool(origin) and not self._stated.states(origin)

    def _origin(self, path: str) -> str:
        """The stored fields of a single element; empty: not known."""
        found = self._before.get(path, "")
        return found if type(found) is str else ""

    def _combine_lists(self, name: str, new: list[Any], held: list[Any]) -> None:
        """The new items, and the stored ones that stay."""
        if is_group(self._type, name):
            new = self._completed_items[name] = self.made[name] = self._completed(name, new, held)
        staying = self._staying(name, new, held)
        if not staying:
            return
        self.made[name] = self._in_order(name, new, [one for one in held if digest(one) in staying], held)
        self.kept[name] = None

    def _in_order(self, name: str, new: list[Any], staying: list[Any], held: list[Any]) -> list[Any]:
        """The items by the fields that they come from, in the order in which these were stored: the first name of a
        person stays the one of PID-5.
        """
        origins = self._of_list(name)
        places: dict[str, list[Any]] = {origins.get(key, key): [] for key in map(digest, held)}
        for one in staying:
            places[origins.get(digest(one), digest(one))].append(one)
        given = self._sources.elements.get(name)
        for one, fields in zip(new, given if type(given) is list else [""] * len(new), strict=False):
            places.setdefault(fields or digest(one), []).append(one)
        return [one for found in places.values() for one in found]

    def _of_list(self, name: str) -> dict[str, str]:
        """The stored fields of a list's items, by digest."""
        found = self._lists.get(name)
        if found is None:
            found = self._lists[name] = origins_in(self._stored.get(name), self._before.get(name))
        return found

    def _completed(self, name: str, new: list[Any], held: list[Any]) -> list[Any]:
        """Each new item with the parts that its fields leave out, of the stored item about the same thing."""
        mine, theirs = by_subject(new), by_subject(held)
        made = []
        for one in new:
            subject = subject_of(one)
            alike = theirs.get(subject, ()) if subject else ()
            if len(alike) == 1 and len(mine[subject]) == 1:
                made.append(self._with_parts(name, one, alike[0]))
            else:
                whole = (other for other in alike[:_MOST_ALIKE] if is_within(one, other))
                made.append(self._with_parts(name, one, next(whole, one)))
        return made

    def _with_parts(self, name: str, new: Json, held: Json) -> Json:
        left_out = {
            part: value for part, value in held.items() if part not in new and self._is_left_out_part(f"{name}.{part}")
        }
        if left_out:
            self.kept[name] = None
        return {**new, **left_out}

    def _is_left_out_part(self, path: str) -> bool:
        known = self._sources.known.get(path, ())
        return bool(known) and not any(self._stated.states(one) for one in known)

    def _staying(self, name: str, new: list[Any], held: list[Any]) -> set[str]:
        sent = {digest(one) for one in new}
        urls = {one.get("url") for one in new} if name in _EXTENSIONS else set()
        told = {(subject_of(one), digest(one.get("type"))) for one in new if type(one) is dict}
        given = self._sources.elements.get(name, ())
        again = {one for one in given if one}
        staying: set[str] = set()
        for one in held:
            key = digest(one)
            origin = self._of_list(name).get(key)
            if key in sent:
                continue
            if origin:
                is_said = origin in again or self._stated.states(origin)
                if not is_said or (self._is_action(origin) and (subject_of(one), digest(one.get("type"))) not in told):
                    staying.add(key)
            elif name in _EXTENSIONS and one.get("url") not in urls:
                staying.add(key)
        return staying

    def _is_action(self, origin: str) -> bool:
        """Whether the message has action codes for the segments that an item comes from."""
        codes = [_ACTION_CODES[segment] for segment, _ in parts_of(origin) if segment in _ACTION_CODES]
        return any(self._stated.states(one) and not self._stated.is_null(one) for one in codes)

    def _parts(self, name: str, new: Json, held: Json) -> Json:
        """A group of elements: each by itself."""
        made = dict(new)
        for part, value in held.items():
            path = f"{name}.{part}"
            origin = self._before.get(path)
            if part in new:
                if self._gives_way(path, new[part], value):
                    made[part] = value
            elif self._is_left_out(path, origin if origin is not None else self._before.get(name)):
                made[part] = value
                self.kept[path] = None
        return made

    # -- the rest of the resource

    def _keep_companions(self) -> None:
        """Extensions of primitives (`_birthDate`) go with their values, or stand for them."""
        for name, held in self._stored.items():
            base = name[1:]
            if name[0] != "_" or name in self.made:
                continue
            if base in self._stored:
                is_same = self.made.get(base) == self._stored[base]
            else:
                is_same = base not in self.made and not self._is_other_type(base, held)
            if is_same and self._is_left_out(base, self._before.get(base)):
                self.made[name] = held
                self.kept[base] = None

    def keep_labels(self) -> None:
        """Security labels, tags and profiles, which a message without any does not take away."""
        held, new = self._stored.get("meta", {}), self.made.get("meta", {})
        kept = {name: held[name] for name in _LABELS if name in held and name not in new}
        if kept:
            self.made["meta"] = {**new, **kept}

    def _keep_contained(self) -> None:
        """Contained resources that kept elements refer to."""
        held = self._stored.get("contained", ())
        new = self.made.get("contained", [])
        if not held or not self.kept:
            return
        meant = {part.partition(b'"')[0].decode() for part in dumps(self.made).split(b'"#')[1:]}
        meant -= {one.get("id") for one in new}
        kept = [one for one in held if one.get("id") in meant]
        if kept:
            self.made["contained"] = [*new, *kept]

    def _keep_narrative(self) -> None:
        """The narrative of a client stays as long as what it tells does."""
        told = self._stored.get("text")
        if told and "text" not in self.made and not self._origin("text"):
            is_unchanged = without(self.made, "id", "meta") == without(self._stored, "id", "meta", "text")
            self.made |= {"text": told} if is_unchanged else {}

    def sources(self) -> str:
        """The sources of the result, as text."""
        found: dict[str, Any] = {}
        for path in {**self._before, **self._sources.elements}:
            held, given, old = at(self.made, path), self._sources.elements.get(path), self._before.get(path)
            if type(held) is list:
                sent = self._completed_items.get(path) or at(self._resource, path)
                origins = dict(origins_in(at(self._stored, path), old))
                if type(given) is list and type(sent) is list:
                    origins |= {digest(one): fields for one, fields in zip(sent, given, strict=False)}
                found[path] = written(path, held, [origins.get(key, "") for key in map(digest, held)])
            elif held is not None:
                is_said = type(given) is str and self._stated.states_any(given) and path not in self.kept
                found[path] = given if is_said else old or given
        return text_of(found | {SETS: self._before.get(SETS)})
