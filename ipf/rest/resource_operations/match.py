"""POST [base]/Patient/$match: which stored Patients may be the person that a client describes.

An identifier that identifies by the rules of converted messages (`rest/identity/decisions.py`) makes a certain match,
when these rules choose one Patient by it.  Name, birth date and gender make probable and possible ones.  Candidates
come from searches with a bound each; a caller with limits gets what he may find.

Source: https://hl7.org/fhir/R4/patient-operation-match.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.index.entries import normalise
from ipf.fhir.model.identifier import identifiers_of, keys_in_use
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.search.language.query import parse_query
from ipf.mapping.bundle.keys import patient_identity
from ipf.ports import Answer, Json, Request, Version
from ipf.ports.identity import Identity
from ipf.rest.http.arguments import Arguments
from ipf.rest.identity.decisions import EXACT, Candidate, decide_patient, strongest
from ipf.rest.write.permission import limited
from ipf.rest.write.repository import Repository

GRADE = "http://hl7.org/fhir/StructureDefinition/match-grade"
CERTAIN, PROBABLE, POSSIBLE = "certain", "probable", "possible"
_COUNT, _MOST_COUNT = 20, 100
_MOST_IDENTIFIERS = 20
_MOST_CANDIDATES = 100  # of one search
_PROBABLE, _POSSIBLE = 0.8, 0.5
_HIGHEST = 0.99  # of what is not certain


@dataclass(slots=True)
class _Found:
    """One candidate with its grade."""

    version: Version
    resource: Json
    grade: str = ""
    score: float = 0.0


async def match(request: Request, repository: Repository) -> Answer:
    """A searchset, best matches first, each with `search.score` and the extension match-grade."""
    if request.path[0] != "Patient":
        raise Problem(Category.NOT_FOUND, "$match is defined for Patient")
    names = ("resource", "onlyCertainMatches", "count")
    arguments = await Arguments.read(request, names, repository.run_in_thread)
    patient = arguments.structure("resource", "Patient")
    if patient is None:
        raise Problem(Category.REQUIRED, "the parameter resource, a Patient, is required", "resource")
    count = arguments.number("count")
    count = _COUNT if count is None else min(count, _MOST_COUNT)
    found = await _candidates(patient, request, repository)
    _grade(patient, found, repository)
    only_certain = arguments.boolean("onlyCertainMatches")
    kept = [one for one in found if one.grade and (one.grade == CERTAIN or not only_certain)]
    kept.sort(key=lambda one: (-one.score, one.version.rid))
    kept = kept[:count]
    return Answer(200, _bundle(kept, request.base_url), about=tuple(one.version for one in kept))


async def _candidates(patient: Json, request: Request, repository: Repository) -> list[_Found]:
    """The Patients that share an identifier, or enough of name, birth date and gender; without merged ones."""
    versions: dict[int, Version] = {}
    for pairs in _searches(patient):
        wanted = [*pairs, ("_count", str(_MOST_CANDIDATES)), ("_total", "none")]
        query = limited(parse_query("Patient", wanted), request.caller)
        for version in (await repository.store.search(request.tenant, query)).matches:
            versions.setdefault(version.rid, version)
    found = [_Found(version, loads(version.body)) for version in versions.values()]
    return [one for one in found if not _is_replaced(one.resource)]


def _searches(patient: Json) -> Iterator[list[tuple[str, str]]]:
    """The searches that find candidates.  Problem COSTLY for too many identifiers."""
    identifiers = identifiers_of(patient)
    if len(identifiers) > _MOST_IDENTIFIERS:
        raise Problem(Category.COSTLY, f"a Patient to match has at most {_MOST_IDENTIFIERS} identifiers", "resource")
    for one in identifiers:
        yield [("identifier", f"{_escaped(one.get('system', ''))}|{_escaped(one['value'])}")]
    family, given = _first(_families(patient)), _first(_givens(patient))
    born, gender = patient.get("birthDate"), patient.get("gender")
    by_name = [("family", _escaped(family))] if family else []
    if born:
        if by_name:
            yield [*by_name, ("birthdate", born)]
        if given:
            yield [("given", _escaped(given)), ("birthdate", born), *([("gender", gender)] if gender else [])]
    if by_name and given:
        yield [*by_name, ("given", _escaped(given))]


def _grade(patient: Json, found: Sequence[_Found], repository: Repository) -> None:
    identity = _identity(patient, repository)
    sure = None if identity is None else _certain(identity, patient, found)
    for one in found:
        if one is sure:
            one.grade, one.score = CERTAIN, 1.0
            continue
        one.score = min(_HIGHEST, round(_likeness(patient, one.resource), 2))
        one.grade = PROBABLE if one.score >= _PROBABLE else POSSIBLE if one.score >= _POSSIBLE else ""


def _identity(patient: Json, repository: Repository) -> Identity | None:
    """The identifiers that identify; None without any."""
    held = identifiers_of(patient)
    return patient_identity(deepcopy(patient), held[0], repository.identity_table) if held else None


def _certain(identity: Identity, patient: Json, found: Sequence[_Found]) -> _Found | None:
    """The one that a message with these identifiers would update."""
    by_id = {one.version.id: one for one in found}
    candidates = [
        Candidate(one.version.id, one.version.rid, one.resource, frozenset(keys_in_use(one.resource))) for one in found
    ]
    level, strong = strongest(identity, candidates)
    decision = decide_patient(identity, patient, level, strong)
    if decision.match is None or level != EXACT or identity.is_weak:
        return None
    return by_id[decision.match.id]


def _likeness(one: Json, other: Json) -> float:
    """How much two Patients have in common, from 0; another birth date or gender counts against them."""
    score = 0.35 * bool(_families(one) & _families(other)) + 0.2 * bool(_givens(one) & _givens(other))
    for name, weight in (("birthDate", 0.35), ("gender", 0.1)):
        mine, theirs = one.get(name), other.get(name)
        if mine and theirs:
            score += weight if mine == theirs else -weight
    shared = _numbers(one) & _numbers(other)
    return score + 0.3 * bool(shared)


def _numbers(patient: Json) -> set[tuple[str, str]]:
    return {(one.get("system", ""), one["value"]) for one in identifiers_of(patient)}


def _families(patient: Json) -> set[str]:
    return {normalise(one["family"]) for one in patient.get("name", ()) if isinstance(one.get("family"), str)}


def _givens(patient: Json) -> set[str]:
    texts = (given for one in patient.get("name", ()) for given in one.get("given", ()))
    return {normalise(one) for one in texts if isinstance(one, str)}


def _first(values: set[str]) -> str:
    return min(values, default="")


def _escaped(text: str) -> str:
    for mark in "\\,|$":
        text = text.replace(mark, "\\" + mark)
    return text


def _is_replaced(patient: Json) -> bool:
    """Whether it was merged into another one."""
    return any(one.get("type") == "replaced-by" for one in patient.get("link", ()))


def _bundle(found: Sequence[_Found], base_url: str) -> bytes:
    entries: list[Any] = [
        {
            "fullUrl": f"{base_url}/Patient/{one.version.id}",
            "resource": one.resource,
            "search": {"extension": [{"url": GRADE, "valueCode": one.grade}], "mode": "match", "score": one.score},
        }
        for one in found
    ]
    made: Json = {"resourceType": "Bundle", "type": "searchset", "total": len(entries)}
    return dumps(made | ({"entry": entries} if entries else {}))
