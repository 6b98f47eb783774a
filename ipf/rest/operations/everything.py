"""Patient/[id]/$everything and Encounter/[id]/$everything: the record and its supporting resources, in pages.

The matches are the resource itself and all resources of its compartment.  Each page includes the Practitioners,
Organizations, Locations and other supporting resources that its matches reference.

Source: https://hl7.org/fhir/R4/operation-patient-everything.html,
https://hl7.org/fhir/R4/operation-encounter-everything.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ipf.errors import Category, Problem
from ipf.fhir.model.bundle import searchset
from ipf.fhir.search.parameters.compartments import compartments, membership
from ipf.ports import Answer, Request
from ipf.ports.queries.predicates import AllOf, Test
from ipf.rest.http.arguments import Arguments
from ipf.rest.http.exchange import applied, preference
from ipf.rest.interactions.searches.care_period import CarePeriod
from ipf.rest.interactions.searches.include import Included, references
from ipf.rest.interactions.searches.search import (
    CURSOR,
    Scope,
    cursor_of,
    directed,
    links,
    queries_of,
    self_link,
    types_found,
    types_of,
)
from ipf.rest.interactions.searches.types import search_types
from ipf.rest.write.repository import Repository
from ipf.rest.write.visibility import readable_now

_PERIOD = ("start", "end")
_PARAMETERS = {
    "Patient": frozenset({"_since", "_type", "_count", CURSOR, *_PERIOD}),
    "Encounter": frozenset({"_since", "_type", "_count", CURSOR}),
}


async def everything(request: Request, repository: Repository) -> Answer:
    """A searchset Bundle; `_since`, `_type`, `start` and `end` narrow it.  404 and 410 as for a read."""
    compartment, id = request.path[:2]
    if compartment not in _PARAMETERS:
        raise Problem(Category.NOT_FOUND, f"$everything is defined for {' and '.join(_PARAMETERS)}")
    version = await repository.store.read(request.tenant, compartment, id)
    version = await readable_now(version, request.caller, request.tenant, repository.store)
    if version is None or version.deleted:
        category = Category.NOT_FOUND if version is None else Category.GONE
        raise Problem(category, f"{compartment}/{id} does not exist")
    arguments = await Arguments.read(request, None, repository.run_in_thread)
    accepted = _accepted(request, arguments.pairs())
    named, pairs = types_of([pair for pair in accepted if pair[0] not in _PERIOD])
    period = CarePeriod.read(*(_only(accepted, name) for name in _PERIOD))
    members = compartments()[compartment]
    possible = [one for one in (compartment, *sorted(members)) if not named or one in named]
    types = await types_found(request, repository, possible, named)

    def restrict(resource_type: str) -> Test | None:
        belongs, in_period = membership(compartment, id, resource_type), period.test(resource_type)
        return belongs if belongs is None or in_period is None else AllOf((belongs, in_period))

    cursor, pairs = cursor_of(pairs)
    search_pairs = [("_lastUpdated", f"ge{value}") if name == "_since" else (name, value) for name, value in pairs]
    scope = Scope(list(dict.fromkeys(types)), "/".join(request.path), False, restrict)
    included = Included(repository.store, request.tenant, request.base_url, repository.max_page_size, request.caller)
    if not scope.types:
        return Answer(200, searchset((), 0, request.base_url, [self_link(request, scope.path, accepted)]))
    found = [replace(query, sort=()) for query in await queries_of(request, repository, search_pairs, scope)]
    opened, queries = directed(found, await repository.opened(cursor))
    page = await search_types(repository.store, request.tenant, queries, opened)
    included.known.update((one.resource_type, one.id) for one in page.matches)
    await included.refer(
        key
        for one in page.matches
        for key, _ in references(one, request.base_url)
        if _is_supporting(key[0], compartment, named)
    )
    used = [pair for pair in accepted if pair[0] != CURSOR]
    all_links = await links(request, repository, scope.path, used, cursor, page)
    return Answer(
        200,
        searchset(page.matches, page.total, request.base_url, all_links, included=included.versions),
        applied(request, "handling", "lenient", "strict"),
    )


def _is_supporting(resource_type: str, compartment: str, named: Sequence[str]) -> bool:
    """Whether a referenced resource is a supporting resource: its type is not in the compartment."""
    if named and resource_type not in named:
        return False
    return resource_type not in compartments()[compartment] and resource_type != compartment


def _only(pairs: Sequence[tuple[str, str]], name: str) -> str | None:
    values = [value for given, value in pairs if given == name]
    if len(values) > 1:
        raise Problem(Category.VALUE, f"the parameter {name} is there more than once", name)
    return values[0] if values else None


def _accepted(request: Request, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    known = _PARAMETERS[request.path[0]]
    unknown = [name for name, _ in pairs if name not in known]
    if unknown and preference(request, "handling") != "lenient":
        raise Problem(Category.NOT_SUPPORTED, f"$everything has no parameter {unknown[0][:80]}", unknown[0][:80])
    return [pair for pair in pairs if pair[0] in known]
