"""Audit records as rows of `audit_records`, and back; filters as SQL.

Records of one insert travel as one JSON text: a list of kinds, each with its records, so that what many records have in
common is read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from ipf.ports.audit import Audit, AuditFilter, Kind, agent_keys, base_of, millisecond_of, moment_of
from ipf.ports.mapping import Origin
from ipf.store.postgres.driver import Row
from ipf.store.postgres.quoting import Value, literal

INSERT = """
INSERT INTO audit_records (partition_id, surface, recorded_at, id, interaction, action, outcome, status, agent,
    agent_name, issuer, user_reference, address, duration_ms, correlation_id, target, entities, patients, origin, keys)
SELECT k.partition_id, k.surface, timestamptz 'epoch' + r.at * interval '1 millisecond', r.id, k.interaction, k.action,
    k.outcome, k.status, k.agent, k.agent_name, k.issuer, k."user", k.address, r.duration_ms, r.correlation_id,
    r.target, r.entities, r.patients, r.origin, r.keys || k.keys
FROM json_to_recordset({kinds}) AS k (partition_id smallint, surface text, interaction text, action text,
    outcome smallint, status smallint, agent text, agent_name text, issuer text, "user" text, address text,
    keys text[], records json),
json_to_recordset(k.records) AS r (at bigint, id uuid, duration_ms integer, correlation_id text, target text,
    entities text[], patients text[], origin jsonb, keys text[])
ON CONFLICT DO NOTHING"""

COLUMNS = """a.surface, a.recorded_at, a.id::text, a.interaction, a.action, a.outcome, a.status, a.agent, a.agent_name,
    a.issuer, a.user_reference, a.address, a.duration_ms, a.correlation_id, a.target, a.entities, a.patients,
    a.origin::text"""

_PREFIXES = ("e:", "a:")


def insert(audits: Iterable[Audit], partitions: Mapping[str, int]) -> str:
    """The statement that inserts these records.  NUL and lone surrogates are replaced: PostgreSQL cannot store them."""
    kinds: dict[Kind, list[dict[str, Any]]] = {}
    for audit in audits:
        kinds.setdefault(audit.kind, []).append(_record(audit))
    rows = [_kind(kind, partitions[kind.tenant], records) for kind, records in kinds.items()]
    try:
        text = orjson.dumps(rows).decode()
    except TypeError:  # a lone surrogate
        text = ""
    if not text or "\\u0000" in text:
        text = orjson.dumps(_storable(rows)).decode()
    return INSERT.format(kinds=literal(text))


def _kind(kind: Kind, partition: int, records: list[dict[str, Any]]) -> dict[str, Any]:
    return {**kind._asdict(), "partition_id": partition, "keys": agent_keys(kind), "records": records}


def _record(audit: Audit) -> dict[str, Any]:
    _, at, _, duration_ms, correlation_id, target, entities, patients, origin = audit
    about = {base_of(one) for one in entities}
    about.update(patients)
    return {
        "at": at, "id": audit.id, "duration_ms": duration_ms, "correlation_id": correlation_id, "target": target,
        "entities": entities, "patients": patients, "origin": None if origin is None else _columns(origin),
        "keys": [f"e:{one}" for one in about],
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


def audit_of(tenant: str, row: Row) -> Audit:
    """The record of a row of `COLUMNS`."""
    surface, recorded_at, id_, interaction, action, outcome, status, agent, name, issuer, user, address, *own = row
    duration_ms, correlation_id, target, entities, patients, origin = own
    kind = Kind(tenant, surface, interaction, action, outcome, status, agent, name, issuer, user, address)
    return Audit(
        kind, millisecond_of(recorded_at), id_[14:], duration_ms, correlation_id, target, tuple(entities),
        tuple(patients), None if origin is None else _origin(orjson.loads(origin)),
    )  # fmt: skip


def _origin(columns: Mapping[str, Any]) -> Origin:
    details = tuple((name, value) for name, value in columns["details"])
    return Origin(columns["agent_system"], columns["source_system"], details)


def conditions(wanted: AuditFilter) -> list[str]:
    """What holds for the rows `a` that pass a filter."""
    found = [] if wanted.surface is None else [f"a.surface = {literal(wanted.surface)}"]
    if wanted.since is not None:
        found.append(f"a.recorded_at >= {literal(wanted.since)}")
    if wanted.until is not None:
        found.append(f"a.recorded_at <= {literal(wanted.until)}")
    if wanted.ids is not None:
        found += [_among("a.id", wanted.ids, "uuid"), _among("a.recorded_at", map(_moment, wanted.ids), "timestamptz")]
    sets: Iterable[tuple[str, frozenset[Any] | None, str]] = (
        ("agent", wanted.agents, "text"), ("action", wanted.actions, "text"), ("outcome", wanted.outcomes, "smallint"),
        ("interaction", wanted.interactions, "text"),
    )  # fmt: skip
    found += [_among(f"a.{column}", values, kind) for column, values, kind in sets if values is not None]
    return found + [_one_of(keys) for keys in wanted.keys]


def are_rare(wanted: AuditFilter) -> bool:
    """Whether the index of keys, or that of correlation ids, finds few rows: a filter names more than who did it."""
    return any(not all(key.startswith("a:") for key in keys) for keys in wanted.keys)


def behind(id_: str, *, oldest_first: bool) -> str:
    """What holds for the rows behind this one."""
    sign = ">" if oldest_first else "<"
    return f"(a.recorded_at, a.id) {sign} ({literal(_moment(id_))}::timestamptz, {literal(id_)}::uuid)"


def _one_of(keys: Sequence[str]) -> str:
    found = [key for key in keys if key.startswith(_PREFIXES)]
    tests = [f"a.keys && {_array(found, 'text')}"] if found else []
    correlation_ids = [key[2:] for key in keys if key.startswith("c:")]
    if correlation_ids:
        tests.append(_among("a.correlation_id", correlation_ids, "text"))
    return f"({' OR '.join(tests) or 'false'})"


def _among(column: str, values: Iterable[Value], kind: str) -> str:
    return f"{column} = ANY ({_array(values, kind)})"


def _array(values: Iterable[Value], kind: str) -> str:
    return f"ARRAY[{','.join(map(literal, values))}]::{kind}[]"


def _moment(id_: str) -> datetime:
    """When the record of an id was made."""
    return moment_of(int(id_[:8] + id_[9:13], 16))


def months_of(audits: Iterable[Audit]) -> set[datetime]:
    """The first days of the months of these records."""
    days = {audit.at // 86_400_000 for audit in audits}
    return {datetime(day.year, day.month, 1, tzinfo=UTC) for day in (moment_of(one * 86_400_000) for one in days)}
