"""One resource in, its de-identified copy out.

What becomes of an element follows from its data type, unless the profile says something about its path:

- boolean, decimals, times of day: kept
- integers: kept up to the bound of the element, since a longer one may be an identifier
- code: kept when the element has a required binding to a value set that contains it
- date, dateTime, instant: moved by the days of the patient; of resources of no or several patients, only the year; of
  more than 90 years ago, the year 90 years ago
- Coding, CodeableConcept, quantities: system and code of known systems, without words; quantities with their value
- values of Observations: when their code is kept, since a number without a meaning may be an identifier
- Reference: the hashed id, when resources of that type are in the export
- Period, Range, Ratio, Timing, Dosage, Money, inner structures: their elements, one by one
- Age, and any quantity in years, months, weeks or days: up to 89 years, above it 90
- anything else: removed, and what is empty then

A modifier extension may say the opposite of the rest, so a resource that has one is left out.

Source: 45 CFR 164.514(b); https://hl7.org/fhir/R4/extensibility.html#modifierExtension
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ipf.fhir.index.extract import extract
from ipf.fhir.model.definitions import Element, definitions
from ipf.fhir.model.reference import local_reference
from ipf.fhir.search.parameters.compartments import compartments
from ipf.fhir.structure.required_codes import required_codes
from ipf.ports import Json
from ipf.security.deident.profile import INTEGERS, Action, Profile
from ipf.security.deident.pseudonyms import Pseudonyms, earlier, not_older, year

PSEUDONYMIZED = {"system": "http://terminology.hl7.org/CodeSystem/v3-ObservationValue", "code": "PSEUDED"}
SUBSETTED = {"system": "http://terminology.hl7.org/CodeSystem/v3-ObservationValue", "code": "SUBSETTED"}

_DATES = frozenset({"date", "dateTime", "instant"})
_QUANTITIES = frozenset({"Quantity", "SimpleQuantity", "Count", "Distance", "Duration", "MoneyQuantity"})
_MEASURED = frozenset({"Observation", "Observation.component"})
_STRUCTURES = frozenset({"Period", "Range", "Ratio", "Timing", "Dosage", "Money"})
_OLDEST = 89
_UNITS_A_YEAR = {"a": 1, "mo": 12, "wk": 52, "d": 365}
_TIME = re.compile(r"\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?", re.ASCII)
_UCUM = "http://unitsofmeasure.org"


class _LeftOut(Exception):
    """The resource cannot be de-identified."""


@dataclass(frozen=True, slots=True)
class Deidentification:
    """How this installation de-identifies."""

    profile: Profile
    pseudonyms: Pseudonyms

    @property
    def title(self) -> str:
        """Profile and key, for the manifest: two exports with the same title can be joined."""
        return f"{self.profile.title} {self.pseudonyms.fingerprint}"

    def of(self, tenant: str, now: datetime) -> Deidentifier:
        """For the resources of a tenant."""
        return Deidentifier(self.profile, self.pseudonyms, tenant, now)


@dataclass(frozen=True, slots=True)
class Deidentifier:
    """De-identifies resources of one tenant.  `now`: the time of the export."""

    profile: Profile
    pseudonyms: Pseudonyms
    tenant: str
    now: datetime

    def copy(self, resource: Json) -> Json | None:
        """The de-identified resource; None: it is left out."""
        kind, id = resource.get("resourceType"), resource.get("id")
        if kind not in self.profile.resources or not isinstance(kind, str) or not isinstance(id, str):
            return None
        patients = patients_of(resource)
        days = self.pseudonyms.days(self.tenant, patients.pop()) if len(patients) == 1 else None
        walk = _Walk(self, days)
        try:
            found = walk.members(resource, kind)
        except _LeftOut:
            return None
        stored = resource.get("meta")
        labels = walk.codings(stored.get("security")) if isinstance(stored, dict) else []
        meta = {"security": [*labels, PSEUDONYMIZED], "tag": [SUBSETTED]}
        return {"resourceType": kind, "id": self.pseudonyms.id(self.tenant, kind, id), "meta": meta, **found}


def patients_of(resource: Json) -> set[str]:
    """The logical ids of the patients whose compartments a resource is in."""
    if resource["resourceType"] == "Patient":
        return {str(resource["id"])}
    codes = compartments()["Patient"].get(resource["resourceType"], ())
    return {
        value.removeprefix("Patient/")
        for code, value in extract(resource).texts
        if code in codes and value.startswith("Patient/")
    }


@dataclass(frozen=True, slots=True)
class _Walk:
    """The way through one resource.  `days`: by which its dates move; None: only years are kept."""

    of: Deidentifier
    days: int | None

    def members(self, node: Mapping[str, Any], type_path: str) -> Json:
        """The kept elements of an object."""
        found: Json = {}
        for name, value in node.items():
            if name == "modifierExtension":
                raise _LeftOut
            if name == "extension":
                kept: Any = self._extensions(value)
            elif name in ("id", "meta", "contained", "resourceType"):
                continue
            else:
                element = definitions().element(type_path, name)
                kept = None if element is None else self._element(value, element)
            if kept not in (None, [], {}):
                found[name] = kept
        return self._measured(found) if type_path in _MEASURED else found

    def _measured(self, found: Json) -> Json:
        """Without the value when nothing says what it is, or when it may be an age over 89."""
        codes = {f"{one['system']}|{one['code']}" for one in found.get("code", {}).get("coding", ())}
        is_safe = not codes & self.of.profile.ages or _units_a_year(found.get("valueQuantity", {})) is not None
        if codes and is_safe:
            return found
        return {name: value for name, value in found.items() if not name.startswith("value")}

    def _element(self, value: Any, element: Element) -> Any:
        action = self.of.profile.elements.get(element.path)
        if action is Action.REMOVE:
            return None
        if isinstance(value, list):
            if not element.many:
                return None
            kept = [self._value(one, element, action) for one in value]
            return [one for one in kept if one not in (None, [], {})]
        return self._value(value, element, action)

    def _value(self, value: Any, element: Element, action: Action | None) -> Any:
        type_name = element.types[0]
        if isinstance(value, dict):
            return self._object(value, type_name, is_kept=action is Action.KEEP)
        if isinstance(value, list) or type_name not in definitions().primitive_types:
            return None
        if type_name in _DATES:
            return self._date(value, type_name, action)
        return value if self._keeps(value, type_name, element.path, action) else None

    def _keeps(self, value: object, type_name: str, path: str, action: Action | None) -> bool:
        """Whether a primitive other than a date is kept as it is."""
        if action is Action.KEEP:
            return True
        if isinstance(value, bool) or type_name == "boolean":
            return isinstance(value, bool) and type_name == "boolean"
        if type_name in INTEGERS:
            return isinstance(value, int) and self.of.profile.keeps_integer(path, value)
        return _is_text_kept(value, type_name, path) if isinstance(value, str) else type_name == "decimal"

    def _object(self, value: Json, type_name: str, *, is_kept: bool) -> Json | None:
        if type_name == "Coding":
            return next(iter(self.codings([value])), None)
        if type_name == "CodeableConcept":
            return {"coding": codings} if (codings := self.codings(value.get("coding"))) else None
        if type_name == "Reference":
            return self._reference(value)
        if type_name in _QUANTITIES:
            return self._quantity(value)
        if type_name == "Age":
            return self._age(value)
        is_structure = type_name in _STRUCTURES or "." in type_name
        return self.members(value, type_name) if is_structure or (is_kept and type_name != "Extension") else None

    def codings(self, values: Any) -> list[Json]:
        """The codings of known systems, without words."""
        found = []
        for one in values if isinstance(values, list) else ():
            if isinstance(one, dict) and self.of.profile.keeps(one.get("system"), one.get("code")):
                found.append({"system": one["system"], "code": one["code"]})
        return found

    def _quantity(self, value: Json) -> Json:
        found = self.members({name: value[name] for name in ("value", "comparator") if name in value}, "Quantity")
        if found and self.of.profile.keeps(value.get("system"), value.get("code")):
            found |= {"system": value["system"], "code": value["code"]}
        elif found and self.of.profile.keeps(_UCUM, value.get("unit")):
            found["unit"] = value["unit"]
        a_year = _units_a_year(found)
        is_older = a_year is not None and found["value"] > _OLDEST * a_year
        return {**found, "value": (_OLDEST + 1) * a_year} if a_year is not None and is_older else found

    def _age(self, value: Json) -> Json | None:
        found = self._quantity(value)
        return None if _units_a_year(found) is None else found

    def _reference(self, value: Json) -> Json | None:
        text = value.get("reference")
        target = local_reference(text) if isinstance(text, str) else None
        if target is None or target.resource_type not in self.of.profile.resources:
            return None
        id = self.of.pseudonyms.id(self.of.tenant, target.resource_type, target.id)
        return {"reference": f"{target.resource_type}/{id}"}

    def _date(self, value: object, type_name: str, action: Action | None) -> str | None:
        if not isinstance(value, str):
            return None
        is_moved = self.days is not None and action is not Action.YEAR
        found = earlier(value, self.days or 0) if is_moved else year(value)
        if found is None:
            return None
        found = not_older(found, self.of.now)
        return None if type_name == "instant" and len(found) == len("2026") else found

    def _extensions(self, values: Any) -> list[Json]:
        """The extensions of the profile: their URLs, coded and numeric values, and what is in them."""
        found = []
        for one in values if isinstance(values, list) else ():
            url = one.get("url") if isinstance(one, dict) else None
            if not isinstance(url, str) or url not in self.of.profile.extensions:
                continue
            kept = self._extensions(one.get("extension"))
            rest = self.members({name: value for name, value in one.items() if name.startswith("value")}, "Extension")
            if kept or rest:
                found.append({"url": url, **({"extension": kept} if kept else {}), **rest})
        return found


def _units_a_year(quantity: Json) -> int | None:
    """How many of the unit of a kept quantity are a year; None when it is no time of days or longer."""
    unit = quantity.get("code" if quantity.get("system") == _UCUM else "unit", "")
    return _UNITS_A_YEAR.get(unit) if "value" in quantity else None


def _is_text_kept(value: str, type_name: str, path: str) -> bool:
    """Whether a text is kept: a time of day, or a code of R4."""
    if type_name == "time":
        return _TIME.fullmatch(value) is not None
    codes = required_codes(path) if type_name == "code" else None
    return codes is not None and codes.codes is not None and value in codes.codes
