"""`/admin/api/profiles`: vendor profiles for operators; functions on values, and the paths.

`GET` shows what is loaded and what was skipped; `POST .../validate` takes an archive (`application/x-gtar`) and says
what is wrong with it, without installing it; `POST .../reload` reads the folder of archives again.

Source: interface specification "Vendor profile administration"; decisions section 3; docs/profiles.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klein import Klein
from twisted.web.iweb import IRequest

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.ports import Answer, Json, Notifier, Request
from ipf.ports.profiles import ProfileAdmin
from ipf.wire.admin.mapping import MAPPING_BELL
from ipf.wire.admin.messages import JSON

Run = Callable[[IRequest, Callable[[Request], Any]], Any]


def routes(desk: ProfileAdmin, notifier: Notifier) -> Callable[[Klein, Run], None]:
    """What adds the paths to the application of the admin API."""

    def add(app: Klein, run: Run) -> None:
        @app.route("/api/profiles", methods=["GET"])
        async def shown(web: IRequest) -> bytes:
            found: bytes = await run(web, lambda _: describe(desk))
            return found

        @app.route("/api/profiles/validate", methods=["POST"])
        async def validated(web: IRequest) -> bytes:
            found: bytes = await run(web, lambda request: validate(desk, request))
            return found

        @app.route("/api/profiles/reload", methods=["POST"])
        async def reloaded(web: IRequest) -> bytes:
            found: bytes = await run(web, lambda _: reload(desk, notifier))
            return found

    return add


async def describe(desk: ProfileAdmin) -> Answer:
    """`GET /admin/api/profiles`."""
    return _answer(desk.describe())


async def validate(desk: ProfileAdmin, request: Request) -> Answer:
    """`POST /admin/api/profiles/validate`: 200 for every archive, valid or not; 400 for what is none, 413."""
    if not request.body:
        raise Problem(Category.REQUIRED, "the body must be the archive of a profile (application/x-gtar)")
    return _answer(await desk.validate(request.body))


async def reload(desk: ProfileAdmin, notifier: Notifier) -> Answer:
    """`POST /admin/api/profiles/reload`: what is broken is listed as skipped and replaces nothing."""
    found = await desk.reload()
    notifier.notify(MAPPING_BELL)
    return _answer(found)


def _answer(body: Json) -> Answer:
    return Answer(200, dumps(body), (), JSON)
