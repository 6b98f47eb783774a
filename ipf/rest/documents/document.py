"""Composition/[id]/$document: the Composition and what it refers to, as a Bundle of type document.

The Composition comes first, then what it refers to (subject, authors, attesters, custodian, encounter, entries of
sections ...), then what those refer to, each once.  References to other servers stay as they are.  A reference of the
Composition itself to a resource that is missing, or that the caller may not read, is refused: R4 requires those in a
document; `Prefer: handling=lenient` leaves them out, as those of other resources are.

Source: https://hl7.org/fhir/R4/composition-operation-document.html, https://hl7.org/fhir/R4/documents.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

from ipf.errors import Category, Issue, Problem
from ipf.fhir.model.bundle import instant
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.model.reference import local_reference, relative_form
from ipf.fhir.structure.primitives import is_id
from ipf.ports import Answer, Json, Request, Version
from ipf.rest.http.arguments import Arguments
from ipf.rest.http.exchange import location, preference
from ipf.rest.write.incoming import check_incoming
from ipf.rest.write.repository import Repository
from ipf.rest.write.unit import Entry, Method, unit_for
from ipf.rest.write.visibility import readable_now, visible_now
from ipf.security.access import required

TYPE = "Composition"
MAX_RESOURCES = 1_000
_MAX_NAMED = 20  # missing references in one refusal

Key = tuple[str, str]
"""(resource type, id)"""


async def document(request: Request, repository: Repository) -> Answer:
    """The document; with `persist=true` it is stored as a Bundle, and `Location` names it."""
    if request.path[0] != TYPE:
        raise Problem(Category.NOT_FOUND, f"$document is defined for {TYPE}")
    arguments = await Arguments.read(request, ("id", "persist", "graph"), repository.run_in_thread)
    if arguments.text("graph") is not None:
        raise Problem(Category.NOT_SUPPORTED, "this server has no graph but its own: leave graph out", "graph")
    persist = arguments.boolean("persist")
    if persist and request.method != "POST":
        raise Problem(Category.VALUE, "persist=true needs POST", "persist")
    composition = await _composition(_id(request, arguments), request, repository)
    collected = await _collected(composition, request, repository)
    bundle = _bundle(collected, request, repository)
    if not persist:
        return Answer(200, dumps(bundle), about=collected.versions)
    required(request.caller, "Bundle", "c")
    entry = Entry(Method.CREATE, "Bundle", None, check_incoming(bundle, repository))
    result = await repository.commit_one(unit_for(request, entry))
    assert result.entries[0].version is not None, "a create has a version"
    stored = result.entries[0].version
    headers = [("Location", location(stored, request.base_url))]
    return Answer(200, stored.body, headers, about=[*collected.versions, stored])


def _id(request: Request, arguments: Arguments) -> str:
    """The id in the URL, or that of the parameter: an id, or the URL of a Composition of this server."""
    if len(request.path) == 3:
        return request.path[1]
    value = relative_form(arguments.required("id"), request.base_url).removeprefix(f"{TYPE}/")
    if not is_id(value):
        raise Problem(Category.VALUE, "id must name a Composition of this server", "id")
    return value


async def _composition(id: str, request: Request, repository: Repository) -> Version:
    found = await repository.store.read(request.tenant, TYPE, id)
    found = await readable_now(found, request.caller, request.tenant, repository.store)
    if found is None or found.deleted:
        category = Category.NOT_FOUND if found is None else Category.GONE
        raise Problem(category, f"{TYPE}/{id} does not exist")
    return found


@dataclass(slots=True)
class _Collected:
    """The versions of a document, in order."""

    versions: list[Version]
    known: set[Key] = field(default_factory=set)


async def _collected(composition: Version, request: Request, repository: Repository) -> _Collected:
    """The Composition and all that it leads to.  Problem BUSINESS_RULE: missing; COSTLY: too many."""
    found = _Collected([composition], {(TYPE, composition.id)})
    wanted = dict(_references(loads(composition.body), TYPE, request.base_url))
    places = wanted
    while wanted:
        found.known.update(wanted)
        if len(found.versions) + len(wanted) > MAX_RESOURCES:
            raise Problem(Category.COSTLY, f"a document has at most {MAX_RESOURCES} resources")
        read = await repository.store.read_many(request.tenant, list(wanted))
        read = await visible_now(read, request.caller, request.tenant, repository.store, "r")
        if wanted is places and preference(request, "handling") != "lenient":
            _check_all({(one.resource_type, one.id) for one in read}, places)
        found.versions += read
        bodies: list[list[tuple[Key, str]]] = await repository.run_in_thread(
            partial(_references_of, read, request.base_url)
        )
        wanted = {key: place for pairs in bodies for key, place in pairs if key not in found.known}
    return found


def _check_all(read: set[Key], places: dict[Key, str]) -> None:
    missing = [(key, place) for key, place in places.items() if key not in read]
    if missing:
        issues = [Issue(f"{kind}/{id} does not exist", place) for (kind, id), place in missing[:_MAX_NAMED]]
        raise Problem(Category.BUSINESS_RULE, issues[0].text, issues[0].place, issues=tuple(issues))


def _references_of(versions: list[Version], base_url: str) -> list[list[tuple[Key, str]]]:
    """The references of each of these."""
    return [list(_references(loads(one.body), one.resource_type, base_url)) for one in versions]


def _references(value: Any, place: str, base_url: str) -> Iterator[tuple[Key, str]]:
    """The resources of this server that an element refers to, each with its place."""
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from _references(one, f"{place}[{number}]", base_url)
    elif isinstance(value, dict):
        for name, one in value.items():
            if name == "reference" and isinstance(one, str):
                literal = local_reference(one, base_url)
                if literal is not None:
                    yield (literal.resource_type, literal.id), place
            elif isinstance(one, dict | list):
                yield from _references(one, f"{place}.{name}", base_url)


def _bundle(collected: _Collected, request: Request, repository: Repository) -> Json:
    identifier = {"system": "urn:ietf:rfc:3986", "value": f"urn:uuid:{uuid4()}"}
    entries = [
        {"fullUrl": f"{request.base_url}/{one.resource_type}/{one.id}", "resource": loads(one.body)}
        for one in collected.versions
    ]
    return {
        "resourceType": "Bundle",
        "identifier": identifier,
        "type": "document",
        "timestamp": instant(repository.clock()),
        "entry": entries,
    }
