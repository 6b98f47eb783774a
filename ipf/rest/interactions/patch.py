"""PATCH [base]/[type]/[id] and PATCH [base]/[type]?[search]: https://hl7.org/fhir/R4/http.html#patch

A JSON Patch (`application/json-patch+json`), a JSON Merge Patch (`application/merge-patch+json`), an XML Patch
(`application/xml-patch+xml`) or a FHIRPath Patch (a Parameters resource).  Of `application/json`, a list is a JSON
Patch and an object without resourceType a merge patch.  The patch is applied to the current version inside the write
transaction, so that concurrent writes are not lost.  The patched resource is checked like every resource that a client
sends.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.fhir.model.redaction import redact_resource
from ipf.fhir.patch.fhirpath_patch import fhirpath_patch
from ipf.fhir.patch.json_patch import json_patch
from ipf.fhir.patch.merge_patch import merge_patch
from ipf.fhir.structure.check import check_structure
from ipf.ports import Answer, Json, Request
from ipf.rest.http.exchange import condition, if_match, resource_body
from ipf.rest.http.formats import is_fhir, media_type
from ipf.rest.interactions.provenance import provenance_of
from ipf.rest.interactions.write_response import write_response
from ipf.rest.write.incoming import check_incoming
from ipf.rest.write.permission import without_body
from ipf.rest.write.repository import Repository
from ipf.rest.write.unit import Entry, Method, unit_for

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
XML_PATCH = "application/xml-patch+xml"
PLAIN_JSON = "application/json"
"""As fhirpy sends a merge patch: its form says which patch it is."""
_PATCHES = f"{JSON_PATCH}, {MERGE_PATCH} or {XML_PATCH}"

Apply = Callable[[Json], Json]


async def patch(request: Request, repository: Repository) -> Answer:
    """200 with the patched resource; 404 or 410 when it does not exist, 412 by If-Match, 422 when the patch fails."""
    resource_type, id = request.path
    sent = await repository.parsed(request, lambda: _sent(request, repository))
    entry = Entry(Method.PATCH, resource_type, id, if_match=_version(request), patch=sent)
    return await _store(entry, request, repository)


async def conditional_patch(request: Request, repository: Repository) -> Answer:
    """`patch` of the one resource that the search matches; 404 for none, 412 for several."""
    (resource_type,) = request.path
    query = condition(resource_type, request.query, request.base_url)
    sent = await repository.parsed(request, lambda: _sent(request, repository))
    entry = Entry(Method.PATCH, resource_type, condition=query, if_match=_version(request), patch=sent)
    return await _store(entry, request, repository)


async def _store(entry: Entry, request: Request, repository: Repository) -> Answer:
    unit = unit_for(request, entry, *await provenance_of(request, repository))
    result = await repository.commit_one(unit, is_large=True)  # what a patch costs depends on what is stored
    return without_body(
        write_response(result.entries[0], request, await repository.warnings_of(result.entries[0], request.caller)),
        request,
    )


def _version(request: Request) -> int | None:
    return if_match(request.headers.get("if-match"))


def _sent(request: Request, repository: Repository) -> Apply:
    content_type = request.headers.get("content-type", "")
    change = _change_of(content_type, request.body)
    if change is not None:
        return admitted(change, repository)
    if not is_fhir(content_type):
        text = f"send {_PATCHES}, or Parameters as application/fhir+json or application/fhir+xml"
        raise Problem(Category.MEDIA_TYPE, text)
    return patch_of(resource_body(request, "Parameters"), repository)


def _change_of(content_type: str, text: bytes) -> Apply | None:
    """The patch of a text with this content type; None for a type that is no patch's."""
    kind = media_type(content_type)
    if kind == JSON_PATCH:
        return json_patch(loads(text))
    if kind == MERGE_PATCH:
        return merge_patch(loads(text))
    if kind == XML_PATCH:
        from ipf.fhir.patch.xml_patch import xml_patch  # rarely needed, and loads lxml

        return xml_patch(text)
    if kind == PLAIN_JSON:
        value = loads(text)
        if isinstance(value, list):
            return json_patch(value)
        if isinstance(value, dict) and "resourceType" not in value:
            return merge_patch(value)
    return None


def patch_of(resource: Json, repository: Repository, place: str | None = None) -> Apply:
    """The patch in a Bundle entry: Parameters, or a Binary with another patch.  Problems are located below `place`."""
    try:
        check_structure(resource)
        if resource["resourceType"] == "Parameters":
            return admitted(fhirpath_patch(resource), repository, place)
        change = _change_of(resource.get("contentType", ""), _content(resource))
        if change is None:
            raise Problem(Category.MEDIA_TYPE, f"the contentType of a Binary with a patch must be {_PATCHES}")
        return admitted(change, repository, place)
    except Problem as refused:
        if place is None:
            raise
        raise refused.inside(place) from refused


def _content(binary: Json) -> bytes:
    try:
        return b64decode(binary.get("data", ""), validate=True)
    except ValueError:
        raise Problem(Category.MALFORMED, "data is not base64", "Binary.data") from None


def admitted(change: Apply, repository: Repository, place: str | None = None) -> Apply:
    """The patch, followed by the checks of incoming resources; resource type and id must not change."""

    def apply(resource: Json) -> Json:
        try:
            patched = change(redact_resource(resource))
        except Problem as refused:
            raise (refused.inside(place) if place else refused) from refused
        same = isinstance(patched, dict) and all(patched.get(n) == resource[n] for n in ("resourceType", "id"))
        if not same:
            raise Problem(Category.INVALID, "a patch must not change the resource type or id", place)
        return check_incoming(patched, repository, place)

    return apply
