"""References that the server completes: `fullUrl` of other entries, conditional references, URLs of this server.

A transaction refers to a new resource by its `fullUrl` (`urn:uuid:...`, see `links.py`), or to a resource with an
unknown id by a search (`Patient?identifier=a|b`).  Both are replaced before the resource is stored, also in contained
resources and extensions.  So is the URL of a resource of this server, by its relative reference: what reads references
then finds one form only, and it stays right when the base URL changes.  A Bundle is stored as it is: its references are
relative to the URLs of its entries.  `Expression.reference` and others of that name are no Reference and stay.

Source: https://hl7.org/fhir/R4/http.html#trules, https://hl7.org/fhir/R4/bundle.html#references
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from ipf.errors import Category, Problem
from ipf.fhir.model.element_types import object_type, objects, type_of
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.model.reference import relative_form
from ipf.ports import Change, Json

_SEARCH = re.compile(r"[A-Z][A-Za-z]+\?.+", re.DOTALL)
_MOST_TARGETS = 1000  # of one Provenance


def conditional_references(resource: Json | None) -> Iterator[str]:
    """Every conditional `Reference.reference` in a resource, with duplicates."""
    for kind, value in objects(resource) if resource is not None else ():
        if kind == "Reference":
            text = value.get("reference")
            if type(text) is str and "?" in text and _SEARCH.fullmatch(text):
                yield text


def has_url(text: bytes) -> bool:
    """Whether compact JSON contains a reference by URL."""
    return b'"reference":"http' in text


def with_relative_references(resource: Json, base_url: str, elsewhere: Collection[str] = ()) -> tuple[Json, bytes]:
    """The resource with relative references to this server, a copy unless it is the same; and its JSON.

    `elsewhere`: see `make_relative`.
    """
    text = dumps(resource)
    if has_url(text):
        copy: Json = loads(text)
        if make_relative(copy, base_url, elsewhere):
            return copy, dumps(copy)
    return resource, text


def make_relative(resource: Json, base_url: str = "", elsewhere: Collection[str] = ()) -> bool:
    """Make references to this server relative, in place; whether there were any by URL.

    `elsewhere`: relative references that mean entries of the same Bundle which come from another server; a reference to
    this server that would look so stays a URL.
    """
    return type_of(resource) != "Bundle" and _make_relative(type_of(resource), resource, base_url, elsewhere)


def _make_relative(path: str, value: Json, base_url: str, elsewhere: Collection[str]) -> bool:
    found = False
    for name, member in value.items():
        for item in member if type(member) is list else (member,):
            if type(item) is dict:
                inner = object_type(path, name, item)
                found |= inner not in ("", "Bundle") and _make_relative(inner, item, base_url, elsewhere)
    text = value.get("reference")
    if path == "Reference" and type(text) is str:
        relative = relative_form(text, base_url)
        if relative != text and relative not in elsewhere:
            value["reference"], found = relative, True
    return found


def written_targets(changes: Sequence[Change], place: str | None) -> list[Json]:
    """References to the versions that these changes write, without deletions.  Problem COSTLY for too many."""
    versions = [one.version for one in changes if not one.version.deleted]
    if len(versions) > _MOST_TARGETS:
        raise Problem(Category.COSTLY, f"a Provenance has at most {_MOST_TARGETS} targets", place)
    return [{"reference": f"{one.resource_type}/{one.id}/_history/{one.version_id}"} for one in versions]
