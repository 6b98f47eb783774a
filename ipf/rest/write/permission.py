"""The right that each route requires, and the limits of a caller in searches.

`check_route` runs once per request and per entry of a Bundle, before the interaction.  Interactions on several types (a
system search, a history, `$everything`, `$export`) are limited to the types that the caller may search; types named in
the request must all be allowed.

Source: https://hl7.org/fhir/smart-app-launch/scopes-and-launch-context.html (2.2: what c, r, u, d, s stand for).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ipf.fhir.search.predicate import rewritten, within
from ipf.fhir.search.values.parameter import any_of
from ipf.ports import Answer, Caller, Request, Version
from ipf.ports.queries.predicates import Has, Linked, ListMember, Test
from ipf.ports.queries.search import Query, Term
from ipf.rest.write.unit import Entry, Method
from ipf.security.access import (
    Unauthorized,
    allows,
    finds_all,
    granted,
    granted_or_refused,
    insufficient,
    limit_name,
    may,
    may_see,
    permit,
    required,
)
from ipf.security.scopes import grants_of

OPEN_PATHS = frozenset({("metadata",), (".well-known", "smart-configuration")})

_NARROWED = frozenset({
    "", "_search", "_history", "$graphql", "$meta", "$diff", "$import", "$fhirpath",
    "$export", "[type]/$export", "[type]/[id]/$export",
})  # fmt: skip
_JOBS = ("$export-status/", "$export-file/", "$job-status/", "$job-file/")  # their handlers check the job

_RIGHTS: dict[tuple[str, str], str] = {
    ("[type]", "GET"): "s",
    ("[type]", "POST"): "c",
    ("[type]", "PUT"): "us",
    ("[type]", "PATCH"): "us",
    ("[type]", "DELETE"): "ds",
    ("[type]/_search", "GET"): "s",
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
    "$docref": "s",
    "$lastn": "s",
    "$document": "r",
    "$graphql": "r",
    "$fhirpath": "r",
    "$validate": "r",
    "$expand": "r",
    "$lookup": "r",
    "$validate-code": "r",
    "$subsumes": "r",
    "$find-matches": "r",
    "$translate": "r",
    "$transform": "r",
    "$status": "r",
    "$events": "r",
    "$get-ws-binding-token": "r",
    "$resend": "u",
    "$meta": "r",
    "$meta-add": "u",
    "$meta-delete": "u",
    "$diff": "r",
    "$match": "s",
    "$dry-run": "s",
}
"""The right that an operation on a type requires; an operation that is not listed requires all rights."""


def only_reads(operation: str) -> bool:
    """Whether an operation, such as `$everything`, changes nothing."""
    return not set(_OPERATIONS.get(operation, "u")) - {"r", "s"}


_PLAIN = frozenset({"[type]", "[type]/[id]"})
"""Routes where GET requires a right on the type only."""

_ENTRY = {Method.CREATE: "c", Method.UPDATE: "u", Method.PATCH: "u", Method.DELETE: "d"}


def check_authenticated(request: Request) -> None:
    """Problem UNAUTHORIZED when the caller is anonymous and the path requires authentication."""
    if request.caller.is_anonymous and request.path not in OPEN_PATHS:
        raise Unauthorized("a bearer token is required")


def check_route(shape: str, request: Request) -> None:
    """Problem UNAUTHORIZED when the caller lacks the right for the route."""
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
    resource_type, rights = _required_rights(shape, request)
    for right in rights:
        required(caller, resource_type, right)
    if is_plain:
        grants.passed.add((shape, resource_type))


def _required_rights(shape: str, request: Request) -> tuple[str, str]:
    """The resource type, and the required rights on it."""
    path, method = request.path, "GET" if request.method == "HEAD" else request.method
    if shape == "$reindex":
        return "SearchParameter", "r" if method == "GET" else "u"
    if shape == "$closure":
        return "CodeSystem", "r"
    if shape in ("[type]/[id]/[type]", "[type]/[id]/[type]/_search"):
        return (path[0], "r") if path[2] == "*" else (path[2], "s")
    last = shape.rpartition("/")[2]
    if last.startswith("$"):
        return (path[0] if shape.startswith("[type]") else "*"), _OPERATIONS.get(last, "cruds")
    rights = _RIGHTS.get((shape, method), "" if method == "OPTIONS" else "cruds")
    if (shape, method) == ("[type]", "POST") and "if-none-exist" in request.headers:
        rights = "cs"
    return path[0], rights


def check_entry(caller: Caller, entry: Entry) -> None:
    """`check_route` for a write in a Bundle; a condition requires the right to search."""
    if caller.is_unlimited:
        return
    for right in _ENTRY[entry.method] + ("s" if entry.condition is not None else ""):
        if permit(caller, entry.resource_type, right) is None:
            refused = insufficient(entry.resource_type, right)
            refused.place = entry.place
            raise refused


def searchable(caller: Caller, types: Sequence[str], named: Sequence[str], right: str = "s") -> list[str]:
    """The types that the caller may search; Problem UNAUTHORIZED when a named type is not allowed, or none is."""
    if caller.is_unlimited:
        return list(types)
    for one in named:
        required(caller, one, right)
    found = [one for one in types if permit(caller, one, right) is not None]
    if types and not found:
        raise insufficient("*", right)
    return found


def limited(query: Query, caller: Caller) -> Query:
    """The search within the caller's limits, including its chains and `_has`."""
    if finds_all(caller):
        return query
    terms = query.terms
    if any(within(term.test, Linked, Has, ListMember) for term in terms):
        terms = tuple(replace(term, test=_limit_test(term.test, caller)) for term in terms)
    limit = required(caller, query.resource_type, "s").test
    if limit is not None:
        terms = (Term("", "", limit), *terms)
    name = limit_name(caller, query.resource_type, "s")
    if not name:
        return query if terms is query.terms else replace(query, terms=terms)
    return replace(query, terms=terms, canonical=f"{query.canonical}&{name}")


