"""`/send`: send a message: a sample or a pasted one, its acknowledgement, and the way to what became of it."""

from __future__ import annotations

from ipf.console.content.samples import fresh, samples
from ipf.console.serving.backend import BackendRefused, decoded
from ipf.console.serving.web import Route, View
from ipf.ports import Answer
from ipf.wire.admin.route import Role


async def page(view: View) -> Answer:
    """The page; `sample` fills the text."""
    chosen = view.parameters.get("sample", "")
    text = fresh(samples()[chosen]) if chosen in samples() else ""
    return view.page("send.html", samples=list(samples()), chosen=chosen, text=text)


async def send(view: View) -> Answer:
    """`POST /send`: a part of the page: the acknowledgement."""
    body = view.form.get("message", "").encode()
    try:
        return view.page("sent.html", found=decoded(await view.upload("/admin/ingest", "text/plain", body)), reason="")
    except BackendRefused as refused:
        return view.page("sent.html", found=None, reason=str(refused))


ROUTES = (Route("GET", "/", Role.OPERATOR, page), Route("POST", "/", Role.OPERATOR, send))
