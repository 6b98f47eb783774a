"""Whether two resources with one number are one thing: what the number is of must not contradict.

Senders number the segments of a message by counters, and use the number of an order for several things.  So OBX-21,
SPM-2, NK1-33 and the order number of a vaccination identify only together with what they number: the test and its
sub-ID, the kind of specimen, the person, the vaccine.  What one of the two does not say contradicts nothing.

Source: HL7 v2.9 sections 7.4.2.21 (OBX-21), 7.4.3.2 (SPM-2), 3.3.5.33 (NK1-33), 4A.4.7 (RXA)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import Any

from ipf.fhir.model.json import dumps
from ipf.ports import Json
from ipf.ports.identity import ServiceCode

RELATED_PERSON = "RelatedPerson"
_SUB_ID = "http://hl7.org/fhir/StructureDefinition/observation-v2-subid"


def is_numbered(resource_type: str) -> bool:
    """Whether a number of this type identifies only together with its content."""
    return resource_type in _CONTRADICTS


def contradict(one: Json, other: Json) -> bool:
    """Whether two resources of one type and number are different things."""
    check = _CONTRADICTS.get(one["resourceType"])
    return check is not None and check(one, other)


def condition_of(resource: Json) -> str:
    """What a search has beside the number where a message has several things under it; empty: nothing fits."""
    if resource["resourceType"] == RELATED_PERSON:
        names = sorted(_names(resource, "given") or _names(resource, "family"))
        return f"name={names[0]}" if names else ""
    name, parameter = _SEARCHED.get(resource["resourceType"], ("", ""))
    codes = _codes(resource.get(name))
    return f"{parameter}={min(codes)[1]}" if codes else ""


def concepts_contradict(one: Any, other: Any) -> bool:
    """Whether two CodeableConcepts have codes of one system and none in common, else other texts."""
    codes, others = _codes(one), _codes(other)
    if codes & others:
        return False
    if {system for system, _ in codes} & {system for system, _ in others}:
        return True
    texts, other_texts = _texts(one), _texts(other)
    if texts and other_texts:
        return not texts & other_texts
    return bool(codes or texts) and bool(others or other_texts)


def _of(name: str) -> Callable[[Json, Json], bool]:
    return lambda one, other: concepts_contradict(one.get(name), other.get(name))


def _observations(one: Json, other: Json) -> bool:
    return concepts_contradict(one.get("code"), other.get("code")) or _differ(_sub_ids(one), _sub_ids(other))


def _persons(one: Json, other: Json) -> bool:
    """Whether two persons differ.

    They have other given names; or another family name, unless given names and birth date say that it is one person.
    """
    given, other_given = _names(one, "given"), _names(other, "given")
    if _differ(given, other_given):
        return True
    births = {one.get("birthDate"), other.get("birthDate")} - {None}
    is_known = bool(given & other_given) and len(births) < 2
    return not is_known and _differ(_names(one, "family"), _names(other, "family"))


_CONTRADICTS: dict[str, Callable[[Json, Json], bool]] = {
    "Observation": _observations,
    "Specimen": _of("type"),
    "Immunization": _of("vaccineCode"),
    RELATED_PERSON: _persons,
}
_SEARCHED = {
    "Observation": ("code", "code"),
    "Specimen": ("type", "type"),
    "Immunization": ("vaccineCode", "vaccine-code"),
}


def _differ(one: Set[Any], other: Set[Any]) -> bool:
    """Whether both say something, and nothing of it agrees."""
    return bool(one) and bool(other) and not one & other


def _sub_ids(observation: Json) -> set[bytes]:
    return {dumps(one) for one in _objects(observation.get("extension")) if one.get("url") == _SUB_ID}


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
