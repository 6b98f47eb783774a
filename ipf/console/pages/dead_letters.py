"""`/dead-letters`: dead letters grouped by cause; a whole group is retried or discarded as a job."""

from __future__ import annotations

from ipf.console.serving.web import Route, View, redirect
from ipf.ports import Answer
from ipf.wire.admin.route import Role

SIZE = 50
ACTIONS = ("retry", "discard")


async def groups(view: View) -> Answer:
    """The groups, the largest first."""
    found = await view.get("/admin/dead-letters/errors", {"limit": SIZE, "tenant": view.parameters.get("tenant")})
    return view.page("dead_letters.html", found=found)


async def group(view: View) -> Answer:
    """`/dead-letters/{fingerprint}`: what a bulk action would do, before it is confirmed."""
    fingerprint, action = view.parts["fingerprint"], view.parameters.get("action", "retry")
    action = action if action in ACTIONS else "retry"
    found = await view.get("/admin/dead-letters/errors", {"limit": 500})
    cause = next((one for one in found["items"] if one["fingerprint"] == fingerprint), None)
    preview = await view.send("POST", f"/admin/dead-letters/{action}", {"fingerprint": fingerprint, "dry_run": True})
    return view.page("dead_letter.html", fingerprint=fingerprint, action=action, cause=cause, preview=preview)


async def act(view: View) -> Answer:
    """`POST /dead-letters/{fingerprint}`: begins the job, and shows its progress."""
    action = view.form.get("action", "")
    action = action if action in ACTIONS else "retry"
    job = await view.send("POST", f"/admin/dead-letters/{action}", {"fingerprint": view.parts["fingerprint"]})
    return redirect(f"/jobs/{job['id']}")


ROUTES = (
    Route("GET", "/", Role.VIEWER, groups),
    Route("GET", "/<fingerprint>", Role.OPERATOR, group),
    Route("POST", "/<fingerprint>", Role.OPERATOR, act),
)
