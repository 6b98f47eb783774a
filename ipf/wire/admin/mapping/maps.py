"""Installed maps, their reload, and the trace of a stored message; functions on values."""

from __future__ import annotations

from ipf.fhir.model.json import dumps
from ipf.ports import Answer, Json, MappingAdmin, Notifier
from ipf.wire.admin.messages import row_id
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
