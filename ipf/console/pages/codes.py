"""`/codes/{id}`: an unmapped code: where it is used, and the code that it means."""

from __future__ import annotations

from ipf.console.sessions import Role
from ipf.console.web import Route, View, redirect
from ipf.ports import Answer


async def code(view: View) -> Answer:
    """The code, and the messages that use it."""
    return view.page("code.html", code=await view.get(f"/admin/unmapped-codes/{view.parts['id']}"))


async def map_code(view: View) -> Answer:
    """`POST /codes/{id}`: stores the target, and converts the messages that use the code again."""
    id, form = view.parts["id"], view.form
    body = {"system": form.get("system") or None, "code": form.get("code", ""), "display": form.get("display") or None}
    await view.send("POST", f"/admin/unmapped-codes/{id}/map", {name: text for name, text in body.items() if text})
    await view.send("POST", f"/admin/unmapped-codes/{id}/requeue")
    return redirect(f"/codes/{id}")


ROUTES = (Route("GET", "/<int:id>", Role.VIEWER, code), Route("POST", "/<int:id>", Role.OPERATOR, map_code))
