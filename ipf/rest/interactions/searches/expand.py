"""Expansion of value sets, code hierarchies and Lists in a search into equality tests on the resource.

It runs once per search, so that the store and the in-memory matcher see equality tests only.

Source: https://hl7.org/fhir/R4/search.html#token, #list
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.index.entries import token_value
from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import loads
from ipf.fhir.model.reference import local_reference
from ipf.fhir.search.predicate import inner, rewritten, tests_equal, within
from ipf.fhir.search.values.parameter import any_of
from ipf.ports import Caller, FhirStore
from ipf.ports.queries.predicates import NOTHING, CodeIn, Has, IdIn, Linked, ListMember, ReferenceIn, Test
from ipf.ports.queries.search import Query, Term
from ipf.rest.write.permission import found_by, if_readable, visible
from ipf.rest.write.repository import Repository

_MAX_CODES = 10_000


async def expanded(query: Query, tenant: str, repository: Repository, caller: Caller) -> Query:
    """The query with `:in`, `:above`, `:below` and `_list` expanded.  Problem when a set is not loaded.

    A List that the caller may not read has no members, and a resource that he may not see has no place in a hierarchy.
    """
    if not any(within(term.test, CodeIn, ReferenceIn, ListMember) for term in query.terms):
        return query
    terms = [replace(term, test=await _expanded(term, query, tenant, repository, caller)) for term in query.terms]
    return replace(query, terms=tuple(terms))


async def _expanded(term: Term, query: Query, tenant: str, repository: Repository, caller: Caller) -> Test:
    replacements: dict[Test, Test] = {}
    for test, types in _set_tests(term.test, query.resource_type).items():
        if isinstance(test, CodeIn):
            replacements[test] = await _code_test(test, term.name, types, tenant, repository)
        elif isinstance(test, ReferenceIn):
            replacements[test] = await _hierarchy_test(test, term.name, tenant, repository, caller)
        elif isinstance(test, ListMember):
            replacements[test] = await _list_test(test, query.resource_type, tenant, repository, caller)
    return rewritten(term.test, lambda one: replacements.get(one, one))


def _set_tests(test: Test, resource_type: str) -> dict[Test, set[str]]:
    """The tests on sets in a test, each with the types of the resources that it is put to."""
    if isinstance(test, CodeIn | ReferenceIn | ListMember):
        return {test: {resource_type}}
    found: dict[Test, set[str]] = {}
    other = test.resource_type if isinstance(test, Linked | Has) else resource_type
    for one in inner(test):
        for each, types in _set_tests(one, other).items():
            found.setdefault(each, set()).update(types)
    return found


async def _code_test(test: CodeIn, name: str, types: set[str], tenant: str, repository: Repository) -> Test:
    terminology = repository.terminology
    if terminology is None:
        text = f"search parameter {name}: this server has no terminology service for value sets"
        raise Problem(Category.NOT_SUPPORTED, text, name)
    pairs: set[tuple[str, str]] = set()
    for resource_type in sorted(types):
        if test.relation == "in":
            pairs |= await terminology.expand(tenant, test.value, resource_type, test.codes)
        else:
            system, _, code = test.value.rpartition("|")
            related = await terminology.related(tenant, system, code, test.relation, resource_type, test.codes)
            pairs |= {(system, one) for one in related}
    if len(pairs) > _MAX_CODES:
        text = f"search parameter {name}: the value set has more than {_MAX_CODES} codes"
        raise Problem(Category.COSTLY, text, name)
    values = {token_value(code, system if test.systems else "") for system, code in pairs}
    return any_of([tests_equal(code, values) for code in test.codes])


async def _hierarchy_test(test: ReferenceIn, name: str, tenant: str, repository: Repository, caller: Caller) -> Test:
    """References to the resource and to those above or below it, level by level."""
    step = _children if test.relation == "below" else _parents
    known, level = {test.id}, {test.id}
    while level:
        level = await step(test, level, tenant, repository.store, caller) - known
        known |= level
        if len(known) > _MAX_CODES:
            text = f"search parameter {name}: the hierarchy has more than {_MAX_CODES} resources"
            raise Problem(Category.COSTLY, text, name)
    references = [f"{test.resource_type}/{one}" for one in known]
    return any_of([tests_equal(code, references) for code in test.codes])


async def _children(test: ReferenceIn, ids: set[str], tenant: str, store: FhirStore, caller: Caller) -> set[str]:
    references = [f"{test.resource_type}/{one}" for one in ids]
    of_parents = Term("", "", any_of([tests_equal(code, references) for code in test.parents]))
    query = found_by(Query(test.resource_type, (of_parents,), count=_MAX_CODES + 1, total="none"), caller)
    return set() if query is None else {one.id for one in (await store.search(tenant, query)).matches}


async def _parents(test: ReferenceIn, ids: set[str], tenant: str, store: FhirStore, caller: Caller) -> set[str]:
    found = await store.read_many(tenant, [(test.resource_type, one) for one in sorted(ids)])
    prefix = f"{test.resource_type}/"
    return {
        value.removeprefix(prefix)
        for version in visible(found, caller)
        for code, value in extract(loads(version.body)).texts
        if code in test.parents and value.startswith(prefix)
    }


async def _list_test(test: ListMember, resource_type: str, tenant: str, repository: Repository, caller: Caller) -> Test:
    version = if_readable(await repository.store.read(tenant, "List", test.id), caller)
    if version is None or version.deleted:
        return NOTHING
    listed: Any = loads(version.body).get("entry", ())
    found = [local_reference(str(entry.get("item", {}).get("reference", ""))) for entry in listed]
    ids = {one.id for one in found if one is not None and one.resource_type == resource_type}
    return IdIn(tuple(sorted(ids))) if ids else NOTHING
