"""Identifiers that find the resources of a message again, so that its transaction is idempotent.

An entry without a `request` from the map gets an identity (`keys`) that finds its resource by identifier: by system,
value and type.  So a second message about the same patient updates the stored resource.  As JSON, for a FHIR server:

- subjects of messages (Patient, Encounter ...) are updated: `PUT Type?identifier=system|value`, for an identifier with
  a type with `&identifier:of-type=system|code|value`;
- shared reference data (Practitioner, Organization, Location ...) is created once: `POST` with `ifNoneExist`;
- types without an identifier in HL7 v2 (allergies, diagnoses, next of kin) get a computed one: system
  `urn:ipf:derived`, value = hash of the patient identifier, the type, and the natural key.

`transaction` makes the entries.

The JSON names the first key of a Patient only; the store of ipf looks for all.

Source: https://hl7.org/fhir/R4/http.html#cond-update, #ccreate, #transaction,
https://hl7.org/fhir/R4/search.html#escaping, #modifiers (of-type).
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Any
from urllib.parse import quote

from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.identifier import OLD, SECONDARY, identifiers_of, key_of, type_coding
from ipf.fhir.model.json import dumps
from ipf.mapping.bundle.contents import sub_id_text, without_number
from ipf.mapping.bundle.keys import patient_identity
from ipf.mapping.language.identity_table import IdentityTable
from ipf.mapping.runtime.run import Run
from ipf.ports import Json
from ipf.ports.identity import Identity, IdentityKey

DERIVED = "urn:ipf:derived"

UPDATE, CREATE_ONCE, CREATE = "update", "create once", "create"

RULES: dict[str, str] = {
    "Practitioner": CREATE_ONCE,
    "PractitionerRole": CREATE_ONCE,
    "Organization": CREATE_ONCE,
    "Location": CREATE_ONCE,
    "HealthcareService": CREATE_ONCE,
    "Device": CREATE_ONCE,
    "Medication": CREATE_ONCE,
    "Substance": CREATE_ONCE,
    "Endpoint": CREATE_ONCE,
    "MessageHeader": CREATE,
    "Provenance": CREATE,
    "AuditEvent": CREATE,
    "Binary": CREATE,
    "Bundle": CREATE,
    "OperationOutcome": CREATE,
    "Parameters": CREATE,
}
"""Default request by type; every other type is updated by its identifier."""

REPEATABLE = frozenset(("Observation", "DiagnosticReport"))
"""Types of which one message may say several under one natural key (the same test twice, without a time): these are
numbered, so that none is lost.  Of any other type the same key means the same thing, told twice."""

OF_A_VISIT = frozenset(("Condition", "Procedure"))
"""Types whose natural key counts within one encounter.  A result, a document or an immunization is the same one when it
comes again without its visit."""

BY_IDENTIFIER = "identifier"
"""`request.ifNoneExist` that a map writes where the engine shall put the search for the entry's identifier: what is not
there is created, what is there is left as it is (a result tells less of a patient than an admission).

