"""DocumentReference/$docref: the references to the documents of a patient.

With `start` or `end`, those about care in that time (`context.period`), in pages that continue as a search does.
Without both, of each type the most recent one that is current.  Without `type`, the C-CDA CCD.  This server makes no
documents on demand, so that `on-demand=true` finds none.  `profile` is compared with `content.format`.

Source: http://hl7.org/fhir/us/core/OperationDefinition/docref, version 7.0.0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipf.errors import Category, Problem
from ipf.fhir.model.bundle import searchset
from ipf.fhir.model.json import dumps
from ipf.fhir.structure.primitives import is_id
from ipf.ports import Answer, Json, Request, Version
from ipf.rest.http.arguments import Arguments
from ipf.rest.http.outcome import success
from ipf.rest.interactions.searches.care_period import CarePeriod
from ipf.rest.interactions.searches.search import Scope, queries_of, search_response, self_link
from ipf.rest.write.repository import Repository

TYPE = "DocumentReference"
CCD = "http://loinc.org|34133-9"
_PARAMETERS = ("patient", "start", "end", "type", "on-demand", "profile")
_SCOPE = Scope((TYPE,), TYPE)
_NONE_ON_DEMAND = "this server makes no documents on demand: without on-demand=true it lists those that are stored"

Pairs = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Asked:
    """The parameters of a request; `types`: as values of a token search."""

    patient: str
    period: CarePeriod
    types: Sequence[str]
    on_demand: bool
    profiles: Sequence[str]


async def docref(request: Request, repository: Repository) -> Answer:
    """A searchset Bundle of DocumentReferences; empty when nothing fits.  Problem REQUIRED, VALUE or NOT_SUPPORTED."""
    if request.path[0] != TYPE:
        raise Problem(Category.NOT_FOUND, f"$docref is defined for {TYPE}")
    arguments = await Arguments.read(request, _PARAMETERS, repository.run_in_thread)
    asked, given = _asked(arguments), _given(arguments)
    pairs = _search(asked)
    if asked.on_demand:
        note = dumps(success(_NONE_ON_DEMAND))
        own = [self_link(request, "/".join(request.path), given)]
        return Answer(200, searchset((), 0, request.base_url, own, outcome=note))
    if asked.period.terms("period"):
        return await search_response(request, repository, [*pairs, ("type", ",".join(asked.types))], _SCOPE)
    found: dict[str, Version] = {}
    for one in asked.types:
        newest = [*pairs, ("type", one), ("_sort", "-date"), ("_count", "1"), ("_total", "none")]
        query = (await queries_of(request, repository, newest, _SCOPE))[0]
        page = await repository.store.search(request.tenant, query)
        found |= {version.id: version for version in page.matches}
    own = [self_link(request, "/".join(request.path), given)]
    matches = list(found.values())
    return Answer(200, searchset(matches, len(matches), request.base_url, own), about=matches)


def _asked(arguments: Arguments) -> _Asked:
    patient = arguments.required("patient").removeprefix("Patient/")
    if not is_id(patient):
        raise Problem(Category.VALUE, "patient must be the id of a Patient", "patient")
    period = CarePeriod.read(arguments.text("start"), arguments.text("end"))
    types = [_token(one) for one in arguments.choices("type", "Coding")] or [CCD]
    return _Asked(patient, period, types, arguments.boolean("on-demand"), arguments.texts("profile"))


def _given(arguments: Arguments) -> Pairs:
    """The parameters as in a URL, for the link of the response to itself."""
    types = [("type", _token(one)) for one in arguments.choices("type", "Coding")]
    others = [(name, value) for name, value in arguments.given() if name != "type"]
    return [(name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in others] + types


def _token(value: str | Json) -> str:
    """A type as a token: `system|code`, `code`, or a Coding."""
    if isinstance(value, str):
        token = value
    elif "code" not in value:
        raise Problem(Category.VALUE, "type needs a code", "type")
    else:
        token = f"{_escaped(value['system'])}|{_escaped(value['code'])}" if "system" in value else value["code"]
    if not token.rpartition("|")[2]:
        raise Problem(Category.VALUE, "type needs a code, such as http://loinc.org|34133-9", "type")
    return token


def _escaped(text: str) -> str:
    for sign in "\\|,$":
        text = text.replace(sign, f"\\{sign}")
    return text


def _search(asked: _Asked) -> Pairs:
    """The search for the documents, without their types."""
    found: Pairs = [("patient", f"Patient/{asked.patient}")]
    of_period = asked.period.terms("period")
    found.append(("status:not", "entered-in-error") if of_period else ("status", "current"))
    found += of_period
    if asked.profiles:
        found.append(("format", ",".join(map(_escaped, asked.profiles))))
    return found
