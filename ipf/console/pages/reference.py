"""`/reference`: the admin API for people, out of the OpenAPI documents of the engine."""

from __future__ import annotations

from ipf.console.pages.overview import all_of
from ipf.console.serving.web import Route, View
from ipf.ports import Answer
from ipf.wire.admin.route import Role
from ipf.wire.reference.operations import reference_of


async def reference(view: View) -> Answer:
    """Operations and schemas of the admin API and of the observability API."""
    paths = {"admin": "/admin/openapi.json", "observe": "/admin/observe/openapi.json"}
    documents = await all_of(*map(view.get, paths.values()))
    found = [reference_of(document, anchor) for anchor, document in zip(paths, documents, strict=True)]
    return view.page("reference.html", references=found)


ROUTES = (Route("GET", "/", Role.VIEWER, reference),)
