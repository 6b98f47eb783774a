"""The remote FHIR server (`IPF_FHIR_URL`) as the store of converted messages: each unit is a transaction Bundle.

Units are posted one after another, so that the messages of a patient stay in order.  A remote server has no receipts:
after a crash a unit is posted again, and the conditions of its entries make the repeat a no-op.  What its response
names is recorded before the result leaves: these are the effects of the message.

Every failure, including an unreachable server and a refused token, is Problem UPSTREAM; the message is retried with
backoff.  The text says what the OperationOutcome of that server says (`fhir/model/issues.py`).

Source: decisions section 1; https://hl7.org/fhir/R4/http.html#transaction.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from ipf.errors import Category, Problem
from ipf.fhir.model.issues import issues_text
from ipf.fhir.model.json import dumps, loads
from ipf.mapping.bundle.entry_json import entry_as_json
from ipf.ports import Clock, Json, WrittenVersion
from ipf.ports.queries.search import Query
from ipf.rest.write.unit import Entry, Method, Unit, UnitResult

Post = Callable[[bytes, str], Awaitable[tuple[int, bytes]]]
"""Posts a Bundle with a correlation id; status and body.  Problem UPSTREAM when there is no response."""

Record = Callable[[str, str, Sequence[WrittenVersion]], Awaitable[None]]
"""Records the versions that a response names: tenant, correlation id, versions.  StoreUnreachable."""

_VERBS = {Method.CREATE: "POST", Method.UPDATE: "PUT", Method.DELETE: "DELETE"}
_LOCATION = re.compile(
    r"(?:^|/)(?P<kind>[A-Z][A-Za-z]+)/(?P<id>[A-Za-z0-9.-]{1,64})(?:/_history/(?P<version>[A-Za-z0-9.-]{1,64}))?$"
)
_TAG = re.compile(r'W/"(?P<version>[A-Za-z0-9.-]{1,64})"')


class RemoteStore:
    """Stores units at the remote FHIR server."""

    def __init__(self, post: Post, record: Record, clock: Clock) -> None:
        self._post = post
        self._record = record
        self._clock = clock

    async def submit(self, units: Sequence[Unit]) -> list[UnitResult | Problem]:
        """Store each unit completely or not at all; one result or Problem per unit, in order.

        StoreUnreachable: what a response names could not be recorded.  The units are posted again.
        """
        return [await self._submit(unit) for unit in units]

    async def _submit(self, unit: Unit) -> UnitResult | Problem:
        try:
            status, body = await self._post(dumps(bundle_of(unit)), unit.correlation_id)
        except Problem as problem:
            return problem
        if status == 200:
            await self._record(unit.tenant, unit.correlation_id, named_in(unit.entries, body, self._clock()))
            return UnitResult()
        text = issues_text(body)
        return Problem(Category.UPSTREAM, f"the FHIR server responded with {status}{f': {text}' if text else ''}")


def named_in(entries: Sequence[Entry], body: bytes, now: datetime) -> list[WrittenVersion]:
    """The versions that a transaction-response names, in the order of its entries; another body names none."""
    try:
        answers: Any = loads(body)["entry"]
        responses = [one["response"] for one in answers]
    except (Problem, KeyError, TypeError):
        return []
    named = [_named(entry, found, now) for entry, found in zip(entries, responses, strict=False)]
    return [one for one in named if one is not None]


def _named(entry: Entry, response: Any, now: datetime) -> WrittenVersion | None:
    if not isinstance(response, dict):
        return None
    place = _LOCATION.search(str(response.get("location", "")))
    kind, id_, version = place.groups() if place else (entry.resource_type, entry.id, None)
    if id_ is None:
        return None
    tag = _TAG.fullmatch(str(response.get("etag", "")))
    version = version or (tag["version"] if tag else "")
    created = str(response.get("status", "")).startswith("201")
    existing = "found" if entry.method is Method.CREATE else "updated"
    action = "deleted" if entry.method is Method.DELETE else "created" if created else existing
    return WrittenVersion(kind, id_, version, action, _moment(response.get("lastModified")) or now)


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None


def bundle_of(unit: Unit) -> Json:
    """The unit as a transaction Bundle."""
    return {"resourceType": "Bundle", "type": "transaction", "entry": [_entry(entry) for entry in unit.entries]}


def _entry(entry: Entry) -> Json:
    if entry.identity is not None:
        return entry_as_json(entry)
    kind, condition = entry.resource_type, _search(entry.condition)
    request: Json = {"method": _VERBS[entry.method], "url": kind}
    if entry.method is Method.CREATE:
        if condition:
            request["ifNoneExist"] = condition
    elif condition:
        request["url"] = f"{kind}?{condition}"
    else:
        request["url"] = f"{kind}/{entry.id}"
    if entry.if_match is not None:
        request["ifMatch"] = f'W/"{entry.if_match}"'
    found: Json = {"request": request}
    if entry.full_url is not None:
        found["fullUrl"] = entry.full_url
    if entry.resource is not None:
        found["resource"] = entry.resource
    return found


def _search(query: Query | None) -> str:
    if query is None:
        return ""
    return urlencode([(term.name, term.value) for term in query.terms], safe=":/|,$")
