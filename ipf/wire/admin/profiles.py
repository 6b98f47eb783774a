"""`/admin/api/profiles`: vendor profiles for operators; functions on values, and the paths.

`GET` shows what is loaded and what was skipped; `POST .../validate` takes an archive (`application/x-gtar`) and says
what is wrong with it, without installing it; `POST .../reload` reads the folder of archives again.

Source: interface specification "Vendor profile administration"; decisions section 3; docs/profiles.md.
"""

from __future__ import annotations

from klein import Klein
from twisted.web.iweb import IRequest

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.ports import Answer, Json, Notifier, Request
from ipf.ports.profiles import ProfileAdmin
from ipf.wire.admin.klein_app import Routes, Run
from ipf.wire.admin.mapping import MAPPING
from ipf.wire.http.serving import JSON


def routes(admin: ProfileAdmin, notifier: Notifier) -> Routes:
    """The paths below `/admin/api/profiles`."""

    def add(app: Klein, run: Run) -> None:
        @app.route("/api/profiles", methods=["GET"])
        async def shown(web: IRequest) -> bytes:
            return await run(web, lambda _: describe(admin))

        @app.route("/api/profiles/validate", methods=["POST"])
        async def validated(web: IRequest) -> bytes:
            return await run(web, lambda request: validate(admin, request))

        @app.route("/api/profiles/reload", methods=["POST"])
        async def reloaded(web: IRequest) -> bytes:
            return await run(web, lambda _: reload(admin, notifier))

    return add


async def describe(admin: ProfileAdmin) -> Answer:
    """`GET /admin/api/profiles`."""
    return _answer(admin.describe())


async def validate(admin: ProfileAdmin, request: Request) -> Answer:
    """`POST /admin/api/profiles/validate`: 200 for every archive, valid or not; else 400, or 413."""
    if not request.body:
        raise Problem(Category.REQUIRED, "the body must be the archive of a profile (application/x-gtar)")
    return _answer(await admin.validate(request.body))


async def reload(admin: ProfileAdmin, notifier: Notifier) -> Answer:
    """`POST /admin/api/profiles/reload`: a broken archive is listed as skipped and replaces nothing."""
    found = await admin.reload()
    notifier.notify(MAPPING)
    return _answer(found)


def _answer(body: Json) -> Answer:
    return Answer(200, dumps(body), (), JSON)
