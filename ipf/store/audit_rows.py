"""Audit records in, the statement that stores them out: column by column, as JSON lists.

PostgreSQL reads twenty lists faster than as many objects with twenty members each, and what is the same in all records
(most columns, of a batch of reads) stands in the statement once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

import orjson

from ipf.ports.audit import Audit, keys_of
from ipf.ports.mapping import Origin
from ipf.store.quoting import json_literal

_COLUMNS: tuple[tuple[str, str], ...] = (
    ("partition_id", "smallint"), ("id", "uuid"), ("recorded_at", "timestamptz"), ("duration_ms", "integer"),
    ("surface", "text"), ("interaction", "text"), ("action", "text"), ("outcome", "smallint"), ("status", "smallint"),
    ("agent", "text"), ("agent_name", "text"), ("issuer", "text"), ("user_reference", "text"), ("address", "text"),
    ("correlation_id", "text"), ("target", "text"), ("entities", "text"), ("patients", "text"), ("keys", "bigint[]"),
    ("details", "text"),
)  # fmt: skip
_INTO = ", ".join(name for name, _ in _COLUMNS)
_NUL = b"\\u0000"


def append_sql(audits: Sequence[Audit], partition: Callable[[str], int]) -> str:
    """INSERT of these records, at least one; those that are there already stay.  `partition`: number of a tenant."""
    chosen, names, lists = [], [], []
    for (name, kind), values in zip(_COLUMNS, zip(*[_row(one, partition) for one in audits], strict=True), strict=True):
        if values.count(values[0]) == len(values):
            chosen.append(f"({_json(values[:1])}::json ->> 0)::{kind}")
        else:
            chosen.append(f"r.{name}::{kind}")
            names.append(name)
            lists.append(f"json_array_elements_text({_json(values)})")
    rows = f" FROM ROWS FROM ({', '.join(lists)}) AS r({', '.join(names)})" if lists else ""
    return f"INSERT INTO audit_events ({_INTO}) SELECT {', '.join(chosen)}{rows} ON CONFLICT DO NOTHING"


def origin_of(text: str) -> Origin | None:
    """What a vendor profile added, from its column."""
    if not text:
        return None
    agent_system, source_system, rows = orjson.loads(text)
    return Origin(agent_system, source_system, tuple((name, value) for name, value in rows))


def hashed(key: str) -> int:
    """64 bits of a hash: numbers are smaller than references and quicker to sort into an index than texts."""
    return int.from_bytes(blake2b(key.encode("utf-8", "replace"), digest_size=8).digest(), "big", signed=True)


def _row(audit: Audit, partition: Callable[[str], int]) -> tuple[object, ...]:
    return (
        partition(audit.tenant), audit.id, audit.recorded_at, audit.duration_ms, audit.surface, audit.interaction,
        audit.action, audit.outcome, audit.status, audit.agent, audit.agent_name, audit.issuer, audit.user,
        audit.address, audit.correlation_id, audit.target, " ".join(audit.entities), " ".join(audit.patients),
        f"{{{','.join([str(hashed(key)) for key in keys_of(audit)])}}}",
        "" if audit.origin is None else _origin_text(audit.origin),
    )  # fmt: skip


def _origin_text(origin: Origin) -> str:
    rows = [[_sound(name), _sound(text)] for name, text in origin.details]
    return orjson.dumps([_sound(origin.agent_system), _sound(origin.source_system), rows]).decode()


def _json(values: Sequence[object]) -> str:
    """A list as a JSON literal that PostgreSQL can hold: no NUL, no lone surrogates."""
    try:
        text = orjson.dumps(values)
    except TypeError:
        text = _NUL
    if _NUL in text:
        text = orjson.dumps([_sound(value) for value in values])
    return json_literal(text.decode())


def _sound(value: object) -> object:
    return value.replace("\0", " ").encode("utf-8", "replace").decode() if isinstance(value, str) else value
