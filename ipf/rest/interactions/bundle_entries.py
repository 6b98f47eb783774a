"""The entries of a transaction or batch Bundle: writes, and reads.

Source: https://hl7.org/fhir/R4/http.html#transaction, https://hl7.org/fhir/R4/bundle.html
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from ipf.errors import Category, Issue, Problem
from ipf.fhir.model.json import dumps
from ipf.fhir.model.reference import below_base
from ipf.fhir.search.language.query import for_write, parse_criteria
from ipf.fhir.structure.check import structure_issues
from ipf.fhir.structure.primitives import is_id
from ipf.mapping.bundle.field_sources import TOLD_AS_A_WHOLE
from ipf.ports import Json, Mapped, Request
from ipf.ports.queries.field_sources import UNKNOWN_SOURCES
from ipf.ports.queries.search import Query
from ipf.rest.http.exchange import creates_only, if_match, parameters, refuse_parameters
from ipf.rest.write.permission import only_reads
from ipf.rest.write.unit import Entry, Method
from ipf.security.access import Unauthorized

_METHODS = {"POST": Method.CREATE, "PUT": Method.UPDATE, "PATCH": Method.PATCH, "DELETE": Method.DELETE}
_TEXTS = ("ifNoneExist", "ifMatch", "ifNoneMatch", "ifModifiedSince")
_READS = frozenset({"GET", "HEAD"})
_PATCHES = frozenset({"Parameters", "Binary"})


def entries_of(bundle: Json) -> tuple[Entry, ...]:
    """The writes of a transaction Bundle.  Problem VALUE or NOT_SUPPORTED with the place of the entry."""
    return tuple([entry_of(item, f"Bundle.entry[{number}]") for number, item in enumerate(bundle.get("entry", ()))])


def entries_in(mapped: Mapped) -> tuple[Entry, ...]:
    """The entries of a converted message: those of the mapping, or else read from its Bundle."""
    if mapped.entries is not None:
        return mapped.entries
    entries = entries_of(mapped.bundle)
    for entry in entries if mapped.keeps_omitted else ():
        if entry.method is Method.UPDATE and entry.resource_type not in TOLD_AS_A_WHOLE:
            entry.sources = UNKNOWN_SOURCES
    return entries


def structure_issues_in(mapped: Mapped) -> list[Issue]:
    """The issues of the resources of a converted message (`ipf.fhir.structure`), below `Bundle.entry[n].resource`."""
    if mapped.entries is not None:
        resources = [entry.resource for entry in mapped.entries]
    else:
        resources = [item.get("resource") for item in mapped.bundle.get("entry", ())]
    return [
        replace(issue, place=f"Bundle.entry[{number}].resource.{(issue.place or '').partition('.')[2]}")
        for number, resource in enumerate(resources)
        if resource is not None
        for issue in structure_issues(resource)
    ]


def is_read(item: Any, place: str) -> bool:
    """Whether an entry is a read, a search or an operation."""
    request = request_of(item, place)
    if request["method"] in _READS:
        return True
    last: str = request["url"].partition("?")[0].rpartition("/")[2]
    return request["method"] == "POST" and (last == "_search" or last.startswith("$"))


def check_only_reads(item: Any, place: str) -> None:
    """Problem NOT_SUPPORTED for an operation that may write: a transaction would not undo it."""
    last: str = item["request"]["url"].partition("?")[0].rpartition("/")[2]
    if last.startswith("$") and not only_reads(last):
        text = f"{last[:60]} may write, so it cannot be part of a transaction; send it alone or in a batch"
        raise Problem(Category.NOT_SUPPORTED, text, f"{place}.request.url")


def located(problem: Problem, place: str) -> Problem:
    """The same failure, of the read at this place of a Bundle."""
    issues = tuple(replace(one, place=f"{place} ({one.place})" if one.place else place) for one in problem.issues)
    found = Problem(problem.category, problem.text, place)
    if isinstance(problem, Unauthorized):
        found = Unauthorized(problem.text, problem.challenge)
        found.place = place
    found.issues = issues
    return found


def request_of(item: Any, place: str) -> Json:
    """The `request` of an entry, with method and url."""
    request = item.get("request") if isinstance(item, dict) else None
    if not isinstance(request, dict) or not (
        isinstance(request.get("url"), str) and isinstance(request.get("method"), str)
    ):
        raise Problem(Category.REQUIRED, "an entry needs request.method and request.url", f"{place}.request")
    if len(request) > 2:  # more than method and url
        for name in _TEXTS:
            if name in request and not isinstance(request[name], str):
                raise Problem(Category.MALFORMED, f"{name} must be a text", f"{place}.request.{name}")
    if not isinstance(item.get("fullUrl", ""), str):
        raise Problem(Category.MALFORMED, "fullUrl must be a text", f"{place}.fullUrl")
    return request


def entry_of(item: Any, place: str, base_url: str | None = None, *, patches: bool = False) -> Entry:
    """The write of a Bundle entry; for a patch (refused unless `patches`), the resource is the patch."""
    request = request_of(item, place)
    method = _METHODS.get(request["method"])
    if method is None or (method is Method.PATCH and not patches):
        raise Problem(
            Category.NOT_SUPPORTED, "the method must be GET, POST, PUT, PATCH or DELETE", f"{place}.request.method"
        )
    target, search = _target(request["url"], base_url)
    resource_type, id = target, None
    if "/" in target:
        resource_type, _, id = target.partition("/")
        if not is_id(id) or method is Method.CREATE:
            raise Problem(Category.VALUE, "the url does not match the method", f"{place}.request.url")
    resource = None if method is Method.DELETE else _resource_of(item, method, resource_type, place)
    condition = _condition(method, request, resource_type, id, search, place, base_url or "")
    if method is Method.UPDATE and resource is not None:
        id = _update_id(resource, id, condition, place)
    tag = request.get("ifMatch")
    version = if_match(tag) if tag is not None else None
    must_be_new = method is Method.UPDATE and creates_only(request.get("ifNoneMatch"))
    return Entry(method, resource_type, id, resource, condition, item.get("fullUrl"), version, place, must_be_new)


def _target(url: str, base_url: str | None) -> tuple[str, str | None]:
    """The path relative to the base URL, and the search."""
    target, mark, search = url.partition("?")
    if base_url is not None:
        target = below_base(f"{target}/", base_url).removesuffix("/")
    return target.removeprefix("/"), search if mark else None


def _resource_of(item: Json, method: Method, resource_type: str, place: str) -> Json:
    resource = item.get("resource")
    if method is Method.PATCH:
        if not isinstance(resource, dict) or resource.get("resourceType") not in _PATCHES:
            raise Problem(Category.VALUE, "a patch must be a Parameters or Binary resource", f"{place}.resource")
    elif not isinstance(resource, dict) or resource.get("resourceType") != resource_type:
        raise Problem(Category.VALUE, f"a resource of type {resource_type[:60]} is expected", f"{place}.resource")
    return resource


def _condition(
    method: Method, request: Json, resource_type: str, id: str | None, search: str | None, place: str, base_url: str
) -> Query | None:
    """If-None-Exist of a create, or the search in the URL of a conditional update or delete."""
    if method is Method.CREATE:
        if search:
            refuse_parameters(parameters(search, f"{place}.request.url"), "ifNoneExist", f"{place}.request.url")
        search = request.get("ifNoneExist")
        if search is None:
            return None
        search = search.rpartition("?")[2]
    elif id is not None:
        return None
    query = for_write(parse_criteria(f"{resource_type}?{search or ''}", base_url=base_url))
    if not query.terms:
        raise Problem(Category.VALUE, "an id or search parameters are needed", f"{place}.request.url")
    return query


def _update_id(resource: Json, id: str | None, condition: Query | None, place: str) -> str | None:
    own = resource.get("id")
    if condition is not None:
        return own if is_id(own) else None
    if own is not None and own != id:
        raise Problem(Category.VALUE, "the id of the resource must equal the id in the URL", f"{place}.resource.id")
    return id


def request_for(item: Json, outer: Request, place: str) -> Request:
    """The request of a read entry."""
    request = item["request"]
    target, search = _target(request["url"], outer.base_url)
    pairs = parameters(search or "", f"{place}.request.url")
    path = tuple(unquote(segment) for segment in target.split("/"))
    conditions = {"ifNoneMatch": "if-none-match", "ifModifiedSince": "if-modified-since"}
    headers = {header: request[name] for name, header in conditions.items() if name in request}
    if "prefer" in outer.headers:
        headers["prefer"] = outer.headers["prefer"]
    resource, method = item.get("resource"), request["method"]
    body = dumps(resource) if method == "POST" and isinstance(resource, dict) else b""
    if path[-1] == "_search":
        headers["content-type"] = "application/x-www-form-urlencoded"
    return replace(outer, method=method, path=path, query=tuple(pairs), headers=headers, body=body)
