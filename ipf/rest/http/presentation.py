"""How an answer looks: all or some of the elements, JSON or XML, pretty or compact.

The interactions know nothing of it.  They answer JSON bytes as they are stored, and those go out untouched unless the
caller asked for something else: then the answer is parsed, cut and written here, whatever interaction it came from.

Source: https://hl7.org/fhir/R4/http.html#parameters, https://hl7.org/fhir/R4/search.html#summary, #elements
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlencode

from ipf.errors import Category, Problem
from ipf.fhir.model import subset
from ipf.fhir.model.json import dumps, indented, loads
from ipf.fhir.xml.writer import to_xml
from ipf.ports import Answer, Json, Request
from ipf.rest.http.formats import Format

_PRESENTATION = frozenset({"_format", "_pretty", "_elements"})
_SUMMARIES: dict[str, Callable[[Json], Json]] = {
    "true": subset.summary,
    "text": subset.text_only,
    "data": subset.data_only,
}
_NO_SUBSET = frozenset({"OperationOutcome", "CapabilityStatement", "Parameters"})


@dataclass(frozen=True, slots=True)
class Presentation:
    """What was asked for.  `links`: the parameters that say so, for the links of a Bundle."""

    cut: Callable[[Json], Json] | None = None
    pretty: bool = False
    links: tuple[tuple[str, str], ...] = ()


PLAIN = Presentation()


def split(request: Request) -> tuple[Request, Presentation]:
    """The request without the parameters that only say how the answer is to look, and these."""
    asked = tuple(pair for pair in request.query if _is_presentation(pair))
    if not asked:
        return request, PLAIN
    rest = tuple(pair for pair in request.query if not _is_presentation(pair))
    values = dict(asked)
    pretty = values.get("_pretty", "false") == "true"
    return replace(request, query=rest), Presentation(_cut(values), pretty, asked)


def _is_presentation(pair: tuple[str, str]) -> bool:
    return pair[0] in _PRESENTATION or (pair[0] == "_summary" and pair[1] in _SUMMARIES)


def _cut(values: dict[str, str]) -> Callable[[Json], Json] | None:
    if "_elements" in values:
        names = frozenset(name.strip().rpartition(".")[2] for name in values["_elements"].split(",") if name.strip())
        if not names:
            raise Problem(Category.VALUE, "_elements needs the names of elements", "_elements")
        return partial(subset.elements, names=names)
    return _SUMMARIES.get(values.get("_summary", ""))


def cut(answer: Answer, look: Presentation) -> Answer:
    """The answer with those elements only that were asked for, still as compact JSON."""
    if look.cut is None or not _is_fhir(answer) or answer.status >= 300:
        return answer
    resource = loads(answer.body)
    if resource["resourceType"] in ("Bundle", *_NO_SUBSET):
        resource = _in_bundle(resource, look.cut)
    else:
        resource = look.cut(resource)
    return replace(answer, body=dumps(resource))


def _in_bundle(bundle: Json, cut_one: Callable[[Json], Json]) -> Json:
    """A result with each of its resources cut; what a search says about itself stays whole."""
    entries = [_entry(entry, cut_one) for entry in bundle.get("entry", ())]
    return {**bundle, "entry": entries} if entries else bundle


def _entry(entry: Json, cut_one: Callable[[Json], Json]) -> Json:
    resource = entry.get("resource")
    if resource is None or resource["resourceType"] in _NO_SUBSET or entry.get("search", {}).get("mode") == "outcome":
        return entry
    return {**entry, "resource": cut_one(resource)}


def write(answer: Answer, look: Presentation, form: Format) -> Answer:
    """The answer in the format that was asked for."""
    if not answer.body or not _is_fhir(answer):
        return answer
    if form is not Format.XML and not look.pretty and not look.links:
        return answer
    resource = loads(answer.body)
    if look.links and resource["resourceType"] == "Bundle" and resource.get("link"):
        resource = {**resource, "link": [_linked(link, look) for link in resource["link"]]}
    if form is Format.XML:
        return replace(answer, body=to_xml(resource), content_type=Format.XML.value)
    return replace(answer, body=indented(resource) if look.pretty else dumps(resource))


def _linked(link: Json, look: Presentation) -> Json:
    url = link["url"]
    return {**link, "url": f"{url}{'&' if '?' in url else '?'}{urlencode(look.links)}"}


def _is_fhir(answer: Answer) -> bool:
    return answer.content_type.startswith("application/fhir+json")
