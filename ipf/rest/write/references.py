"""References that the server completes: `fullUrl` of other entries, conditional references, URLs of this server.

A transaction refers to a new resource by its `fullUrl` (`urn:uuid:...`), or to a resource with an unknown id by a
search (`Patient?identifier=a|b`).  Both are replaced before the resource is stored, also in contained resources and
extensions.  So is the URL of a resource of this server, by its relative reference: what reads references then finds one
form only, and it stays right when the base URL changes.  A Bundle is stored as it is: its references are relative to
the URLs of its entries.

Source: https://hl7.org/fhir/R4/http.html#trules, https://hl7.org/fhir/R4/bundle.html#references
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ipf.fhir.model.json import dumps, loads
from ipf.fhir.model.reference import relative_form
from ipf.ports import Json

_SEARCH = re.compile(r"[A-Z][A-Za-z]+\?.+", re.DOTALL)


def conditional_references(value: Any) -> Iterator[str]:
    """Every conditional `Reference.reference` in `value`, with duplicates."""
    if type(value) is list:
        for item in value:
            yield from conditional_references(item)
    elif type(value) is dict:
        for name, item in value.items():
            if type(item) is str:
                if name == "reference" and "?" in item and _SEARCH.fullmatch(item):
                    yield item
            else:
                yield from conditional_references(item)


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


def make_relative(value: Any, base_url: str = "", elsewhere: Collection[str] = ()) -> bool:
    """Make references to this server relative, in place; whether there were any by URL.

    `elsewhere`: relative references that mean entries of the same Bundle which come from another server; a reference to
    this server that would look so stays a URL.
    """
    found = False
    if type(value) is list:
        for one in value:
            found |= make_relative(one, base_url, elsewhere)
    elif type(value) is dict and value.get("resourceType") != "Bundle":
        for name, one in value.items():
            if type(one) is not str:
                found |= make_relative(one, base_url, elsewhere)
            elif name == "reference":
                relative = relative_form(one, base_url)
                if relative != one and relative not in elsewhere:
                    value[name], found = relative, True
    return found


def rewrite(resource: Json, names: Mapping[str, str], references: Mapping[str, str]) -> Json:
    """A copy of `resource` with the keys of `names` replaced in all strings, and those of `references` in `reference`.

    Unchanged parts are shared with the original, which is not modified.  Links in narratives
    (`<a href="urn:uuid:...">`) are replaced as well.
    """
    rewritten: Json = _in_object(resource, names, references)
    return rewritten


def _in_object(value: Json, names: Mapping[str, str], references: Mapping[str, str]) -> Json:
    changed: Json | None = None
    for name, item in value.items():
        kind = type(item)
        new: Any
        if kind is str:
            if item in names:
                new = names[item]
            elif name == "reference" and item in references:
                new = references[item]
            elif name == "div" and "urn:" in item:
                new = _in_narrative(item, names)
            else:
                continue
        elif kind is dict:
            new = _in_object(item, names, references)
        elif kind is list:
            new = _in_list(item, names, references)
        else:
            continue
        if new is not item:
            if changed is None:
                changed = dict(value)
            changed[name] = new
    return value if changed is None else changed


def _in_list(value: list[Any], names: Mapping[str, str], references: Mapping[str, str]) -> list[Any]:
    changed: list[Any] | None = None
    for position, item in enumerate(value):
        kind = type(item)
        if kind is dict:
            new: Any = _in_object(item, names, references)
        elif kind is str:
            new = names.get(item, item)
        else:
            continue
        if new is not item:
            changed = changed or list(value)
            changed[position] = new
    return changed or value


def _in_narrative(text: str, names: Mapping[str, str]) -> str:
    for full_url, reference in names.items():
        text = text.replace(f'"{full_url}"', f'"{reference}"')
    return text
