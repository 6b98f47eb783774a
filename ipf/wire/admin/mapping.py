"""Maps as operators see them: what is installed, reload, and the trace of a stored message; functions on values."""

from __future__ import annotations

from ipf.fhir.model.json import dumps
from ipf.ports import Answer, Json, MappingAdmin, Notifier
from ipf.wire.admin.messages import JSON, row_id

MAPPING_BELL = "mapping"


async def describe(desk: MappingAdmin) -> Answer:
    """`GET /admin/mapping`."""
    return _answer(await desk.describe())


async def reload(desk: MappingAdmin, notifier: Notifier) -> Answer:
    """`POST /admin/mapping/reload`: 422 names file and line of what is broken, and nothing has changed."""
    found = await desk.reload()
    notifier.notify(MAPPING_BELL)
    return _answer(found)


async def trace(desk: MappingAdmin, message_id: str) -> Answer:
    """`GET /admin/messages/{id}/trace`: mapped again with a trace; nothing is changed."""
    return _answer(await desk.trace(row_id(message_id)))


def _answer(body: Json) -> Answer:
    return Answer(200, dumps(body), (), JSON)
