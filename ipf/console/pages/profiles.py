"""`/profiles`: vendor profiles in use and skipped ones; an archive is checked, installed, and rolled back."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from ipf.console.serving.backend import BackendRefused, decoded
from ipf.console.serving.web import Route, View, redirect
from ipf.fhir.model.json import loads
from ipf.ports import Answer
from ipf.wire.admin.route import Role

_ARCHIVE = "application/x-gtar"
_CANNOT_BE_USED = 422


async def profiles(view: View) -> Answer:
    """What is in use, what is skipped and why."""
    return view.page("profiles.html", found=await view.get("/admin/api/profiles"))


async def check(view: View) -> Answer:
    """`POST /profiles/check`, the archive as body: a part of the page: its findings and cases."""
    reply = await view.upload("/admin/api/profiles/validate", _ARCHIVE)
    return view.page("profile_check.html", check=_check_of(decoded(reply)), file=view.parameters.get("file", ""))


async def install(view: View) -> Answer:
    """`POST /profiles/install?file=`, the archive as body: a part of the page: that it is in use, or why not."""
    file = view.parameters.get("file", "")
    reply = await view.upload("/admin/api/profiles/install", _ARCHIVE, file=file)
    if reply.status == _CANNOT_BE_USED:
        return view.page("profile_check.html", check=_check_of(loads(reply.body)), file=file)
    decoded(reply)
    return view.page("profile_installed.html", file=file)


async def roll_back(view: View) -> Answer:
    """`POST /profiles/rollback`."""
    query = urlencode({"file": view.form.get("file", "")})
    await view.send("POST", f"/admin/api/profiles/rollback?{query}")
    return redirect("/profiles")


async def reload(view: View) -> Answer:
    """`POST /profiles/reload`."""
    await view.send("POST", "/admin/api/profiles/reload")
    return redirect("/profiles")


def _check_of(body: dict[str, Any]) -> dict[str, Any]:
    """The answer of a check; one that was made after installing has no cases."""
    if "problems" not in body:
        raise BackendRefused(_CANNOT_BE_USED, str(body.get("message", "")))
    return {"profile": None, "tests": {"passed": 0, "failed": 0, "cases": []}, "mappings": [], **body}


ROUTES = (
    Route("GET", "/", Role.VIEWER, profiles),
    Route("POST", "/check", Role.OPERATOR, check),
    Route("POST", "/install", Role.ADMIN, install),
    Route("POST", "/rollback", Role.ADMIN, roll_back),
    Route("POST", "/reload", Role.ADMIN, reload),
)
