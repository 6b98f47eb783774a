"""Presentation of responses: selected elements, JSON or XML, pretty or compact.

Interactions return JSON bytes as they are stored.  They are sent unchanged unless the request asks for another
presentation; then the response is parsed, filtered and serialized here.

Source: https://hl7.org/fhir/R4/http.html#parameters, https://hl7.org/fhir/R4/search.html#summary, #elements
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlencode

from ipf.errors import Category, Problem
from ipf.fhir.model import subset
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import dumps, indented, loads
from ipf.fhir.xml.writer import to_xml
from ipf.ports import Answer, Json, Request
from ipf.rest.http.formats import Format

_FORMS = frozenset({"_format", "_pretty"})
_PRESENTATION = _FORMS | {"_elements"}
_EXPORT = ("$export",)
_SUMMARIES: dict[str, Callable[[Json], Json]] = {
    "true": subset.summary,
    "text": subset.text_only,
    "data": subset.data_only,
}
_INCLUDES = frozenset({"_include", "_revinclude"})
_NO_SUBSET = frozenset({"OperationOutcome", "CapabilityStatement", "Parameters"})


@dataclass(frozen=True, slots=True)
class Presentation:
    """The requested presentation.  `links`: its parameters, for the links of a Bundle."""

    select_elements: Callable[[Json], Json] | None = None
    pretty: bool = False
    links: tuple[tuple[str, str], ...] = ()


DEFAULT_PRESENTATION = Presentation()


def split_presentation(request: Request) -> tuple[Request, Presentation]:
    """The request without presentation parameters, and the presentation."""
    is_export = request.path[-1:] == _EXPORT
    pairs = tuple(pair for pair in request.query if _is_presentation(pair, is_export))
    if not pairs:
        return request, DEFAULT_PRESENTATION
    rest = tuple(pair for pair in request.query if not _is_presentation(pair, is_export))
    values = dict(pairs)
    pretty = values.get("_pretty", "false") == "true"
    return replace(request, query=rest), Presentation(_selector(values, _types(request)), pretty, pairs)


def _is_presentation(pair: tuple[str, str], is_export: bool) -> bool:
    if is_export:  # its `_elements` would be of the files
        return pair[0] in _FORMS
    return pair[0] in _PRESENTATION or (pair[0] == "_summary" and pair[1] in _SUMMARIES)


def _selector(values: dict[str, str], types: Collection[str]) -> Callable[[Json], Json] | None:
    if "_elements" in values:
        names = [name.strip() for name in values["_elements"].split(",") if name.strip()]
        if not names:
            raise Problem(Category.VALUE, "_elements needs element names", "_elements")
        return partial(_selected, names=frozenset(_element(name, types) for name in names))
    return _SUMMARIES.get(values.get("_summary", ""))


def _types(request: Request) -> Collection[str]:
    """The resource types that the response may have: that of the URL alone, unless it is a search with others."""
    known, path = definitions().resource_types, request.path
    named = path[2] if len(path) > 2 and (path[2] in known or path[2] == "*") else "".join(path[:1])
    if named not in known or any(name.partition(":")[0] in _INCLUDES for name, _ in request.query):
        return known
    return known if any(part.startswith("$") for part in path) else (named,)


def _element(text: str, types: Collection[str]) -> tuple[str, str]:
    """The type ("" for any) and the name of one element.  Problem VALUE names one that no type of the response has."""
    prefix, _, name = text.rpartition(".")
    if prefix and prefix not in definitions().resource_types:
        raise Problem(Category.VALUE, f"_elements: {text[:80]} is no element of a resource itself", "_elements")
    if not any(definitions().element(one, name) is not None for one in ((prefix,) if prefix else types)):
        owner = prefix or (next(iter(types)) if len(types) == 1 else "a resource")
        raise Problem(Category.VALUE, f"_elements: {name[:80]} is no element of {owner}", "_elements")
    return prefix, name


def _selected(resource: Json, names: frozenset[tuple[str, str]]) -> Json:
    kind = resource["resourceType"]
    return subset.elements(resource, frozenset(name for prefix, name in names if prefix in ("", kind)))


def select_elements(answer: Answer, presentation: Presentation) -> Answer:
    """The response with the requested elements only, as compact JSON."""
    if presentation.select_elements is None or not _is_fhir(answer) or answer.status >= 300:
        return answer
    resource = loads(answer.body)
    if resource["resourceType"] in ("Bundle", *_NO_SUBSET):
        resource = _select_in_bundle(resource, presentation.select_elements)
    else:
        resource = presentation.select_elements(resource)
    return replace(answer, body=dumps(resource))


def _select_in_bundle(bundle: Json, select: Callable[[Json], Json]) -> Json:
    """A Bundle with the elements of each resource selected; outcomes of a search stay complete."""
    entries = [_select_in_entry(entry, select) for entry in bundle.get("entry", ())]
    return {**bundle, "entry": entries} if entries else bundle


def _select_in_entry(entry: Json, select: Callable[[Json], Json]) -> Json:
    resource = entry.get("resource")
    if resource is None or resource["resourceType"] in _NO_SUBSET or entry.get("search", {}).get("mode") == "outcome":
        return entry
    return {**entry, "resource": select(resource)}


def render(answer: Answer, presentation: Presentation, form: Format) -> Answer:
    """The response in the requested format."""
    if not answer.body or not _is_fhir(answer):
        return answer
    if form is not Format.XML and not presentation.pretty and not presentation.links:
        return answer
    resource = loads(answer.body)
    if presentation.links and resource["resourceType"] == "Bundle" and resource.get("link"):
        resource = {**resource, "link": [_with_presentation(link, presentation) for link in resource["link"]]}
    if form is Format.XML:
        return replace(answer, body=to_xml(resource), content_type=Format.XML.value)
    return replace(answer, body=indented(resource) if presentation.pretty else dumps(resource))


def _with_presentation(link: Json, presentation: Presentation) -> Json:
    url = link["url"]
    return {**link, "url": f"{url}{'&' if '?' in url else '?'}{urlencode(presentation.links)}"}


def _is_fhir(answer: Answer) -> bool:
    return answer.content_type.startswith("application/fhir+json")
