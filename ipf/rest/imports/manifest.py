"""What a bulk import asks for: a Parameters resource, a JSON manifest, or the lines themselves.

Source: https://github.com/smart-on-fhir/bulk-import/blob/master/import-manifest.md
"""

from __future__ import annotations

from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import loads
from ipf.ports import Json, Request
from ipf.rest.http.exchange import media_type, preference
from ipf.rest.write.repository import Repository

NDJSON = frozenset({"application/fhir+ndjson", "application/ndjson", "application/x-ndjson"})
MAX_INPUTS = 500
_KNOWN = frozenset({"inputFormat", "inputSource", "storageDetail", "input", "mode"})
_FORMATS = NDJSON | {"ndjson"}
_LONGEST_URL = 2000

Input = dict[str, str]
"""`type` and `url`; both "" for the body of the request."""


def inputs_of(request: Request, repository: Repository) -> list[Input]:
    """The inputs of a request.  Problem VALUE, REQUIRED, NOT_SUPPORTED, TOO_LARGE or BUSINESS_RULE names the place."""
    sent = media_type(request.headers.get("content-type", ""))
    if sent in NDJSON:
        if not request.body.strip():
            raise Problem(Category.REQUIRED, "the body has no lines")
        return [{"type": "", "url": ""}]
    manifest = _manifest(request)
    if preference(request, "handling") != "lenient":
        for name in sorted({*manifest} - _KNOWN):
            raise Problem(Category.NOT_SUPPORTED, f"$import has no parameter {name[:60]}", name[:60])
    if manifest.get("inputFormat", "application/fhir+ndjson") not in _FORMATS:
        raise Problem(Category.NOT_SUPPORTED, "inputFormat must be application/fhir+ndjson", "inputFormat")
    found = manifest.get("input")
    if not isinstance(found, list) or not found:
        raise Problem(Category.REQUIRED, "$import needs at least one input with type and url", "input")
    if len(found) > MAX_INPUTS:
        raise Problem(Category.TOO_LARGE, f"$import has {len(found)} inputs; the limit is {MAX_INPUTS}", "input")
    return [_input(one, f"input[{number}]", repository) for number, one in enumerate(found)]


def _manifest(request: Request) -> Json:
    """The manifest; that of a Parameters resource in the form of the JSON one."""
    sent = loads(request.body)
    if not isinstance(sent, dict):
        raise Problem(Category.MALFORMED, "$import needs a Parameters resource, a JSON manifest, or NDJSON")
    if "resourceType" not in sent:
        return sent
    if sent["resourceType"] != "Parameters":
        raise Problem(Category.VALUE, "resourceType must be Parameters", "resourceType")
    found: Json = {}
    for one in sent.get("parameter") or ():
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise Problem(Category.MALFORMED, "a parameter needs a name", "Parameters.parameter")
        value = _parts(one) if "part" in one else _value(one)
        if one["name"] == "input":
            found.setdefault("input", []).append(value)
        else:
            found[one["name"]] = value
    return found


def _parts(parameter: Json) -> Json:
    parts = parameter["part"] if isinstance(parameter["part"], list) else []
    return {str(one.get("name")): _value(one) for one in parts if isinstance(one, dict)}


def _value(parameter: Json) -> Any:
    return next((value for name, value in parameter.items() if name.startswith("value")), None)


def _input(value: Any, place: str, repository: Repository) -> Input:
    kind, url = (value.get("type"), value.get("url")) if isinstance(value, dict) else (None, None)
    if not isinstance(kind, str) or kind not in definitions().resource_types:
        raise Problem(Category.VALUE, "type must be a resource type of R4", f"{place}.type")
    if not isinstance(url, str) or len(url) > _LONGEST_URL:
        raise Problem(Category.VALUE, "url must be an http or https URL", f"{place}.url")
    for refused in repository.import_sources.refusals(url):
        raise Problem(Category.BUSINESS_RULE, refused, f"{place}.url")
    return {"type": kind, "url": url}
