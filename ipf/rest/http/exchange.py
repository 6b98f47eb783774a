"""HTTP helpers of the interactions: request bodies, preferences, conditions, response headers.

Source: https://hl7.org/fhir/R4/http.html (Content types, Prefer, ETag, Location)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

from ipf.errors import Category, Problem
from ipf.fhir.model.bundle import etag, http_date
from ipf.fhir.model.json import loads
from ipf.fhir.search.language.query import for_write, parse_query
from ipf.fhir.validation import Finding, outcome
from ipf.ports import Answer, Json, Request, Version
from ipf.ports.queries.search import Query
from ipf.rest.http.binary import binary_resource
from ipf.rest.http.formats import Format, is_fhir, sent_format
from ipf.rest.http.formats import media_type as media_type  # re-exported

Observe = Callable[[Request, Answer, float], None]
"""Takes every request with its caller, its response, and its start (`perf_counter`, seconds): the audit trail."""

_PRESENTATION = frozenset({"_format", "_pretty"})
_SEARCHED = frozenset({
    "_id", "_lastUpdated", "_tag", "_profile", "_security", "_source", "_text", "_content", "_list", "_has", "_type",
    "_filter", "_query",
})  # fmt: skip
_FORM = "application/x-www-form-urlencoded"
_MAX_PARAMETERS = 200
_MAX_SUMMARY_LENGTH = 2000
VALIDATION = "X-FHIR-Request-Validation"  # as HAPI FHIR names it
_ENTITY_TAG = re.compile(r'(?:W/)?"([^"]*)"|(\d+)')


def sent_resource(request: Request) -> Json:
    """The body as a resource of any type, JSON or XML.  Problem MALFORMED or MEDIA_TYPE."""
    sent = sent_format(request.headers.get("content-type") or "application/fhir+json")
    found: Any = _from_xml(request.body) if sent is Format.XML else loads(request.body)
    if not isinstance(found, dict):
        raise Problem(Category.MALFORMED, "the body must be one resource")
    return found


def resource_body(request: Request, resource_type: str) -> Json:
    """The resource in the body.  Problem MEDIA_TYPE, MALFORMED, or VALUE for another resource type."""
    content_type = request.headers.get("content-type") or "application/fhir+json"
    if resource_type == "Binary" and not is_fhir(content_type):
        return binary_resource(request, content_type)
    sent = sent_format(content_type)
    resource = _from_xml(request.body) if sent is Format.XML else loads(request.body)
    if not isinstance(resource, dict):
        raise Problem(Category.MALFORMED, "the body must be one JSON object")
    if resource.get("resourceType") != resource_type:
        raise Problem(Category.VALUE, f"resourceType must be {resource_type}", "resourceType")
    return resource


def _from_xml(body: bytes) -> Json:
    from ipf.fhir.xml.writer import from_xml  # rarely needed, never by converter processes

    return from_xml(body)


def parameters(text: str, place: str | None = None) -> list[tuple[str, str]]:
    """A decoded query string as pairs, in order.  Problem VALUE when it cannot be parsed."""
    try:
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS)
    except ValueError as refused:
        raise Problem(Category.VALUE, "the search parameters cannot be parsed", place) from refused


def with_posted_parameters(request: Request) -> Request:
    """A search by POST with the parameters of its form after those of the URL; other requests unchanged.

    Problem MEDIA_TYPE for a body that is no form, MALFORMED or VALUE for one that cannot be read.
    """
    if request.method != "POST" or request.path[-1:] != ("_search",):
        return request
    sent = media_type(request.headers.get("content-type", _FORM))
    if sent != _FORM:
        raise Problem(Category.MEDIA_TYPE, f"send {_FORM}, not {sent}")
    try:
        text = request.body.decode()
    except UnicodeDecodeError as refused:
        raise Problem(Category.MALFORMED, "the search parameters are not UTF-8") from refused
    return replace(request, query=(*request.query, *parameters(text)), body=b"") if text else request


def selection(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The parameters without `_format` and `_pretty`."""
    return [(name, value) for name, value in pairs if name not in _PRESENTATION]


def condition(resource_type: str, pairs: Iterable[tuple[str, str]], base_url: str) -> Query:
    """The search of a conditional interaction; Problem VALUE when it has no search parameters.

    `base_url`: where its request reached this server.
    """
    query = for_write(parse_query(resource_type, selection(pairs), base_url=base_url))
    if not query.terms:
        raise Problem(Category.VALUE, "a conditional interaction needs search parameters")
    return query


def refuse_parameters(pairs: Iterable[tuple[str, str]], instead: str, place: str | None = None) -> None:
    """Problem VALUE that names the first parameter of a create; `instead`: where the search of one belongs.

    What begins with `_` and is no search parameter is ignored, as in other interactions.
    """
    for name, _ in selection(pairs):
        if name.startswith("_") and name.partition(":")[0] not in _SEARCHED:
            continue
        text = f"POST has no parameter {name[:60]}: a conditional create has its search in the {instead}"
        raise Problem(Category.VALUE, text, place or name[:60])


def if_match(text: str | None) -> int | None:
    """The version in `If-Match`; None when the header is absent."""
    if text is None:
        return None
    tags = entity_tags(text)
    if len(tags) != 1 or not tags[0].isascii() or not tags[0].isdigit() or len(tags[0]) > 9:
        raise Problem(Category.PRECONDITION, 'If-Match must contain one version, such as W/"3"')
    return int(tags[0])


def creates_only(text: str | None) -> bool:
    """Whether a write has `If-None-Match: *`; Problem PRECONDITION for another value."""
    if text is None:
        return False
    if text.strip() != "*":
        raise Problem(Category.PRECONDITION, "with an update, If-None-Match must be *")
    return True


def entity_tags(text: str) -> list[str]:
    """The opaque values of the entity tags in a header."""
    return [quoted or bare for quoted, bare in _ENTITY_TAG.findall(text)]


def preference(request: Request, name: str) -> str | None:
    """The value of one preference in `Prefer`, such as `return` or `handling`."""
    header = request.headers.get("prefer")
    if header is None:
        return None
    for part in re.split(r"[,;]", header):
        key, _, value = part.partition("=")
        if key.strip().lower() == name:
            return value.strip().strip('"')
    return None


def applied(request: Request, name: str, *values: str) -> list[tuple[str, str]]:
    """`Preference-Applied` (RFC 7240), when the request prefers one of these values, which its response honours."""
    chosen = preference(request, name)
    return [("Preference-Applied", f"{name}={chosen}")] if chosen in values else []


def version_answer(version: Version, status: int = 200) -> Answer:
    """The body of a version with its ETag and Last-Modified."""
    return Answer(status, version.body, version_headers(version), about=(version,))


def version_headers(version: Version) -> list[tuple[str, str]]:
    """ETag and Last-Modified."""
    return [("ETag", etag(version)), ("Last-Modified", http_date(version.last_updated))]


def location(version: Version, base_url: str) -> str:
    """The URL of one version."""
    return f"{base_url}/{version.resource_type}/{version.id}/_history/{version.version_id}"


def summary(findings: Sequence[Finding]) -> str:
    """Findings as an OperationOutcome that fits in a header: ASCII, the most severe first, truncated."""
    ranked = sorted(findings, key=lambda one: ("error", "warning", "information").index(one.severity))
    for count in (20, 5, 1):
        text = json.dumps(outcome(ranked[:count]), separators=(",", ":"))
        if len(text) <= _MAX_SUMMARY_LENGTH:
            return text
    return json.dumps(outcome([replace(ranked[0], text=ranked[0].text[:200])]), separators=(",", ":"))
