"""Rows of `audit_records` as audit records; filters as SQL.  `postgres/audit_calls.py` writes the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from ipf.ports.audit.records import Audit, AuditContext, AuditFilter, datetime_of, millisecond_of
from ipf.ports.messages.mapping import Origin
from ipf.store.postgres.driver import Row
from ipf.store.postgres.quoting import Value, literal

COLUMNS = """a.surface, a.recorded_at, a.id::text, a.interaction, a.action, a.outcome, a.status, a.agent, a.agent_name,
    a.issuer, a.user_reference, a.address, a.duration_ms, a.correlation_id, a.target, a.entities, a.patients,
    a.origin::text, a.purpose, a.request_id"""

_PREFIXES = ("e:", "a:")


def audit_of(tenant: str, row: Row) -> Audit:
    """The record of a row of `COLUMNS`."""
    surface, recorded_at, id_, interaction, action, outcome, status, agent, name, issuer, user, address, *own = row
    duration_ms, correlation_id, target, entities, patients, origin, purpose, request_id = own
    context = AuditContext(
        tenant, surface, interaction, action, outcome, status, agent, name, issuer, user, address, tuple(purpose)
    )
    return Audit(
        context, millisecond_of(recorded_at), id_[14:], duration_ms, correlation_id, target, tuple(entities),
        tuple(patients), None if origin is None else _origin(orjson.loads(origin)), request_id,
    )  # fmt: skip


def _origin(columns: Mapping[str, Any]) -> Origin:
    details = tuple((name, value) for name, value in columns["details"])
    return Origin(columns["agent_system"], columns["source_system"], details)


def conditions(wanted: AuditFilter) -> list[str]:
    """The SQL conditions of a filter on rows `a`."""
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
    found += [_among(f"a.{column}", values, sql_type) for column, values, sql_type in sets if values is not None]
    return found + [_one_of(keys) for keys in wanted.keys]


def is_selective(wanted: AuditFilter) -> bool:
    """Whether the index of keys or of correlation ids finds few rows: the filter has a key that is not an agent."""
    return any(not all(key.startswith("a:") for key in keys) for keys in wanted.keys)


def after_id(id_: str, *, oldest_first: bool) -> str:
    """The SQL condition of rows after this one."""
    sign = ">" if oldest_first else "<"
    return f"(a.recorded_at, a.id) {sign} ({literal(_moment(id_))}::timestamptz, {literal(id_)}::uuid)"


def _one_of(keys: Sequence[str]) -> str:
    found = [key for key in keys if key.startswith(_PREFIXES)]
    tests = [f"a.keys && {_array(found, 'text')}"] if found else []
    correlation_ids = [key[2:] for key in keys if key.startswith("c:")]
    if correlation_ids:
        tests.append(_among("a.correlation_id", correlation_ids, "text"))
    return f"({' OR '.join(tests) or 'false'})"


def _among(column: str, values: Iterable[Value], sql_type: str) -> str:
    return f"{column} = ANY ({_array(values, sql_type)})"


def _array(values: Iterable[Value], sql_type: str) -> str:
    return f"ARRAY[{','.join(map(literal, values))}]::{sql_type}[]"


def _moment(id_: str) -> datetime:
    """The time in an id."""
    return datetime_of(int(id_[:8] + id_[9:13], 16))


def months_of(audits: Iterable[Audit]) -> set[datetime]:
    """The first day of each month of these records."""
    days = {audit.at // 86_400_000 for audit in audits}
    return {datetime(day.year, day.month, 1, tzinfo=UTC) for day in (datetime_of(one * 86_400_000) for one in days)}
