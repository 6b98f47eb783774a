"""$meta, $meta-add and $meta-delete: the profiles, tags and security labels of resources.

`meta` is part of the stored content, and labels decide who sees a resource.  So a change of it is a new version, with
its audit record and its events, as that of any other element; what changes nothing makes none.

The `$meta` of a type, and of the system, are the values of all resources that the caller may find.

Source: https://hl7.org/fhir/R4/resource-operation-meta.html, resource-operation-meta-add.html,
resource-operation-meta-delete.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.search.predicate import tests_equal
from ipf.ports import Answer, Json, Request
from ipf.ports.queries.search import Query, Term
from ipf.rest.http.arguments import Arguments, parameters_of
from ipf.rest.interactions.patch import admitted
from ipf.rest.interactions.read import read
from ipf.rest.interactions.searches.search import types_found
from ipf.rest.write.permission import limited
from ipf.rest.write.repository import Repository
from ipf.rest.write.unit import Entry, Method, unit_for
from ipf.security.audit.rules import check_immutable

_CODES = {"profile": "_profile", "tag": "_tag", "security": "_security"}
_MOST_VALUES = 1000  # that are shown
_MOST_READ = 10_000  # with those of resources that the caller may not find
_ADVICE = "ask for one type, or search for them"

Combine = Callable[[str, list[Any], list[Any]], list[Any]]
"""From the name of an element, its values, and those that are sent: its values afterwards."""


async def meta_instance(request: Request, repository: Repository) -> Answer:
    """The `meta` of one resource, its version included."""
    _refuse_parameters(request)
    answer = await read(replace(request, path=request.path[:2], headers={}), repository)
    return Answer(200, _parameters(loads(answer.body).get("meta", {})), about=answer.about)


async def meta_type(request: Request, repository: Repository) -> Answer:
    """The values of all resources of a type that the caller may find."""
    _refuse_parameters(request)
    return Answer(200, _parameters(await _collected(request, repository, [request.path[0]])))


async def meta_system(request: Request, repository: Repository) -> Answer:
    """The values of all resources that the caller may find."""
    _refuse_parameters(request)
    types = await types_found(request, repository, await repository.store.types(request.tenant), [])
    return Answer(200, _parameters(await _collected(request, repository, types)))


async def meta_add(request: Request, repository: Repository) -> Answer:
    """Add the profiles, tags and labels of the parameter `meta`; the `meta` of the new version."""
    return await _change(request, repository, _added)


async def meta_delete(request: Request, repository: Repository) -> Answer:
    """Remove the profiles, tags and labels of the parameter `meta`; the `meta` of the new version."""
    return await _change(request, repository, _removed)


def _refuse_parameters(request: Request) -> None:
    Arguments.of(request, ())


def _parameters(meta: Json) -> bytes:
    return dumps(parameters_of({"name": "return", "valueMeta": meta}))


async def _change(request: Request, repository: Repository, change: Combine) -> Answer:
    resource_type, id = request.path[:2]
    check_immutable(resource_type, Method.PATCH)
    sent = Arguments.of(request, ("meta",)).structure("meta", "Meta")
    if sent is None:
        raise Problem(Category.REQUIRED, "the parameter meta is required", "meta")
    other = sent.keys() - _CODES.keys()
    if other:
        raise Problem(Category.VALUE, f"meta may have profile, tag and security, not {min(other)[:60]}", "meta")

    def apply(resource: Json) -> Json:
        meta = dict(resource.get("meta") or {})
        for name, values in sent.items():
            found = change(name, list(meta.get(name, ())), values)
            if found:
                meta[name] = found
            else:
                meta.pop(name, None)
        return {**resource, "meta": meta}

    entry = Entry(Method.PATCH, resource_type, id, patch=admitted(apply, repository))
    result = (await repository.commit_one(unit_for(request, entry), is_large=True)).entries[0]
    version = result.version
    meta = {} if version is None else loads(version.body)["meta"]
    return Answer(200, _parameters(meta), about=() if version is None else (version,))


def _added(name: str, there: list[Any], values: list[Any]) -> list[Any]:
    known = {_key(name, one) for one in there}
    return there + [one for one in _unique(name, values) if _key(name, one) not in known]


def _removed(name: str, there: list[Any], values: list[Any]) -> list[Any]:
    gone = {_key(name, one) for one in values}
    return [one for one in there if _key(name, one) not in gone]


def _unique(name: str, values: Iterable[Any]) -> list[Any]:
    return list({_key(name, one): one for one in values}.values())


def _key(name: str, value: Any) -> tuple[str, str]:
    """What makes two values the same: a URL, or system and code."""
    return ("", value) if name == "profile" else (value.get("system", ""), value.get("code", ""))


async def _collected(request: Request, repository: Repository, types: Iterable[str]) -> Json:
    """Each indexed value, of a resource that the caller may find."""
    found: dict[str, dict[tuple[str, str], Any]] = {name: {} for name in _CODES}
    left = _MOST_READ
    for resource_type in types:
        for name, code in _CODES.items():
            values = await repository.store.indexed(request.tenant, resource_type, code, left + 1)
            left -= len(values)
            if left < 0:
                raise Problem(Category.COSTLY, f"more than {_MOST_READ} values would have to be looked at; {_ADVICE}")
            for value in values:
                query = Query(resource_type, (Term("", "", tests_equal(code, {value})),), count=1, total="none")
                page = await repository.store.search(request.tenant, limited(query, request.caller))
                for version in page.matches:
                    for one in loads(version.body).get("meta", {}).get(name, ()):
                        found[name].setdefault(_key(name, one), one)
                if sum(map(len, found.values())) > _MOST_VALUES:
                    raise Problem(Category.COSTLY, f"more than {_MOST_VALUES} profiles, tags and labels; {_ADVICE}")
    return {name: list(values.values()) for name, values in found.items() if values}
