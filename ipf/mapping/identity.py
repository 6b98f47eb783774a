"""From the Bundle that a map made to a transaction that can be sent again and again.

Each entry gets a `fullUrl` and, when the map gave none, a `request` that finds the resource by its identifier, so that
a second message about the same patient updates what the first one stored instead of adding to it:

- what a message is about (Patient, Encounter ...) is updated: `PUT Type?identifier=system|value`;
- shared reference data (Practitioner, Organization, Location ...) is created once: `POST` with `ifNoneExist`;
- what has no identifier of its own in HL7 v2 (an allergy, a diagnosis, a next of kin) gets one that is computed:
  system `urn:ipf:derived`, value = hash of the patient's identifier, the type, and what names it among its kind.

The same identifier twice in one Bundle becomes one entry, with all references pointing at it.

Source: https://hl7.org/fhir/R4/http.html#cond-update, #ccreate, #transaction, https://hl7.org/fhir/R4/search.html#escaping.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Any
from urllib.parse import quote

from ipf.fhir.definitions import definitions
from ipf.fhir.json import dumps
from ipf.mapping.run import Run
from ipf.ports import Json

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
"""How an entry of a type is written when the map does not say; every other type is updated by its identifier."""

REPEATABLE = frozenset(("Observation", "DiagnosticReport"))
"""Types of which one message may say several under one natural key (the same test twice, without a time): these are
numbered, so that none is lost.  Of any other type the same key means the same thing, told twice."""

OF_A_VISIT = frozenset(("Condition", "Procedure"))
"""Types whose natural key counts within one encounter.  A result, a document or an immunization is the same one when it
comes again without its visit."""

BY_IDENTIFIER = "identifier"
"""`request.ifNoneExist` that a map writes where the engine shall put the search for the entry's identifier: what is not
there is created, what is there is left as it is (a result tells less of a patient than an admission)."""

_SAFE = re.compile(r"[A-Za-z0-9._~:/-]*")
_SPECIAL = re.compile(r"([\\,|$])")
_BY_TOKEN = "identifier="
_RANKS = {"Patient": 0, "Encounter": 1}
_OWNERS = ("patient", "subject", "beneficiary", "individual")


def complete(bundle: Json, run: Run) -> None:
    """Finish a Bundle in place.  A Bundle of another type than transaction, or no Bundle, is left as it is."""
    if bundle.get("resourceType") != "Bundle" or bundle.setdefault("type", "transaction") != "transaction":
        return
    entries = [one for one in bundle.get("entry", ()) if "resource" in one or _stands_alone(one)]
    once = {id(one["resource"]) for one in entries if len(one) > 1 and "request" in one and _wants_identifier(one)}
    _Deriver(entries, run).derive()
    kept, urls, is_renamed = _merge(entries, run, once)
    run.merged = urls
    if is_renamed:
        for holder, name, resource in run.references:
            if id(resource) in urls and name in holder:
                holder[name] = urls[id(resource)]
    if run.loose_references:
        _rewrite_all(kept, {run.urns[number]: url for number, url in urls.items() if number in run.urns})
    finished: Json = {key: bundle[key] for key in ("resourceType", "id", "meta", "type") if key in bundle}
    finished.update({key: value for key, value in bundle.items() if key not in finished}, entry=kept)
    bundle.clear()
    bundle.update(finished)


def _stands_alone(entry: Json) -> bool:
    """Whether an entry without a resource asks for something, such as a deletion."""
    return "request" in entry and bool(entry["request"].get("ifNoneExist") != BY_IDENTIFIER)


def _wants_identifier(entry: Json) -> bool:
    """Whether the map asked for BY_IDENTIFIER; its placeholder is then taken away."""
    if entry["request"].get("ifNoneExist") != BY_IDENTIFIER or "resource" not in entry:
        return False
    del entry["request"]
    return True


def request(resource: Json, *, is_once: bool = False) -> Json:
    """How a resource is written so that writing it twice does no harm.  `is_once`: never over what is there."""
    return _request(resource, is_once=is_once)[0]


def _request(resource: Json, *, is_once: bool) -> tuple[Json, str]:
    """The same, and what the resource is found by (`_condition`)."""
    resource_type = resource["resourceType"]
    if "id" in resource:
        url = f"{resource_type}/{resource['id']}"
        return {"method": "PUT", "url": url}, url
    identifier = _plain_identifier(resource) or match_identifier(resource)
    rule = CREATE_ONCE if is_once else RULES.get(resource_type, UPDATE)
    if identifier is None or rule == CREATE:
        return {"method": "POST", "url": resource_type}, ""
    if rule == CREATE_ONCE:
        search, condition = _shared_search(resource_type, identifier.get("system"), identifier["value"])
        return {"method": "POST", "url": resource_type, "ifNoneExist": search}, condition
    condition = f"{resource_type}?{_BY_TOKEN}{token(identifier)}"
    return {"method": "PUT", "url": condition}, condition


@lru_cache(maxsize=4096)
def _shared_search(resource_type: str, system: str | None, value: str) -> tuple[str, str]:
    """The search for a doctor, a ward or an organization, which come again and again; with its type before it, too."""
    search = f"{_BY_TOKEN}{_token(system, value)}"
    return search, f"{resource_type}?{search}"


def match_identifier(resource: Json) -> Json | None:
    """The identifier that finds the resource again: the first with system and value, else the first with a value.

    One that is no longer in use (`use` old) only counts when there is no other.
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
        rank = (2 if one.get("use") != "old" else 0) + (2 if "system" in one else 1)
        if rank > best_rank:
            best, best_rank = one, rank
            if rank == 4:
                break
    return best


