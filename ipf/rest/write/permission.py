"""Which right each route asks for, and how the limits of a caller reach into searches.

`check_route` is asked once for each request and each entry of a Bundle, before its interaction.  What goes over several
types (a search of the system, a history, `$everything`, `$export`) is narrowed to those that the caller may search;
types that were named must all be allowed.  A caller without limits passes at once.

Source: https://hl7.org/fhir/smart-app-launch/scopes-and-launch-context.html (2.2: what c, r, u, d, s stand for).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ipf.fhir.search.predicate import rewritten, within
from ipf.ports import Answer, Caller, Request, Version
from ipf.ports.predicates import Has, Linked, ListMember, Test
from ipf.ports.search import Query, Term
from ipf.rest.write.unit import Entry, Method
from ipf.security.access import Unauthorized, allows, insufficient, may_see, permit, required
from ipf.security.scopes import grants_of

OPEN_PATHS = frozenset({("metadata",), (".well-known", "smart-configuration")})

_NARROWED = frozenset({"", "_search", "_history", "$export", "[type]/$export", "[type]/[id]/$export"})
_JOBS = ("$export-status/", "$export-file/")  # their handlers ask for the types of the job

_RIGHTS: dict[tuple[str, str], str] = {
    ("[type]", "GET"): "s",
    ("[type]", "POST"): "c",
    ("[type]", "PUT"): "us",
    ("[type]", "PATCH"): "us",
    ("[type]", "DELETE"): "ds",
    ("[type]/_search", "POST"): "s",
    ("[type]/_history", "GET"): "s",
    ("[type]/[id]", "GET"): "r",
    ("[type]/[id]", "PUT"): "u",
    ("[type]/[id]", "PATCH"): "u",
    ("[type]/[id]", "DELETE"): "d",
    ("[type]/[id]/_history", "GET"): "r",
    ("[type]/[id]/_history/[vid]", "GET"): "r",
}

_OPERATIONS = {
    "$everything": "r",
    "$validate": "r",
    "$expand": "r",
    "$lookup": "r",
    "$validate-code": "r",
    "$translate": "r",
    "$transform": "r",
    "$status": "r",
    "$events": "r",
    "$get-ws-binding-token": "r",
    "$resend": "u",
    "$dry-run": "s",
}
"""What an operation on a type asks for there; one that is not listed asks for everything."""

_PLAIN = frozenset({"[type]", "[type]/[id]"})
"""Routes whose reading asks for nothing but a right on the type."""

_ENTRY = {Method.CREATE: "c", Method.UPDATE: "u", Method.PATCH: "u", Method.DELETE: "d"}


def check_known(request: Request) -> None:
    """Whether somebody asks whom we know, where that is needed; before anything else is looked at."""
    if request.caller.is_anonymous and request.path not in OPEN_PATHS:
        raise Unauthorized("a bearer token is required")


def check_route(shape: str, request: Request) -> None:
    """Whether the caller may send this at all.  Problem UNAUTHORIZED."""
    caller = request.caller
    if caller.is_unlimited or (grants := grants_of(caller)).does_all:
        return
    is_plain = shape in _PLAIN and request.method == "GET"
    if is_plain:
        grants.look()
        if (shape, request.path[0]) in grants.passed:
            return
    if request.path in OPEN_PATHS or shape in _NARROWED or shape.startswith(_JOBS):
        return
    resource_type, rights = _asked(shape, request)
    for right in rights:
        required(caller, resource_type, right)
    if is_plain:
        grants.passed.add((shape, resource_type))


def _asked(shape: str, request: Request) -> tuple[str, str]:
    """The type, and the rights that are needed there."""
    path, method = request.path, "GET" if request.method == "HEAD" else request.method
    if shape == "$reindex":
        return "SearchParameter", "r" if method == "GET" else "u"
    if shape == "[type]/[id]/[type]":
        return (path[0], "r") if path[2] == "*" else (path[2], "s")
    last = shape.rpartition("/")[2]
    if last.startswith("$"):
        return (path[0] if shape.startswith("[type]") else "*"), _OPERATIONS.get(last, "cruds")
    rights = _RIGHTS.get((shape, method), "" if method == "OPTIONS" else "cruds")
    if (shape, method) == ("[type]", "POST") and "if-none-exist" in request.headers:
        rights = "cs"
    return path[0], rights


def check_entry(caller: Caller, entry: Entry) -> None:
    """The same for a change in a Bundle; a condition is a search as well."""
    if caller.is_unlimited:
        return
    for right in _ENTRY[entry.method] + ("s" if entry.condition is not None else ""):
        if permit(caller, entry.resource_type, right) is None:
            refused = insufficient(entry.resource_type, right)
            refused.place = entry.place
            raise refused


def searchable(caller: Caller, types: Sequence[str], named: Sequence[str], right: str = "s") -> list[str]:
    """Those of the types that the caller may search; Problem when one that was named is not among them, or none is."""
    if caller.is_unlimited:
        return list(types)
    for one in named:
        required(caller, one, right)
    found = [one for one in types if permit(caller, one, right) is not None]
    if types and not found:
        raise insufficient("*", right)
    return found


def limited(query: Query, caller: Caller) -> Query:
    """A search within the caller's limits: also those on other resources that it asks about."""
    if caller.is_unlimited or grants_of(caller).finds_all:
        return query
    terms = query.terms
    if any(within(term.test, Linked, Has, ListMember) for term in terms):
        terms = tuple(replace(term, test=_bounded(term.test, caller)) for term in terms)
    own = required(caller, query.resource_type, "s").test
    if own is None:
        return query if terms is query.terms else replace(query, terms=terms)
    return replace(query, terms=(Term("", "", own), *terms), canonical=f"{query.canonical}&{own}")


def _bounded(test: Test, caller: Caller) -> Test:
    """Chains and `_has` see what the caller may search; a List answers only to whoever may read every one."""

    def bound(one: Test) -> Test:
        if isinstance(one, ListMember) and required(caller, "List", "r").test is not None:
            raise insufficient("List", "r")
        if not isinstance(one, Linked | Has):
            return one
        limit = required(caller, one.resource_type, "s").test
        return one if limit is None else replace(one, tests=(*one.tests, limit))

    return rewritten(test, bound)


def visible(versions: Sequence[Version], caller: Caller) -> list[Version]:
    """Those that the caller may see."""
    if not versions or caller.is_unlimited or grants_of(caller).finds_all:
        return list(versions)
    return [one for one in versions if may_see(caller, one)]


def shown(version: Version | None, caller: Caller) -> Version | None:
    """A version that was asked for by its id: what the caller may not read is not there."""
    if version is None or caller.is_unlimited or (grants := grants_of(caller)).finds_all:
        return version
    found = grants.permit(version.resource_type, "r")
    return version if found is not None and allows(found, version) else None


def unlimited_types(caller: Caller, types: Sequence[str], named: bool) -> list[str]:
    """Types of which the caller may read every resource; Problem when one is missing that was named, or all are."""
    if caller.is_unlimited:
        return list(types)
    found = [one for one in types if (own := permit(caller, one, "r")) is not None and own.test is None]
    if (named and len(found) < len(types)) or not found:
        missing = next((one for one in types if one not in found), "*")
        raise insufficient(missing if named else "*", "r")
    return found


def without_body(answer: Answer, request: Request) -> Answer:
    """The answer to a patch without the resource, for whoever may change but not read it."""
    if not answer.body or (answer.about and len(visible(answer.about, request.caller)) == len(answer.about)):
        return answer
    return replace(answer, body=b"")
