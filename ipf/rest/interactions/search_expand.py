"""Expansion of value sets, code hierarchies and Lists in a search into equality tests on the resource.

It runs once per search, so that the store and the in-memory matcher see equality tests only.

Source: https://hl7.org/fhir/R4/search.html#token, #list
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.index.entries import token_value
from ipf.fhir.model.json import loads
from ipf.fhir.model.reference import parse_reference
from ipf.fhir.search.parameter import any_of
from ipf.fhir.search.predicate import inner, rewritten, tests_equal, within
from ipf.ports import Caller, Terminology
from ipf.ports.predicates import NOTHING, CodeIn, IdIn, ListMember, Test
from ipf.ports.search import Query, Term
from ipf.rest.write.permission import if_readable
from ipf.rest.write.repository import Repository

_MAX_CODES = 10_000


async def expanded(query: Query, tenant: str, repository: Repository, caller: Caller) -> Query:
    """The query with `:in`, `:above`, `:below` and `_list` expanded.  Problem when a set is not loaded.

    A List that the caller may not read has no members.
    """
    if not any(within(term.test, CodeIn, ListMember) for term in query.terms):
        return query
    terms = [replace(term, test=await _expanded(term, query, tenant, repository, caller)) for term in query.terms]
    return replace(query, terms=tuple(terms))


async def _expanded(term: Term, query: Query, tenant: str, repository: Repository, caller: Caller) -> Test:
    replacements: dict[Test, Test] = {}
    for test in _set_tests(term.test):
        if isinstance(test, CodeIn):
            replacements[test] = await _code_test(test, term.name, tenant, repository.terminology)
        elif isinstance(test, ListMember):
            replacements[test] = await _list_test(test, query.resource_type, tenant, repository, caller)
    return rewritten(term.test, lambda one: replacements.get(one, one))


def _set_tests(test: Test) -> list[Test]:
    if isinstance(test, CodeIn | ListMember):
        return [test]
    return [found for one in inner(test) for found in _set_tests(one)]


async def _code_test(test: CodeIn, name: str, tenant: str, terminology: Terminology | None) -> Test:
    if terminology is None:
        text = f"search parameter {name}: this server has no terminology service for value sets"
        raise Problem(Category.NOT_SUPPORTED, text, name)
    if test.relation == "in":
        pairs = await terminology.expand(tenant, test.value)
    else:
        system, _, code = test.value.rpartition("|")
        pairs = frozenset((system, one) for one in await terminology.related(tenant, system, code, test.relation))
    if len(pairs) > _MAX_CODES:
        text = f"search parameter {name}: the value set has more than {_MAX_CODES} codes"
        raise Problem(Category.COSTLY, text, name)
    values = {token_value(code, system if test.systems else "") for system, code in pairs}
    return any_of([tests_equal(code, values) for code in test.codes])


async def _list_test(test: ListMember, resource_type: str, tenant: str, repository: Repository, caller: Caller) -> Test:
    version = if_readable(await repository.store.read(tenant, "List", test.id), caller)
    if version is None or version.deleted:
        return NOTHING
    listed: Any = loads(version.body).get("entry", ())
    found = [parse_reference(str(entry.get("item", {}).get("reference", ""))) for entry in listed]
    ids = {one.id for one in found if one is not None and one.resource_type == resource_type and not one.base}
    return IdIn(tuple(sorted(ids))) if ids else NOTHING
