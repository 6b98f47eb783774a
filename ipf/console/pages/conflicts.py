"""`/conflicts/{id}`: an identity conflict: candidates side by side, differences marked; merge, take or keep apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ipf.console.serving.web import Route, View, redirect
from ipf.ports import Answer
from ipf.wire.admin.route import Role

ROWS = ("identifiers", "names", "birth_date", "gender", "active", "subject", "replaced_by", "last_updated")
ANSWERS = ("merge", "take", "apart")


@dataclass(frozen=True, slots=True)
class Row:
    """One property of all candidates.  `differs`: they do not all have the same."""

    name: str
    values: tuple[str, ...]
    differs: bool


async def conflict(view: View) -> Answer:
    """The conflict and its candidates as they are now."""
    found = await view.get(f"/admin/identity-conflicts/{view.parts['id']}")
    candidates = found["candidate_resources"]
    answers = ANSWERS if found["resource_type"] == "Patient" and len(candidates) > 1 else ANSWERS[1:]
    return view.page("conflict.html", conflict=found, candidates=candidates, rows=rows_of(candidates), answers=answers)


async def decide(view: View) -> Answer:
    """`POST /conflicts/{id}`: the answer of the operator."""
    id, form = view.parts["id"], view.form
    body = {"answer": form.get("answer", ""), "target": form.get("target") or None, "reason": form.get("reason", "")}
    if body["answer"] == "apart":
        body["target"] = None
    await view.send("POST", f"/admin/identity-conflicts/{id}/answer", body)
    return redirect(f"/conflicts/{id}")


def rows_of(candidates: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The properties that at least one candidate has."""
    found = []
    for name in ROWS:
        values = tuple(text_of(one.get(name)) for one in candidates)
        if any(values):
            found.append(Row(name, values, len(set(values)) > 1))
    return found


def text_of(value: Any) -> str:
    """A property for people: identifiers as `system|value`, names in lines."""
    if isinstance(value, list):
        return "\n".join(text_of(one) for one in value)
    if isinstance(value, dict):
        if "value" in value:
            kind = f" ({value['type']})" if value.get("type") else ""
            return f"{value.get('system') or ''}|{value['value']}{kind}"
        given = value.get("given") or []
        return value.get("text") or " ".join([*given, str(value.get("family") or "")]).strip()
    return "" if value is None else str(value)


ROUTES = (Route("GET", "/<int:id>", Role.VIEWER, conflict), Route("POST", "/<int:id>", Role.OPERATOR, decide))
