"""Whether two resources with one number are one thing: what the number is of must not contradict.

Senders number the segments of a message by counters, and use the number of an order for several things.  So OBX-21,
SPM-2, NK1-33 and the order number of a vaccination identify only together with what they number: the test and its
sub-ID and the order, the kind of specimen, the person, the vaccine, the product and the time, the diagnosis, the
allergen, the procedure.  What one of the two does not say contradicts nothing.

Source: HL7 v2.9 sections 7.4.2.21 (OBX-21), 7.4.3.2 (SPM-2), 3.3.5.33 (NK1-33), 4A.4.7 (RXA), 6.5.2.20 (DG1-20),
6.5.4.19 (PR1-19), 3.3.7.7 (IAM-7), 12.3.2.4 (PRB-4)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any

from ipf.fhir.model.json import dumps
from ipf.ports import Json
from ipf.ports.identity import ServiceCode

RELATED_PERSON = "RelatedPerson"
_NOTHING: Mapping[str, str] = MappingProxyType({})
_MEDICATION = "medicationCodeableConcept"
_SUB_ID = "http://hl7.org/fhir/StructureDefinition/observation-v2-subid"


MOST_COMPARED = 100
"""Things under one number of a message that are compared one by one; of further ones only equal ones are found."""


@dataclass(frozen=True, slots=True)
class Concept:
    """What is compared of a CodeableConcept."""

    codes: frozenset[ServiceCode]
    systems: frozenset[str]
    texts: frozenset[str]

    def contradicts(self, other: Concept) -> bool:
        """Whether both have codes of one system and none in common, else other texts."""
        if self.codes & other.codes:
            return False
        if self.systems & other.systems:
            return True
        if self.texts and other.texts:
            return not self.texts & other.texts
        return bool(self.codes or self.texts) and bool(other.codes or other.texts)


@dataclass(frozen=True, slots=True)
class Thing:
    """What the number of any other resource is of.

    `orders`: what an Observation is based on.  `time`: of an Observation without an order, or of an administration.
    """

    concept: Concept
    sub_ids: frozenset[bytes] = frozenset()
    orders: frozenset[str] = frozenset()
    time: str = ""

    @property
    def names(self) -> frozenset[str]:
        """What two things have in common unless they contradict, or one of them says nothing; "" is none."""
        return frozenset(code for _, code in self.concept.codes) | self.concept.texts - {""}

    def contradicts(self, other: Thing) -> bool:
        """Whether two of one type are different things."""
        if self.concept.contradicts(other.concept) or _differ(self.sub_ids, other.sub_ids):
            return True
        return _differ(self.orders, other.orders) or bool(self.time and other.time and self.time != other.time)


@dataclass(frozen=True, slots=True)
class Person:
    """What the number of a RelatedPerson is of."""

    given: frozenset[str]
    family: frozenset[str]
    birth: str

    @property
    def names(self) -> frozenset[str]:
        """See `Thing.names`."""
        return self.given

    def contradicts(self, other: Person) -> bool:
        """Whether they have other given names; or another family name, unless given names and birth date agree."""
        if _differ(self.given, other.given):
            return True
        is_known = bool(self.given & other.given) and (self.birth == other.birth or not (self.birth and other.birth))
        return not is_known and _differ(self.family, other.family)


Content = Thing | Person


class ContentsOfNumber:
    """The entries of a message under one number, by what the number is of.

    `first`: the number of the first entry.  `named`: see `content_of`.  Entries are compared that have a code, a text
    or a given name in common, or say none: others contradict.
    """

    def __init__(self, first: int, named: Mapping[str, str] = _NOTHING) -> None:
        self._named = named
        self._contents: dict[int, Content] = {}
        self._unknown = {first}
        self._by_name: dict[str, dict[int, None]] = {}
        self._equal: dict[Content, int] = {}

    def find(self, content: Content, resource_of: Callable[[int], Json]) -> int | None:
        """The entry that is not something else; it may take over what it does not say itself."""
        for number in tuple(self._unknown):
            self._unknown.discard(number)
            held = content_of(resource_of(number), self._named)
            if held is None:
                return number
            self._index(held, number)
        for number in self._alike(content):
            if not self._contents[number].contradicts(content):  # type: ignore[arg-type]  # of one resource type
                self._unknown.add(number)
                return number
        return self._equal.get(content)

    def add(self, content: Content, number: int) -> None:
        """Add an entry."""
        self._index(content, number)
        self._equal[content] = number

    def _index(self, content: Content, number: int) -> None:
        self._contents[number] = content
        for name in content.names or ("",):
            self._by_name.setdefault(name, {})[number] = None

    def _alike(self, content: Content) -> list[int]:
        """The entries to compare, the first one first."""
        if not content.names:
            return list(islice(self._contents, MOST_COMPARED))
        names = (*content.names, "")
        return sorted({one for name in names for one in islice(self._by_name.get(name, ()), MOST_COMPARED)})


def is_numbered(resource_type: str) -> bool:
    """Whether a number of this type identifies only together with its content."""
    return resource_type == RELATED_PERSON or resource_type in _SEARCHED


def content_of(resource: Json, named: Mapping[str, str] = _NOTHING) -> Content | None:
    """What the number of a resource is of; None: its type is not in question.

    `named`: other names of the orders that an Observation refers to.
    """
    if resource["resourceType"] == RELATED_PERSON:
        birth = resource.get("birthDate")
        given, family = (frozenset(_names(resource, part)) for part in ("given", "family"))
        return Person(given, family, birth if isinstance(birth, str) else "")
    name, _ = _SEARCHED.get(resource["resourceType"], ("", ""))
    if not name:
        return None
    if resource["resourceType"] == "MedicationAdministration":
        return Thing(_concept(_medication(resource)), time=_time(resource))
    concept = _concept(resource.get(name))
    if resource["resourceType"] != "Observation":
        return Thing(concept)
    orders = frozenset([named.get(one, one) for one in _orders(resource)])
    return Thing(concept, frozenset(_sub_ids(resource)), orders, "" if orders else _time(resource))


def names_of(resource: Json) -> frozenset[str]:
    """See `Thing.names`."""
    content = content_of(resource)
    return frozenset() if content is None else content.names


def contradict(one: Json, other: Json, named: Mapping[str, str] = _NOTHING) -> bool:
    """Whether two resources of one type and number are different things.  `named`: see `content_of`, of the first."""
    content, held = content_of(one, named), content_of(other)
    return content is not None and held is not None and content.contradicts(held)  # type: ignore[arg-type]


def without_number(identifiers: Mapping[int, Json], resources: Iterable[Json]) -> list[Json]:
    """The Observations of a message whose number is none: others have it too, of the same test with another content.

    `identifiers`: of the resources, by their id().
    """
    held: dict[tuple[object, object], list[Json]] = {}
    for one in resources:
        identifier = identifiers.get(id(one)) if one["resourceType"] == "Observation" else None
        if identifier is not None:
            held.setdefault((identifier["system"], identifier["value"]), []).append(one)
    return [one for several in held.values() if len(several) > 1 for one in _lossy(several)]


def _lossy(several: list[Json]) -> Iterable[Json]:
    """The Observations of one number that would be one, and differ; the order does not tell them apart here."""
    groups = {0: several[:1]}
    under = ContentsOfNumber(0)
    for number, one in enumerate(several[1:], 1):
        content = _without_orders(one)
        held = under.find(content, several.__getitem__)
        if held is None:
            under.add(content, number)
            groups[number] = []
        groups[number if held is None else held].append(one)
    return [one for same in groups.values() if any(_told(other) != _told(same[0]) for other in same) for one in same]


def _told(observation: Json) -> Json:
    """All but the order, which may be told twice."""
    return {name: value for name, value in observation.items() if name != "basedOn"}


def _without_orders(observation: Json) -> Thing:
    return Thing(_concept(observation.get("code")), frozenset(_sub_ids(observation)))


def sub_id_text(observation: Json) -> str:
    """OBX-4 of an Observation, as a text for keys."""
    return b"|".join(sorted(_sub_ids(observation))).decode()


def condition_of(resource: Json) -> str:
    """What a search has beside the number where a message has several things under it; empty: nothing fits."""
    if resource["resourceType"] == RELATED_PERSON:
        names = sorted(_names(resource, "given") or _names(resource, "family"))
        return f"name={names[0]}" if names else ""
    name, parameter = _SEARCHED.get(resource["resourceType"], ("", ""))
    codes = _codes(_medication(resource) if name == _MEDICATION else resource.get(name))
    return f"{parameter}={min(codes)[1]}" if codes else ""


def _concept(value: Any) -> Concept:
    codes = frozenset(_codes(value))
    return Concept(codes, frozenset(system for system, _ in codes), frozenset(_texts(value)))


_SEARCHED = {
    "Observation": ("code", "code"),
    "Specimen": ("type", "type"),
    "Immunization": ("vaccineCode", "vaccine-code"),
    "MedicationAdministration": (_MEDICATION, "code"),
    "Condition": ("code", "code"),
    "AllergyIntolerance": ("code", "code"),
    "Procedure": ("code", "code"),
}
"""The element that says what the number is of, and its search parameter."""


def _medication(administration: Json) -> Any:
    """The code of a product, also of a contained one."""
    held = administration.get(_MEDICATION)
    if held is None:
        held = next((one.get("code") for one in _objects(administration.get("contained"))), None)
    return held


def _time(resource: Json) -> str:
    """When it was, or began."""
    time = resource.get("effectiveDateTime") or resource.get("effectivePeriod", {}).get("start")
    return time if isinstance(time, str) else ""


def _differ(one: Set[Any], other: Set[Any]) -> bool:
    """Whether both say something, and nothing of it agrees."""
    return bool(one) and bool(other) and not one & other


def _sub_ids(observation: Json) -> set[bytes]:
    return {dumps(one) for one in _objects(observation.get("extension")) if one.get("url") == _SUB_ID}


def _orders(observation: Json) -> Iterable[str]:
    references = [one.get("reference") for one in _objects(observation.get("basedOn"))]
    return [one for one in references if isinstance(one, str)]


def _codes(concept: Any) -> set[ServiceCode]:
    codings = _objects(concept.get("coding")) if type(concept) is dict else ()
    return {(str(one.get("system", "")), str(one["code"])) for one in codings if "code" in one}


def _texts(concept: Any) -> set[str]:
    if type(concept) is not dict:
        return set()
    texts = [concept.get("text"), *(one.get("display") for one in _objects(concept.get("coding")))]
    return {"".join(one.casefold().split()) for one in texts if isinstance(one, str)}


def _names(person: Json, part: str) -> set[str]:
    """Family names, or the words of the given names."""
    found: list[Any] = []
    for one in _objects(person.get("name")):
        held = one.get(part, ())
        found += held if type(held) is list else [held]
    return {word for one in found if isinstance(one, str) for word in one.casefold().replace("-", " ").split()}


def _objects(held: Any) -> Iterable[Json]:
    return [one for one in held if type(one) is dict] if type(held) is list else ()
