"""`/browse`: the FHIR resources: search with the parameters of the type, read, history with differences, a timeline.

Requests go to `/fhir` with the access token of the person, if the engine asks for tokens; what he may see is the
engine's decision, and its audit trail names him.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from ipf.console.content.elements import changes, label, rows
from ipf.console.serving.web import Route, View, problem_page
from ipf.ports import Answer
from ipf.wire.admin.route import Role

_TYPE = re.compile(r"[A-Z][A-Za-z]{1,60}")
_ID = re.compile(r"[A-Za-z0-9.-]{1,64}")
SIZE = 30
USUAL = (
    "Patient", "Encounter", "Observation", "DiagnosticReport", "ServiceRequest", "Condition", "AllergyIntolerance",
    "Immunization", "Appointment", "DocumentReference", "Practitioner", "Organization", "Location", "Subscription",
)  # fmt: skip
_DATES = (
    "effectiveDateTime", "occurrenceDateTime", "recordedDate", "onsetDateTime", "performedDateTime", "authoredOn",
    "issued", "date", "start", "created",
)  # fmt: skip


async def search(view: View) -> Answer:
    """`/browse?type=Patient&name=x`: a page of matches."""
    given = view.parameters
    kind = given.get("type", "Patient")
    if not _TYPE.fullmatch(kind):
        return problem_page(view, 404, "missing")
    types, parameters = await _parameters(view, kind)
    wanted = [(name, text) for name, text in view.request.query if name not in ("type", "parameter", "value") and text]
    if given.get("parameter") and given.get("value"):
        wanted.append((given["parameter"], given["value"]))
    bundle = await view.fhir(f"/{kind}", [*wanted, ("_count", str(SIZE))] if "_count" not in dict(wanted) else wanted)
    found = [entry["resource"] for entry in bundle.get("entry", []) if entry.get("search", {}).get("mode") != "outcome"]
    return view.page(
        "browse.html", kind=kind, types=types, parameters=parameters, wanted=wanted, resources=found, label=label,
        total=bundle.get("total"), next=_next(view, kind, bundle),
    )  # fmt: skip


async def read(view: View) -> Answer:
    """`/browse/Patient/1`: one resource as elements; `tab=json`, `tab=history`."""
    kind, id = view.parts["kind"], view.parts["id"]
    if not _TYPE.fullmatch(kind) or not _ID.fullmatch(id):
        return problem_page(view, 404, "missing")
    tab = view.parameters.get("tab", "elements")
    values: dict[str, Any] = {"kind": kind, "id": id, "tab": tab, "tabs": _tabs(kind)}
    if tab == "history":
        return view.page("browse_history.html", versions=await _versions(view, kind, id), **values)
    if tab == "timeline" and kind == "Patient":
        return view.page("browse_timeline.html", events=await _timeline(view, id), **values)
    resource = await view.fhir(f"/{kind}/{quote(id)}", [])
    return view.page("browse_resource.html", resource=resource, rows=rows(resource), label=label(resource), **values)


def _tabs(kind: str) -> tuple[str, ...]:
    return ("elements", "json", "history", "timeline") if kind == "Patient" else ("elements", "json", "history")


async def _parameters(view: View, kind: str) -> tuple[list[str], list[Mapping[str, Any]]]:
    """The types of the engine, the usual ones first; the search parameters of one."""
    statement = await view.fhir("/metadata", [])
    resources = {one["type"]: one for one in statement["rest"][0]["resource"]}
    types = [*(one for one in USUAL if one in resources), *sorted(set(resources) - set(USUAL))]
    return types, sorted(resources.get(kind, {}).get("searchParam", []), key=lambda one: one["name"])


async def _versions(view: View, kind: str, id: str) -> list[dict[str, Any]]:
    """The versions, newest first, each with what it changed."""
    bundle = await view.fhir(f"/{kind}/{quote(id)}/_history", [("_count", "50")])
    entries = bundle.get("entry", [])
    found = []
    for number, entry in enumerate(entries):
        resource = entry.get("resource")
        before = entries[number + 1].get("resource") if number + 1 < len(entries) else None
        found.append({
            "method": entry.get("request", {}).get("method", ""),
            "at": entry.get("response", {}).get("lastModified"),
            "version": (resource or {}).get("meta", {}).get("versionId", ""),
            "changes": changes(before or {}, resource) if resource else [],
            "is_first": before is None,
        })  # fmt: skip
    return found


async def _timeline(view: View, id: str) -> list[dict[str, str]]:
    """The dated resources of a patient, newest first."""
    bundle = await view.fhir(f"/Patient/{quote(id)}/$everything", [("_count", "200")])
    resources = [entry["resource"] for entry in bundle.get("entry", []) if "resource" in entry]
    events = [
        {"at": at, "kind": one["resourceType"], "id": one["id"], "label": label(one)}
        for one in resources if (at := _date(one))
    ]  # fmt: skip
    return sorted(events, key=lambda one: one["at"], reverse=True)


def _date(resource: Mapping[str, Any]) -> str:
    """When it happened, as far as the resource says."""
    for name in _DATES:
        if isinstance(resource.get(name), str):
            return str(resource[name])
    period = resource.get("period") or resource.get("effectivePeriod") or {}
    return str(period.get("start", "")) if isinstance(period, dict) else ""


def _next(view: View, kind: str, bundle: Mapping[str, Any]) -> str | None:
    """The next page: the parameters of the engine's link, at this page's address."""
    url = next((one["url"] for one in bundle.get("link", []) if one.get("relation") == "next"), None)
    if url is None:
        return None
    return view.address("/browse", [("type", kind), *parse_qsl(urlsplit(url).query, keep_blank_values=True)])


ROUTES = (Route("GET", "/", Role.VIEWER, search), Route("GET", "/<kind>/<id>", Role.VIEWER, read))
