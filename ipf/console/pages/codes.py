"""`/codes/{id}`: an unmapped code: where it is used, and the code that it means, with a search over the target system.

What is offered: the targets that the ConceptMap has already, and the codes of their code systems, as far as the engine
has them loaded.  A code may have no target on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipf.console.serving.backend import BackendRefused
from ipf.console.serving.web import Route, View, redirect
from ipf.ports import Answer
from ipf.wire.admin.route import Role

MOST_FOUND = 20
SCOPES = ("sender", "all")


async def code(view: View) -> Answer:
    """The code, and the messages that use it."""
    found = await view.get(f"/admin/unmapped-codes/{view.parts['id']}")
    systems = sorted({target["system"] for target in await _targets(view, found["concept_map"]) if target["system"]})
    return view.page("code.html", code=found, systems=systems, scopes=SCOPES)


async def search(view: View) -> Answer:
    """`/codes/{id}/search?q=`: a part of the page: codes that the text of `q` finds."""
    words = view.parameters.get("q", "").lower()
    found = await view.get(f"/admin/unmapped-codes/{view.parts['id']}")
    targets = await _targets(view, found["concept_map"])
    known = [one for one in targets if words in f"{one['code']} {one['display']} {one['from']}".lower()]
    systems = sorted({one["system"] for one in targets if one["system"]})
    matches, missing = [], []
    for system in systems if words else ():
        try:
            matches += await _expanded(view, system, words)
        except BackendRefused:  # the code system is not loaded, or the person may not read value sets
            missing.append(system)
    named = {(one["system"], one["code"]) for one in known}
    further = [one for one in matches if (one["system"], one["code"]) not in named]
    return view.page("code_found.html", known=known[:MOST_FOUND], further=further[:MOST_FOUND], missing=missing)


async def map_code(view: View) -> Answer:
    """`POST /codes/{id}`: stores the target, or that there is none, and converts the messages with the code again."""
    id, form = view.parts["id"], view.form
    body: dict[str, Any] = {"scope": form.get("scope") if form.get("scope") in SCOPES else "sender"}
    if form.get("none"):
        body["code"] = None
    else:
        given = {name: form.get(name, "").strip() for name in ("system", "code", "display")}
        body |= {name: text for name, text in given.items() if text}
    await view.send("POST", f"/admin/unmapped-codes/{id}/map", body)
    await view.send("POST", f"/admin/unmapped-codes/{id}/requeue")
    return redirect(f"/codes/{id}")


async def _targets(view: View, url: str) -> list[dict[str, str]]:
    """The targets of a ConceptMap; none when the person may not read it."""
    backend, token = view.console.backend, view.session.access_token
    try:
        bundle = await backend.fhir("/ConceptMap", [("url", url)], token, root="/mapping/fhir")
    except BackendRefused:
        return []
    found: dict[tuple[str, str], dict[str, str]] = {}
    for entry in bundle.get("entry", ()):
        for group in entry["resource"].get("group", ()):
            for element in group.get("element", ()):
                for target in element.get("target", ()):
                    _add(found, group, element, target)
    return list(found.values())


def _add(
    found: dict[tuple[str, str], dict[str, str]],
    group: Mapping[str, Any],
    element: Mapping[str, Any],
    target: Mapping[str, Any],
) -> None:
    system, code = str(group.get("target", "")), str(target.get("code", ""))
    if code and (system, code) not in found:
        found[system, code] = {"system": system, "code": code, "display": str(target.get("display", "")),
                               "from": str(element.get("display") or element.get("code", ""))}  # fmt: skip


async def _expanded(view: View, system: str, words: str) -> list[dict[str, str]]:
    """The codes of a code system with these words."""
    value_set = {"resourceType": "ValueSet", "status": "active", "compose": {"include": [{"system": system}]}}
    parameters = [
        {"name": "valueSet", "resource": value_set},
        {"name": "filter", "valueString": words},
        {"name": "count", "valueInteger": MOST_FOUND},
    ]
    body = {"resourceType": "Parameters", "parameter": parameters}
    found = await view.console.backend.fhir("/ValueSet/$expand", [], view.session.access_token, body)
    contained = found.get("expansion", {}).get("contains", ())
    return [{"system": one["system"], "code": one["code"], "display": one.get("display", ""), "from": ""}
            for one in contained if not one.get("abstract")]  # fmt: skip


ROUTES = (
    Route("GET", "/<int:id>", Role.VIEWER, code),
    Route("GET", "/<int:id>/search", Role.VIEWER, search),
    Route("POST", "/<int:id>", Role.OPERATOR, map_code),
)