def _plain_identifier(resource: Json) -> Json | None:
    """The same where it is the first, as it mostly is; else None."""
    held = resource.get("identifier")
    if held and type(held) is list:
        first: Json = held[0]
        if "value" in first and "system" in first and "use" not in first:
            return first
    return None


def token(identifier: Json) -> str:
    """`system|value` for a search URL; without a system `|value`, which finds only identifiers without one."""
    return _token(identifier.get("system"), identifier["value"])


def _token(system: str | None, value: str) -> str:
    return f"{_escaped_system(system) if system else ''}|{_escaped(value)}"


def _escaped(text: str) -> str:
    r"""FHIR's escapes for `\ , | $`, then those of a URL."""
    if _SAFE.fullmatch(text):
        return text
    return quote(_SPECIAL.sub(r"\\\1", text), safe=":/")


_escaped_system = lru_cache(maxsize=1024)(_escaped)


class _Deriver:
    """Gives a computed identifier to what has none, or replaces a natural key by its hash."""

    def __init__(self, entries: list[Json], run: Run) -> None:
        self._resources: list[Json] = [one["resource"] for one in entries if "resource" in one and "request" not in one]
        self._run = run
        self._patient = next((one for one in self._resources if one["resourceType"] == "Patient"), None)
        self._patient_url = None if self._patient is None else run.urns.get(id(self._patient))
        self._patient_key = ""
        self._by_url: dict[str, Json] | None = None
        self._seen: dict[str, int] = {}

    def derive(self) -> None:
        """Patients first, since the keys of others are made from theirs; then encounters; then the rest."""
        todo = []
        for one in self._resources:
            plain = _plain_identifier(one)
            if (plain is None or plain["system"] == DERIVED) and _lacks_identity(one):
                todo.append(one)
        for resource in sorted(todo, key=_rank):
            self._give(resource)

    def _give(self, resource: Json) -> None:
        natural = _natural_key(resource)
        resource_type = resource["resourceType"]
        encounter = self._encounter_key(resource) if natural is None or resource_type in OF_A_VISIT else ""
        material = [resource_type, self._owner_key(resource), encounter]
        if natural is not None:
            natural["value"] = self._numbered(resource_type, material, natural["value"])
        elif resource_type == "Patient":
            _add_identifier(resource, _digest(*material, str(self._resources.index(resource))))
        else:
            _add_identifier(resource, _digest(*material, self._fingerprint(resource)))

    def _numbered(self, resource_type: str, material: list[str], natural: str) -> str:
        """Hash of a natural key; the second of a repeatable type has another one, the same whenever it is sent."""
        value = _digest(*material, natural)
        if resource_type in REPEATABLE:
            count = self._seen[value] = self._seen.get(value, 0) + 1
            if count > 1:
                return _digest(*material, natural, str(count))
        return value

    def _owner_key(self, resource: Json) -> str:
        """Who the resource is about: the match key of that patient; of a patient the key of the message."""
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
        if not self._patient_key:  # patients have their identifiers by now
            self._patient_key = self._key_of(owner)
        return self._patient_key

    def _key_of(self, owner: Json | None) -> str:
        identifier = None if owner is None else match_identifier(owner)
        return self._run.key.hex() if identifier is None else token(identifier)

    def _encounter_key(self, resource: Json) -> str:
        encounter = self._referred(resource.get("encounter"))
        identifier = None if encounter is None else match_identifier(encounter)
        return "" if identifier is None else token(identifier)

    def _referred(self, reference: Any) -> Json | None:
        """The resource of this Bundle that a Reference element points at."""
        if type(reference) is not dict or "reference" not in reference:
            return None
        if reference["reference"] == self._patient_url:
            return self._patient
        if self._by_url is None:
            self._by_url = {self._run.urns[id(one)]: one for one in self._resources if id(one) in self._run.urns}
        return self._by_url.get(reference["reference"])

    def _fingerprint(self, resource: Json) -> str:
        """The content without what differs from message to message: a reference becomes what it points at."""
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
    """An identifier that the map filled with the natural key in plain text."""
    identifier = match_identifier(resource)
    return identifier if identifier is not None and identifier.get("system") == DERIVED else None