As `request.url` of a PUT: what is there is updated whatever its type (a master file overwrites a place, a visit does
not), and it is found also by its first identifier when that has use `old` (the prior number of a patient whose number
changed)."""

_SAFE = re.compile(r"[A-Za-z0-9._~:/-]*")
_SPECIAL = re.compile(r"([\\,|$])")
_BY_TOKEN = "identifier="
_RANK_OF_USE = {OLD: 0, SECONDARY: 2}
_RANKS = {"Patient": 0, "Encounter": 1}
_OWNERS = ("patient", "subject", "beneficiary", "individual")


def request(resource: Json, table: IdentityTable, *, is_once: bool = False) -> tuple[Json, str]:
    """An idempotent request for a resource, and its search or URL; the text is empty when it is not conditional.

    `is_once`: never overwrite an existing resource.
    """
    resource_type = resource["resourceType"]
    if "id" in resource:
        return request_by_id(resource)
    identifier = plain_identifier(resource) or match_identifier(resource)
    rule = CREATE_ONCE if is_once else RULES.get(resource_type, UPDATE)
    if identifier is None or rule == CREATE:
        return {"method": "POST", "url": resource_type}, ""
    key = key_of(identifier)
    if resource_type == "Patient":
        key = patient_identity(resource, identifier, table).keys[0]
    return request_by_key(resource, key, is_once=rule == CREATE_ONCE)


def update_by_any(resource: Json) -> tuple[Json, str]:
    """The request of a PUT with the url BY_IDENTIFIER, and its condition; without an identifier a creation.

    The first identifier, or the one that other messages find it by: a message that is converted again after the prior
    number has gone meets the same resource, and two resources are an ambiguous match.  Shared reference data: any
    identifier with a system, since a master file says that they are of one person or place.
    """
    resource_type = resource["resourceType"]
    held = resource.get("identifier", ())
    valued = [one for one in (held if type(held) is list else (held,)) if "value" in one]
    usual = match_identifier(resource)
    if not valued or usual is None:
        return {"method": "POST", "url": resource_type}, ""
    is_shared = RULES.get(resource_type) == CREATE_ONCE
    meant = [usual, *(one for one in valued if "system" in one)] if is_shared else [valued[0], usual]
    condition = f"{resource_type}?{_BY_TOKEN}{','.join(dict.fromkeys(map(token, meant)))}"
    return {"method": "PUT", "url": condition}, condition


def request_by_id(resource: Json) -> tuple[Json, str]:
    """The request for a resource with an id, and its URL."""
    url = f"{resource['resourceType']}/{resource['id']}"
    return {"method": "PUT", "url": url}, url


def request_by_key(resource: Json, key: IdentityKey, *, is_once: bool, further: str = "") -> tuple[Json, str]:
    """The conditional request for a resource with this key, and its search as a URL.

    `further`: a condition beside the key.
    """
    resource_type = resource["resourceType"]
    condition = f"{_BY_TOKEN}{_token(key.system, key.value)}"
    if key.type:
        named = (type_coding(one)[0] for one in identifiers_of(resource) if key_of(one) == key)
        system = next(named, "")  # a local type has none, and an empty one finds any
        of_type = f"{_escaped_system(system)}|{_escaped(key.type)}|{_escaped(key.value)}"
        condition = f"{condition}&identifier:of-type={of_type}"
    if further:
        name, _, value = further.partition("=")
        condition = f"{condition}&{name}={_escaped(value)}"
    url = f"{resource_type}?{condition}"
    if is_once:
        return {"method": "POST", "url": resource_type, "ifNoneExist": condition}, url
    return {"method": "PUT", "url": url}, url


def match_identifier(resource: Json) -> Json | None:
    """The identifier for the search: the first with system and value, else the first with a value.

    A secondary identifier counts only when there is no other, and one with use `old` after that.
    """
    held = resource.get("identifier")
    if not held:
        return None
    every: list[Json] = held if type(held) is list else [held]
    best: Json | None = None
    best_rank = 0
    for one in every:
        if "value" not in one:
            continue
        rank = _RANK_OF_USE.get(one.get("use", ""), 4) + (2 if "system" in one else 1)
        if rank > best_rank:
            best, best_rank = one, rank
            if rank == 6:
                break
    return best


def plain_identifier(resource: Json) -> Json | None:
    """The same when it is the first identifier, the usual case; else None."""
    held = resource.get("identifier")
    if held and type(held) is list:
        first: Json = held[0]
        if "value" in first and "system" in first and "use" not in first:
            return first
    return None


def token(identifier: Json) -> str:
    """`system|value` for a search URL; without a system `|value`, which matches only identifiers without one."""
    return _token(identifier.get("system"), identifier["value"])


def _token(system: str | None, value: str) -> str:
    return f"{_escaped_system(system) if system else ''}|{_escaped(value)}"


def _escaped(text: str) -> str:
    r"""FHIR escapes for `\\ , | $`, then those of a URL."""
    if _SAFE.fullmatch(text):
        return text
    return quote(_SPECIAL.sub(r"\\\1", text), safe=":/")


_escaped_system = lru_cache(maxsize=1024)(_escaped)


class Deriver:
    """Computes identifiers for resources without one, and replaces natural keys by their hashes."""

    def __init__(self, entries: list[Json], run: Run, table: IdentityTable) -> None:
        self._resources: list[Json] = [one["resource"] for one in entries if "resource" in one and "request" not in one]
        self._run = run
        self._table = table
        self._patients: dict[int, Identity] = {}
        self._patient: Json | None = None
        self._patient_key = ""
        self._near: dict[str, Json] = {}
        self._by_url: dict[str, Json] | None = None
        self._seen: dict[str, int] = {}
        self._places: dict[int, int] = {}

    def derive(self) -> dict[int, Json]:
        """Patients first, since other keys depend on theirs; then encounters; then the rest.

        Returns the plain identifiers by id() of their resources.
        """
        todo, found = [], {}
        urns = self._run.urns
        for one in self._resources:
            plain, resource_type = plain_identifier(one), one["resourceType"]
            if plain is not None:
                found[id(one)] = plain
            if (plain is None or plain["system"] == DERIVED) and _lacks_identity(one):
                todo.append(one)
            if resource_type == "Patient" or resource_type == "Encounter":
                if self._patient is None and resource_type == "Patient":
                    self._patient = one
                if id(one) in urns:
                    self._near[urns[id(one)]] = one
        for resource in sorted(todo, key=_rank):
            self._give(resource)
        for resource in without_number(found, self._resources):
            self._give_beside_number(resource)
            del found[id(resource)]
        return found

    def identity(self, patient: Json, identifier: Json) -> Identity:
        """The identity of a Patient; call it after its identifiers are complete."""
        found = self._patients.get(id(patient))
        if found is None:
            found = self._patients[id(patient)] = patient_identity(patient, identifier, self._table)
        return found

    def _give(self, resource: Json) -> None:
        natural = _natural_key(resource)
        resource_type = resource["resourceType"]
        encounter = self._encounter_key(resource) if natural is None or resource_type in OF_A_VISIT else ""
        material = [resource_type, self._owner_key(resource), encounter]
        if natural is not None:
            natural["value"] = self._numbered(resource_type, material, natural["value"])
        elif resource_type == "Patient":
            _add_identifier(resource, _digest(*material, self._place(resource)))
        else:
            _add_identifier(resource, _digest(*material, self._fingerprint(resource)))

    def _place(self, resource: Json) -> str:
        """The place of a resource among all."""
        if not self._places:
            self._places = {id(one): place for place, one in enumerate(self._resources)}
        return str(self._places[id(resource)])

    def _give_beside_number(self, observation: Json) -> None:
        """The key of a result whose number the message has for other results too: its order, test and time tell it."""
        orders = [self._referred(one) for one in observation.get("basedOn", ())]
        numbers = [match_identifier(one) for one in orders if one is not None]
        parts = [dumps(observation.get(name)).decode() for name in ("identifier", "code", "effectiveDateTime")]
        parts += [sub_id_text(observation), *(token(one) for one in numbers if one is not None)]
        material = ["Observation", self._owner_key(observation), ""]
        _add_identifier(observation, self._numbered("Observation", material, "\0".join(parts)))

    def _numbered(self, resource_type: str, material: list[str], natural: str) -> str:
        """Hash of a natural key; the second of a repeatable type gets another, stable one."""
        value = _digest(*material, natural)
        if resource_type in REPEATABLE:
            count = self._seen[value] = self._seen.get(value, 0) + 1
            if count > 1:
                return _digest(*material, natural, str(count))
        return value

    def _owner_key(self, resource: Json) -> str:
        """The subject: the match key of the patient; for a patient the key of the message."""
        resource_type = resource["resourceType"]
        if RULES.get(resource_type) == CREATE_ONCE:
            return ""
        if resource_type == "Patient":
            return self._run.key.hex()
        owner = self._patient
        for name in _OWNERS:
            referred = self._referred(resource[name]) if name in resource else None
            if referred is not None:
                owner = referred
                break
        if owner is not self._patient:
            return self._key_of(owner)
        if not self._patient_key:  # identifiers of patients are complete here
            self._patient_key = self._key_of(owner)
        return self._patient_key

    def _key_of(self, owner: Json | None) -> str:
        identifier = None if owner is None else match_identifier(owner)
        if owner is None or identifier is None:
            return self._run.key.hex()
        if owner["resourceType"] != "Patient":
            return token(identifier)
        key = self.identity(owner, identifier).keys[0]
        return _token(key.system, key.value)

    def _encounter_key(self, resource: Json) -> str:
        encounter = self._referred(resource.get("encounter"))
        identifier = None if encounter is None else match_identifier(encounter)
        return "" if identifier is None else token(identifier)

    def _referred(self, reference: Any) -> Json | None:
        """The resource of this Bundle that a Reference refers to."""
        if type(reference) is not dict or "reference" not in reference:
            return None
        near = self._near.get(reference["reference"])
        if near is not None:
            return near
        if self._by_url is None:
            self._by_url = {self._run.urns[id(one)]: one for one in self._resources if id(one) in self._run.urns}
        return self._by_url.get(reference["reference"])

    def _fingerprint(self, resource: Json) -> str:
        """The content without parts that differ from message to message: references become their targets."""
        return dumps(self._stable(resource)).decode()

    def _stable(self, value: Any) -> Any:
        if type(value) is list:
            return [self._stable(one) for one in value]
        if type(value) is not dict:
            return value
        target = self._referred(value)
        if target is not None:
            identifier = match_identifier(target)
            return [target["resourceType"], None if identifier is None else token(identifier)]
        return {key: self._stable(value[key]) for key in sorted(value)}


def _add_identifier(resource: Json, value: str) -> None:
    identifier = {"system": DERIVED, "value": value}
    element = definitions().element(resource["resourceType"], "identifier")
    if element is not None and not element.many:
        resource["identifier"] = identifier
    else:
        resource.setdefault("identifier", []).insert(0, identifier)


def _rank(resource: Json) -> int:
    return _RANKS.get(resource["resourceType"], 2)


def _lacks_identity(resource: Json) -> bool:
    identifier = match_identifier(resource)
    if identifier is not None and identifier.get("system") != DERIVED:
        return False
    resource_type = resource["resourceType"]
    if "id" in resource or RULES.get(resource_type) == CREATE:
        return False
    return identifier is not None or definitions().element(resource_type, "identifier") is not None


def _natural_key(resource: Json) -> Json | None:
    """The identifier that the map filled with a natural key in plain text."""
    identifier = match_identifier(resource)
    return identifier if identifier is not None and identifier.get("system") == DERIVED else None


def _digest(*material: str) -> str:
    return blake2b("\0".join(material).encode(), digest_size=16).hexdigest()
