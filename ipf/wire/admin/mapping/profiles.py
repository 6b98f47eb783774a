"""`/admin/api/profiles`: vendor profiles for operators; functions on values, and the paths.

`GET` shows what is loaded and what was skipped; `POST .../validate` takes an archive (`application/x-gtar`) and says
what is wrong with it, without installing it; `POST .../install` puts it into the folder of archives, `.../rollback` the
one from before; `POST .../reload` reads the folder again.

Source: interface specification "Vendor profile administration"; decisions section 3; docs/reference/vendor-profiles.md.
"""

from __future__ import annotations

from klein import Klein
from twisted.web.iweb import IRequest

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.ports import Answer, Json, Notifier, Request
from ipf.ports.messages.profiles import ProfileAdmin
from ipf.wire.admin.klein_app import Routes, Run
from ipf.wire.admin.mapping.maps import MAPPING
from ipf.wire.admin.messages import parameters_of
from ipf.wire.http.serving import JSON

_MOST_NAMED = 5


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

        @app.route("/api/profiles/install", methods=["POST"])
        async def installed(web: IRequest) -> bytes:
            return await run(web, lambda request: install(admin, notifier, request))

        @app.route("/api/profiles/rollback", methods=["POST"])
        async def rolled_back(web: IRequest) -> bytes:
            return await run(web, lambda request: roll_back(admin, notifier, request))

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


async def install(admin: ProfileAdmin, notifier: Notifier, request: Request) -> Answer:
    """`POST /admin/api/profiles/install?file=NAME`: an archive into the folder; 422 when it cannot be used."""
    if not request.body:
        raise Problem(Category.REQUIRED, "the body must be the archive of a profile (application/x-gtar)")
    return _changed(await admin.install(_file(request), request.body), notifier)


async def roll_back(admin: ProfileAdmin, notifier: Notifier, request: Request) -> Answer:
    """`POST /admin/api/profiles/rollback?file=NAME`: the archive from before; a second call undoes the first."""
    return _changed(await admin.roll_back(_file(request)), notifier)


def _file(request: Request) -> str:
    file = parameters_of(request).get("file", "")
    if not file:
        raise Problem(Category.REQUIRED, "the parameter file names the archive in the folder", "file")
    return file


def _changed(found: Json, notifier: Notifier) -> Answer:
    """The profiles in use, or 422 with what is wrong."""
    notifier.notify(MAPPING)
    if "loaded" in found:
        return _answer(found)
    errors = [f"{one['path']}: {one['message']}" for one in found["problems"] if one["severity"] == "error"]
    text = f"nothing was changed: {'; '.join(errors[:_MOST_NAMED]) or 'a case fails'}"
    return Answer(422, dumps({"error": "invalid_profile", "message": text, **found}), (), JSON)


def _answer(body: Json) -> Answer:
    return Answer(200, dumps(body), (), JSON)
