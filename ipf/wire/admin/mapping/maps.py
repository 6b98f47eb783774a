"""Installed maps, their reload, and the trace of a stored message; functions on values."""

from __future__ import annotations

from typing import NamedTuple

from ipf.fhir.model.json import dumps
from ipf.ports import Answer, Json, MappingAdmin, Notifier
from ipf.wire.admin.messages import row_id
from ipf.wire.admin.route import Role, Route, WhenMasked
from ipf.wire.http.serving import JSON

MAPPING = "mapping"  # the topic of the notifier


async def describe(admin: MappingAdmin) -> Answer:
    """`GET /admin/mapping`."""
    return _answer(await admin.describe())


async def reload(admin: MappingAdmin, notifier: Notifier) -> Answer:
    """`POST /admin/mapping/reload`: 422 names file and line of the error, and the maps in use stay."""
    found = await admin.reload()
    notifier.notify(MAPPING)
    return _answer(found)


async def trace(admin: MappingAdmin, message_id: str) -> Answer:
    """`GET /admin/messages/{id}/trace`: the message is mapped again with a trace; nothing changes."""
    return _answer(await admin.trace(row_id(message_id)))


def _answer(body: Json) -> Answer:
    return Answer(200, dumps(body), (), JSON)


class Maps(NamedTuple):
    """What the operations use."""

    admin: MappingAdmin
    notifier: Notifier


ROUTES: tuple[Route[Maps], ...] = (
    Route("GET", "/mapping", "describeMapping", "Maps in use", lambda of, _, __: describe(of.admin), "Any"),
    Route(
        "POST", "/mapping/reload", "reloadMapping", "Read the maps again",
        lambda of, _, __: reload(of.admin, of.notifier), "Any", Role.ADMIN, WhenMasked.PAGE, refusals=["422"],
    ),
    Route(
        "GET", "/messages/{id}/trace", "messageTrace", "How its resources come to be; nothing is changed",
        lambda of, _, id: trace(of.admin, id), "Any", refusals=["404"],
    ),
)  # fmt: skip
