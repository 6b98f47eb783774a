"""How the resources of a converted message are found again: the keys of each, and their role.

A Patient is found by all its numbers that identify (`language/identity_table`), in the order of the resource (the maps
put the medical record number first).  Any other resource is found by one identifier: the first in use.

Numbers of another domain than the message's get `use: secondary`, so that no later message finds the Patient by them.

Source: https://hl7.org/fhir/R4/datatypes.html#Identifier, https://hl7.org/fhir/R4/patient.html
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache

from ipf.errors import Category, Problem
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.identifier import OLD, SECONDARY, identifiers_of, key_of
from ipf.mapping.language.identity_table import Identifies, IdentityTable
from ipf.ports import Json
from ipf.ports.identity import OVERLAY, Identity, IdentityKey, Role

MEDICAL_RECORD_NUMBER = "MR"
_SHORT = 6  # characters; a longer number of one repeated digit is a placeholder


def identity_of(resource: Json, identifier: Json, role: Role, *, may_move: bool = False) -> Identity:
    """The identity of any resource but a Patient, by `identifier`.

    Problem NOT_SUPPORTED: its type has no search by identifier.
    """
    if not _is_searchable(resource["resourceType"]):
        raise Problem(Category.NOT_SUPPORTED, f"{resource['resourceType']} has no search parameter identifier")
    key = key_of(identifier)
    if type(key.value) is not str:
        raise Problem(Category.VALUE, "the value of an identifier is no text")
    return _shared(key) if role is Role.AUXILIARY else Identity((key,), role, may_move)


def with_further_numbers(identity: Identity, resource: Json, *, is_shared: bool) -> Identity:
    """The identity of a resource that is updated whatever its type: its first identifier counts too, also an old one.

    `is_shared`: reference data, of which any identifier with a system counts.
    """
    held = identifiers_of(resource)
    meant = [one for one in held if "system" in one] if is_shared else held[:1]
    keys = tuple(dict.fromkeys((*identity.keys, *map(key_of, meant))))
    return replace(identity, keys=keys, is_declared=identity.role is Role.SUBJECT)


@lru_cache(maxsize=4096)
def _shared(key: IdentityKey) -> Identity:
    """The identity of a practitioner, a ward or an organization; they repeat often."""
    return Identity((key,), Role.AUXILIARY)


def patient_identity(patient: Json, identifier: Json, table: IdentityTable) -> Identity:
    """All numbers that identify; without one, `identifier` alone, weakly.  Marks numbers of other domains."""
    held: list[Json] = patient["identifier"]
    if type(held) is not list:
        return Identity((key_of(identifier),), Role.SUBJECT)
    numbers = [_Number(place, one, table) for place, one in enumerate(held) if _is_number(one)]
    domain = _domain(numbers)
    keys: dict[IdentityKey, int] = {}
    for number in numbers:
        key, one, rule = number.key, number.identifier, number.rule
        if rule is Identifies.ALWAYS or (rule is Identifies.DOMAIN and key.system == domain):
            if not is_placeholder(key.value):
                keys.setdefault(key, number.overlay)
            if number.is_secondary:  # configured to identify
                held[number.place] = _without_use(one)
        elif rule is Identifies.DOMAIN and "use" not in one:
            held[number.place] = {"use": SECONDARY, **one}
    if keys:
        limits = tuple(keys.values())
        return Identity(tuple(keys), Role.SUBJECT, overlay=limits if {*limits} != {OVERLAY} else ())
    return _only_number(held, identifier)


class _Number:
    """A number of a Patient that is not out of use, and whether it identifies."""

    __slots__ = ("identifier", "is_secondary", "key", "overlay", "place", "rule")

    def __init__(self, place: int, identifier: Json, table: IdentityTable) -> None:
        self.place = place
        self.identifier = identifier
        self.key = key_of(identifier)
        self.is_secondary = identifier.get("use") == SECONDARY
        name = identifier["assigner"].get("display", "") if "assigner" in identifier else ""
        row = table.row(self.key.system, name, self.key.type, is_secondary=self.is_secondary)
        self.rule, self.overlay = row.identifies, row.overlay


def _is_number(identifier: Json) -> bool:
    return type(identifier.get("value")) is str and identifier.get("use") != OLD


def _domain(numbers: list[_Number]) -> str | None:
    """The authority of the medical record number, else of the first number that identifies within its domain."""
    first = None
    for number in numbers:
        if not number.is_secondary and number.rule is not Identifies.NEVER:
            if number.key.type == MEDICAL_RECORD_NUMBER:
                return number.key.system
            if not first and number.rule is Identifies.DOMAIN:
                first = number.key.system
    return first


def _only_number(held: list[Json], identifier: Json) -> Identity:
    """The identity by the number that is left: a secondary one is then the number of its domain."""
    key = key_of(identifier)
    if type(key.value) is not str:
        raise Problem(Category.VALUE, "the value of an identifier is no text")
    is_secondary = identifier.get("use") == SECONDARY
    if is_secondary:
        held[:] = [_without_use(one) if one is identifier else one for one in held]
    return Identity((key,), Role.SUBJECT, is_weak=not is_secondary)


def _without_use(identifier: Json) -> Json:
    return {name: part for name, part in identifier.items() if name != "use"}


def is_placeholder(value: str) -> bool:
    """Whether a number is one digit or letter repeated (000-00-0000): senders write it where they know none."""
    characters = [one for one in value if one.isalnum()]
    return len(characters) >= _SHORT and len(set(characters)) == 1


@cache
def _is_searchable(resource_type: str) -> bool:
    return "identifier" in definitions().search_parameters(resource_type)
