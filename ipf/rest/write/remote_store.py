"""Converted messages stored at a FHIR server elsewhere (`IPF_FHIR_URL`): each unit is posted as a transaction Bundle.

What arrives: units, as `rest/write/commit.py` takes them.  What leaves: one POST for each, one after another, since
units of
a patient come in order; a result or a Problem for each.  There are no receipts at a server elsewhere: after a crash a
unit is posted again, and it is the conditions of its entries that keep the repeat from changing anything.

A server that cannot be reached, is too busy or refuses the token is Problem UPSTREAM, and so is every other refusal:
the row is tried again with backoff.  Of an OperationOutcome only codes and places are kept, since its texts may quote a
patient's data.  Source: decisions section 1; https://hl7.org/fhir/R4/http.html#transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlencode

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.ports import Json
from ipf.ports.search import Query
from ipf.rest.write.unit import Entry, Method, Unit, UnitResult

Post = Callable[[bytes, str], Awaitable[tuple[int, bytes]]]
"""A Bundle and its correlation id to status and body.  Problem UPSTREAM when there is no answer."""

_VERBS = {Method.CREATE: "POST", Method.UPDATE: "PUT", Method.DELETE: "DELETE"}
_MOST_ISSUES = 5


class RemoteStore:
    """The far end of the convert stage."""

    def __init__(self, post: Post) -> None:
        self._post = post

    async def submit(self, units: Sequence[Unit]) -> list[UnitResult | Problem]:
        """Store every unit, whole or not at all; one result or Problem for each, in order."""
        return [await self._submit(unit) for unit in units]

    async def _submit(self, unit: Unit) -> UnitResult | Problem:
        try:
            status, body = await self._post(dumps(bundle_of(unit)), unit.correlation_id)
        except Problem as problem:
            return problem
        if status == 200:
            return UnitResult()
        return Problem(Category.UPSTREAM, f"the FHIR server answered {status}{_said(body)}")


def bundle_of(unit: Unit) -> Json:
    """The transaction Bundle that asks for what the unit asks for."""
    return {"resourceType": "Bundle", "type": "transaction", "entry": [_entry(entry) for entry in unit.entries]}


def _entry(entry: Entry) -> Json:
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


def _said(body: bytes) -> str:
    """`: code at place` of the first issues of an OperationOutcome; empty for anything else."""
    try:
        issues: Any = loads(body)["issue"]
        texts = [f"{one['code']} at {', '.join(map(str, one.get('expression', ['?'])))}" for one in issues]
    except (Problem, KeyError, TypeError, AttributeError):
        return ""
    return f": {'; '.join(texts[:_MOST_ISSUES])[:300]}"
