"""`/admin/api/profiles`: vendor profiles for operators; functions on values, and the paths.

`GET` shows what is loaded and what was skipped; `POST .../validate` takes an archive (`application/x-gtar`) and says
what is wrong with it, without installing it; `POST .../install` puts it into the folder of archives, `.../rollback` the
one from before; `POST .../reload` reads the folder again.

Source: interface specification "Vendor profile administration"; decisions section 3; docs/reference/vendor-profiles.md.
"""

from __future__ import annotations

from typing import NamedTuple

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.ports import Answer, Json, Notifier, Request
from ipf.ports.messages.profiles import ProfileAdmin
from ipf.wire.admin.mapping.maps import MAPPING
from ipf.wire.admin.messages import parameters_of
from ipf.wire.admin.route import Mounted, Role, Route, WhenMasked, query
from ipf.wire.admin.schemas.base import TEXT
from ipf.wire.http.serving import JSON

_MOST_NAMED = 5


class Profiles(NamedTuple):
    """What the operations use."""

    admin: ProfileAdmin
    notifier: Notifier


def routes(admin: ProfileAdmin, notifier: Notifier) -> Mounted[Profiles]:
    """The paths below `/admin/api/profiles`."""
    return Mounted(ROUTES, Profiles(admin, notifier))


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


_FILE = query("file", TEXT, "name of the archive in the folder")
_ARCHIVE = ("application/x-gtar", {"type": "string", "format": "binary"})
ROUTES: tuple[Route[Profiles], ...] = (
    Route(
        "GET", "/api/profiles", "listProfiles", "Vendor profiles in use",
        lambda of, _, __: describe(of.admin), "Profiles",
    ),
    Route(
        "POST", "/api/profiles/validate", "validateProfile", "Check the archive of a vendor profile",
        lambda of, request, _: validate(of.admin, request), "ProfileCheck", Role.OPERATOR, WhenMasked.PAGE,
        refusals=["413"], sends=_ARCHIVE,
    ),
    Route(
        "POST", "/api/profiles/install", "installProfile", "Use an archive",
        lambda of, request, _: install(of.admin, of.notifier, request), "Profiles", Role.ADMIN, WhenMasked.PAGE,
        parameters=[_FILE], refusals=["413", "422", "503"], sends=_ARCHIVE,
    ),
    Route(
        "POST", "/api/profiles/rollback", "rollBackProfile", "Use the archive from before",
        lambda of, request, _: roll_back(of.admin, of.notifier, request), "Profiles", Role.ADMIN, WhenMasked.PAGE,
        parameters=[_FILE], refusals=["404", "422", "503"],
    ),
    Route(
        "POST", "/api/profiles/reload", "reloadProfiles", "Read the folder of profiles again",
        lambda of, _, __: reload(of.admin, of.notifier), "Profiles", Role.ADMIN, WhenMasked.PAGE, refusals=["422"],
    ),
)  # fmt: skip