def _digest(*material: str) -> str:
    return blake2b("\0".join(material).encode(), digest_size=16).hexdigest()


def _merge(entries: list[Json], run: Run, once: set[int]) -> tuple[list[Json], dict[int, str], bool]:
    """Finished entries, each condition once; the fullUrl by the id() of every resource that came in; and whether one of
    them is not what references to the resource say.

    `once`: the id() of resources that are not to be written over.
    """
    kept: list[Json] = []
    by_condition: dict[str, Json] = {}
    urls: dict[int, str] = {}
    is_renamed, urns = False, run.urns
    for entry in entries:
        resource = entry.get("resource")
        if resource is None:
            kept.append(entry)
            continue
        number, is_plain = id(resource), len(entry) == 1
        how = None if is_plain else entry.get("request")
        if how is None:
            how, condition = _request(resource, is_once=number in once)
        else:
            condition = _condition(how)
        twin = by_condition.get(condition) if condition else None
        if twin is not None:
            urls[number], is_renamed = twin["fullUrl"], True
            _fill(twin["resource"], resource)
            continue
        url = urls[number] = (None if is_plain else entry.get("fullUrl")) or urns.get(number) or run.urn(resource)
        if "id" in resource or "meta" in resource:
            _put_in_order(resource)
        finished = {"fullUrl": url, "resource": resource, "request": how}
        if not is_plain:
            is_renamed = True
            finished |= {key: value for key, value in entry.items() if key not in finished}
        by_condition[condition] = finished
        kept.append(finished)
    return kept, urls, is_renamed


def _condition(how: Json) -> str:
    """What an entry is found by; empty when it is not conditional."""
    once = how.get("ifNoneExist")
    if once:
        return f"{how['url']}?{once}"
    return how["url"] if how.get("method") == "PUT" else ""


def _fill(resource: Json, twin: Json) -> None:
    """What the second description of a thing adds to the first; where both speak, the first counts."""
    for key, value in twin.items():
        resource.setdefault(key, value)


def _put_in_order(resource: Json) -> None:
    """resourceType, id and meta first.  In place, since others hold the resource."""
    rest = dict(resource)
    resource.clear()
    for key in ("resourceType", "id", "meta"):
        if key in rest:
            resource[key] = rest.pop(key)
    resource.update(rest)


def _rewrite_all(value: Any, urls: dict[str, str]) -> None:
    """Replace references wherever they stand: only needed when a map kept one in a variable."""
    items = list(value.items()) if type(value) is dict else list(enumerate(value))
    for key, one in items:
        if type(one) in (dict, list):
            _rewrite_all(one, urls)
        elif type(one) is str and urls.get(one, one) != one:
            value[key] = urls[one]
