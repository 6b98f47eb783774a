"""Server-assigned elements of a resource (id, versionId, lastUpdated), and comparison of resources without them.

Source: https://hl7.org/fhir/R4/resource.html#Meta, https://hl7.org/fhir/R4/json.html (decimals keep their digits)
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from ipf.fhir.model.bundle import instant
from ipf.fhir.model.json import dumps
from ipf.ports import Json
from ipf.security.audit.rules import CLIENT, ORIGIN_SYSTEM, TYPE

_MARKS = ("versionId", "lastUpdated")
_instant = lru_cache(maxsize=64)(instant)  # one time serves a whole database transaction


def stamp(resource: Json, id: str, version_id: int, last_updated: datetime) -> Json:
    """A shallow copy with resourceType, id and meta first, and the server-assigned elements set.

    An AuditEvent is tagged as one that a client sent, whatever it says: those of the service are not stored here.
    """
    meta: Json = {"versionId": str(version_id), "lastUpdated": _instant(last_updated)}
    if resource["resourceType"] == TYPE:
        resource = _of_client(resource)
    if "meta" not in resource and "id" not in resource:
        return {"resourceType": None, "id": id, "meta": meta, **resource}
    sent = resource.get("meta")
    if sent:
        meta.update((name, value) for name, value in sent.items() if name not in _MARKS)
    stamped: Json = {"resourceType": None, "id": None, "meta": None, **resource}
    stamped["id"], stamped["meta"] = id, meta
    return stamped


def _of_client(audit_event: Json) -> Json:
    sent = audit_event.get("meta") or {}
    others = [one for one in sent.get("tag", ()) if one.get("system") != ORIGIN_SYSTEM]
    return {**audit_event, "meta": {**sent, "tag": [*others, {"system": ORIGIN_SYSTEM, "code": CLIENT}]}}


def is_equal_content(one: Json, other: Json) -> bool:
    """Whether two stamped resources are equal apart from versionId and lastUpdated; `1.0` and `1.00` differ."""
    first, second = _unmarked(one), _unmarked(other)
    return first == second and _written_alike(first, second)


def _unmarked(resource: Json) -> Json:
    meta = {name: value for name, value in resource["meta"].items() if name not in _MARKS}
    return {**resource, "meta": meta}


def _written_alike(one: Any, other: Any) -> bool:
    """Whether two equal values also have equal types and equal digits in numbers."""
    if type(one) is dict:
        return all(_written_alike(value, other[name]) for name, value in one.items())
    if type(one) is list:
        return all(map(_written_alike, one, other))
    if isinstance(one, Decimal) or isinstance(other, Decimal):
        return dumps(one) == dumps(other)
    return type(one) is type(other)