def _limit_test(test: Test, caller: Caller) -> Test:
    """Chains and `_has` within the caller's limits; `_list` requires an unlimited right to read Lists."""

    def limit_one(one: Test) -> Test:
        if isinstance(one, ListMember) and granted_or_refused(caller, "List", "r").test is not None:
            raise insufficient("List", "r")
        if not isinstance(one, Linked | Has):
            return one
        limit = required(caller, one.resource_type, "s").test
        return one if limit is None else replace(one, tests=(*one.tests, limit))

    return rewritten(test, limit_one)


def found_by(query: Query, caller: Caller) -> Query | None:
    """A search of the server's own for the caller, limited to what he may read or search; None: nothing of the type."""
    if finds_all(caller):
        return query
    tests: list[Test] = []
    for right in "rs":
        found = permit(caller, query.resource_type, right)
        if found is not None and found.test is None:
            return query
        tests += [found.test] if found is not None and found.test is not None else []
    return replace(query, terms=(Term("", "", any_of(tests)), *query.terms)) if tests else None


def sees_all(caller: Caller, resource_type: str) -> bool:
    """Whether the caller may see every resource of a type, deletions included."""
    if caller.is_unlimited:
        return True
    permits = [permit(caller, resource_type, right) for right in "rs"]
    return any(one is not None and one.test is None for one in permits)


def reachable(version: Version, caller: Caller) -> bool:
    """Whether any right of the caller covers the version: else it does not exist for him."""
    return caller.is_unlimited or any(may(caller, right, version.resource_type, version) for right in "ruds")


def visible(versions: Sequence[Version], caller: Caller) -> list[Version]:
    """The versions that the caller may see."""
    if not versions or finds_all(caller):
        return list(versions)
    return [one for one in versions if may_see(caller, one)]


def if_readable(version: Version | None, caller: Caller) -> Version | None:
    """The version if the caller may read it, else None: the response does not reveal its existence."""
    if version is None or finds_all(caller):
        return version
    found = permit(caller, version.resource_type, "r")
    return version if found is not None and allows(found, version) else None


def unlimited_types(caller: Caller, types: Sequence[str], named: bool) -> list[str]:
    """The types that the caller may read without limits; Problem UNAUTHORIZED when none is, or a named one is not."""
    if caller.is_unlimited:
        return list(types)
    found = [one for one in types if (limit := granted(caller, one, "r")) is not None and limit.test is None]
    if (named and len(found) < len(types)) or not found:
        missing = next((one for one in types if one not in found), "*")
        raise insufficient(missing if named else "*", "r")
    return found


def without_body(answer: Answer, request: Request) -> Answer:
    """The response to a patch without the resource, for a caller that may write but not read it."""
    if not answer.body or (answer.about and len(visible(answer.about, request.caller)) == len(answer.about)):
        return answer
    return replace(answer, body=b"")
