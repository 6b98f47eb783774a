"""Reads audit records of earlier releases, which packed up to 256 records into one row of `audit_blocks`.

`kinds` are JSON lists, the fields of `ports.audit.records.AuditContext` without tenant and surface.  `body` is a JSON
list of columns, compressed with zlib unless it begins with `[`: indexes into `kinds`, times (milliseconds; all but
the first as differences from it), id suffixes, durations, correlation ids, targets, entities, patients, origins.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import orjson

from ipf.ports.audit.records import Audit, AuditContext
from ipf.ports.messages.mapping import Origin


def unpacked(tenant: str, surface: str, kinds: Iterable[str], body: bytes) -> list[Audit]:
    """The records of a row."""
    contexts = [AuditContext(tenant, surface, *orjson.loads(context)) for context in kinds]
    numbers, ats, *columns, origins = orjson.loads(body if body[:1] == b"[" else zlib.decompress(body))
    times = [ats[0], *(ats[0] + later for later in ats[1:])]
    return [
        Audit(contexts[number], *own, tuple(entities), tuple(patients), _origin(origin))  # type: ignore[call-arg]
        for number, *own, entities, patients, origin in zip(
            numbers, times, *columns, origins or [None] * len(numbers), strict=True
        )
    ]


def _origin(columns: Any) -> Origin | None:
    if columns is None:
        return None
    agent_system, source_system, details = columns
    return Origin(agent_system, source_system, tuple((name, value) for name, value in details))
