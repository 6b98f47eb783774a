"""`/messages/{id}`: one message: fields, timeline, effects, trace; retry, replay, delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ipf.console.backend import BackendRefused
from ipf.console.sessions import Role
from ipf.console.web import Route, View, redirect
from ipf.ports import Answer

TABS = ("fields", "raw", "effects", "trace")


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a segment.  `path`: `PID-3`; `text`: as it was sent."""

    path: str
    text: str


async def message(view: View) -> Answer:
    """The page of a message; `tab` selects what is shown below its head."""
    id = view.parts["id"]
    found = await view.get(f"/admin/messages/{id}")
    tab = view.parameters.get("tab", "fields")
    tab = tab if tab in TABS else "fields"
    values: dict[str, Any] = {"message": found, "tab": tab, "tabs": TABS}
    if tab == "fields":
        values["segments"] = segments(found["raw_message"])
    elif tab == "effects":
        values["effects"] = await view.get(f"/admin/messages/{id}/effects")
    elif tab == "trace":
        values |= await _trace(view, id)
    return view.page("message.html", **values)


async def _trace(view: View, id: int) -> dict[str, Any]:
    try:
        return {"trace": await view.get(f"/admin/messages/{id}/trace"), "reason": ""}
    except BackendRefused as refused:  # no map, or the map fails: the reason is what the operator wants
        return {"trace": None, "reason": str(refused)}


async def retry(view: View) -> Answer:
    """`POST /messages/{id}/retry`."""
    id = view.parts["id"]
    await view.send("POST", f"/admin/messages/{id}/retry")
    return redirect(f"/messages/{id}")


def segments(raw: str) -> list[list[Field]]:
    """The segments of a message as the sender wrote them, field by field; MSH-1 and MSH-2 are the delimiters."""
    found = []
    separator = raw[3:4] or "|"
    for line in raw.replace("\n", "\r").split("\r"):
        if not line.strip():
            continue
        name, *texts = line.split(separator)
        first = 1
        if name in ("MSH", "FHS", "BHS"):
            texts = [separator, *texts]
        found.append([Field(name, ""), *(Field(f"{name}-{number}", text) for number, text in enumerate(texts, first))])
    return found


ROUTES = (
    Route("GET", "/<int:id>", Role.VIEWER, message),
    Route("POST", "/<int:id>/retry", Role.OPERATOR, retry),
)
