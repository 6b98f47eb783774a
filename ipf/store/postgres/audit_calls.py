"""Audit records as the statements that insert them (functions of the schema).

One statement sends its records as one JSON text: a list of contexts, each with its records, so that PostgreSQL parses a
shared context once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from ipf.ports.audit.records import Audit, AuditContext, agent_keys, unversioned
from ipf.ports.messages.mapping import Origin
from ipf.store.postgres.connection import REFUSED
from ipf.store.postgres.quoting import literal


def insert(audits: Iterable[Audit], partitions: Mapping[str, int]) -> str:
    """The statement that inserts these records, or fails."""
    return f"SELECT insert_audit({literal(_json(audits, partitions))})"


def note(audits: Iterable[Audit], partitions: Mapping[str, int]) -> str:
    """The statement that inserts these records under a savepoint, or warns with `REFUSED` and the reason."""
    return f"SELECT note_audit({literal(_json(audits, partitions))})"


def refuse(reason: str) -> str:
    """The statement that only warns, as `note` does: the records could not be sent."""
    return f"DO $do$ BEGIN RAISE WARNING '{REFUSED}%', {literal(reason)}; END $do$"


def refusal(warnings: Iterable[str]) -> str:
    """Why the records of a transaction were not written; "" when they were."""
    return next((one.partition(REFUSED)[2].strip() for one in warnings if REFUSED in one), "")


def _json(audits: Iterable[Audit], partitions: Mapping[str, int]) -> str:
    """The records as JSON.  NUL and lone surrogates are replaced: PostgreSQL cannot store them."""
    contexts: dict[AuditContext, list[dict[str, Any]]] = {}
    for audit in audits:
        contexts.setdefault(audit.context, []).append(_record(audit))
    rows = [_context(context, partitions[context.tenant], records) for context, records in contexts.items()]
    try:
        text = orjson.dumps(rows).decode()
    except TypeError:  # a lone surrogate
        text = ""
    if not text or "\\u0000" in text:
        text = orjson.dumps(_storable(rows)).decode()
    return text


def _context(context: AuditContext, partition: int, records: list[dict[str, Any]]) -> dict[str, Any]:
    return {**context._asdict(), "partition_id": partition, "keys": agent_keys(context), "records": records}


def _record(audit: Audit) -> dict[str, Any]:
    _, at, _, duration_ms, correlation_id, target, entities, patients, origin, request_id = audit
    about = {unversioned(one) for one in entities}
    about.update(patients)
    return {
        "at": at, "id": audit.id, "duration_ms": duration_ms, "correlation_id": correlation_id, "target": target,
        "entities": entities, "patients": patients, "origin": None if origin is None else _columns(origin),
        "request_id": request_id, "keys": [f"e:{one}" for one in about],
    }  # fmt: skip


def _columns(origin: Origin) -> dict[str, Any]:
    details = [list(detail) for detail in origin.details]
    return {"agent_system": origin.agent_system, "source_system": origin.source_system, "details": details}


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")
    if isinstance(value, dict):
        return {name: _storable(one) for name, one in value.items()}
    return [_storable(one) for one in value] if isinstance(value, list | tuple) else value
