"""`/jobs/{id}`: the progress of a bulk action; it can be cancelled."""

from __future__ import annotations

from ipf.console.serving.web import Route, View, redirect
from ipf.ports import Answer
from ipf.wire.admin.route import Role

_RUNNING = ("requested", "running")


async def job(view: View) -> Answer:
    """The job; a script of the page asks for the part with its progress every second while it runs."""
    found = await view.get(f"/admin/jobs/{view.parts['id']}")
    template = "job_progress.html" if view.is_part else "job.html"
    return view.page(template, job=found, is_running=found["status"] in _RUNNING)


async def cancel(view: View) -> Answer:
    """`POST /jobs/{id}/cancel`."""
    id = view.parts["id"]
    await view.send("POST", f"/admin/jobs/{id}/cancel")
    return redirect(f"/jobs/{id}")


ROUTES = (Route("GET", "/<int:id>", Role.VIEWER, job), Route("POST", "/<int:id>/cancel", Role.OPERATOR, cancel))
