"""What a database holds, in figures that can be compared: rows of each table, and a digest of the messages.

The same statements run under the snapshot of a backup and in the databases that were restored from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from ipf.store.postgres.connection import Connection
from ipf.store.postgres.quoting import joined, literal

BLOCK = 100_000
"""Ids of one block of messages."""
_STATES = 10_000  # compared with the receipts at a time

# Partitions count, not the tables that they belong to.
_TABLES = """
SELECT n.nspname, c.relname, format('%I.%I', n.nspname, c.relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname NOT IN ('information_schema', 'ipf_restore') AND n.nspname NOT LIKE 'pg\\_%'
ORDER BY 1, 2"""

# The sum of the first 60 bits of each message's SHA-256 does not depend on the order of the rows.
_MESSAGES = rf"""
SELECT id / {BLOCK}, count(*), min(id), max(id),
    sum(('x' || encode(substring(sha256(convert_to(concat_ws(E'\t', id, tenant, source_system, source_id, message_type,
        correlation_id), 'UTF8') || raw_message) FOR 8), 'hex'))::bit(60)::bigint)::text
FROM message_bodies GROUP BY 1 ORDER BY 1"""

_WITHOUT_STATE = (
    "SELECT count(*) FROM message_bodies b WHERE NOT EXISTS (SELECT FROM message_states s WHERE s.id = b.id)"
)
_WITHOUT_BODY = """
SELECT count(*) FROM message_states s WHERE NOT EXISTS
    (SELECT FROM message_bodies b WHERE b.id = coalesce(s.original_id, s.id))"""

# A message that was passed through has no map, and no receipt.
_DELIVERED = """
SELECT s.id, b.tenant, b.correlation_id::text,
    CASE WHEN s.original_id IS NULL THEN '' ELSE '/conversion/' || s.id END, s.delivered_at
FROM message_states s JOIN message_bodies b ON b.id = coalesce(s.original_id, s.id)
WHERE s.id > {after} AND s.status = 'DELIVERED' AND s.map_url IS NOT NULL ORDER BY s.id LIMIT {limit}"""
_WITHOUT_EFFECT = r"""
SELECT k.n FROM unnest(string_to_array({tenants}, E'\x1f'), string_to_array({ids}, E'\x1f'),
    string_to_array({keys}, E'\x1f')) WITH ORDINALITY AS k(tenant, id, key, n)
LEFT JOIN partitions p ON p.name = k.tenant
WHERE NOT EXISTS (SELECT FROM receipts r WHERE r.partition_id = p.id AND r.key = k.key)
    AND NOT EXISTS (SELECT FROM resource_versions v WHERE v.correlation_id = k.id::uuid)"""


class Block(NamedTuple):
    """Messages whose id divided by `BLOCK` is `number`."""

    number: int
    rows: int
    first: int
    last: int
    digest: str


class Uncovered(NamedTuple):
    """A message, or a further conversion of one, that is DELIVERED without an effect in the FHIR database."""

    id: int
    delivered_at: datetime


async def table_counts(connection: Connection) -> dict[str, int]:
    """Rows of each table: `name`, or `schema.name` outside of public."""
    counts = {}
    for schema, name, quoted in await connection.run(_TABLES):
        ((count,),) = await connection.run(f"SELECT count(*) FROM {quoted}")
        counts[name if schema == "public" else f"{schema}.{name}"] = int(count)
    return counts


async def message_blocks(inbox: Connection) -> list[Block]:
    """The messages in blocks of ids, with a digest of their payloads and keys."""
    return [Block(*row) for row in await inbox.run(_MESSAGES)]


async def torn_messages(inbox: Connection) -> tuple[int, int]:
    """Messages without a state, and states without a message: both 0 in a consistent database."""
    ((without_state,),) = await inbox.run(_WITHOUT_STATE)
    ((without_body,),) = await inbox.run(_WITHOUT_BODY)
    return int(without_state), int(without_body)


async def delivered_without_effect(inbox: Connection, fhir: Connection) -> tuple[int, list[Uncovered]]:
    """How many conversions are DELIVERED, and those of them with neither receipt nor resource in the FHIR database."""
    after, total, missing = 0, 0, []
    while rows := await inbox.run(_DELIVERED.format(after=literal(after), limit=_STATES)):
        keys = (f"message/{row[2]}{row[3]}" for row in rows)
        query = _WITHOUT_EFFECT.format(
            tenants=literal(joined(row[1] for row in rows)), ids=literal(joined(row[2] for row in rows)),
            keys=literal(joined(keys)),
        )  # fmt: skip
        missing += [Uncovered(rows[n - 1][0], rows[n - 1][4]) for (n,) in await fhir.run(query)]
        after, total = int(rows[-1][0]), total + len(rows)
    return total, missing


def differing_blocks(wanted: Sequence[Block], found: Sequence[Block]) -> Iterator[str]:
    """What differs, a sentence for each block."""
    theirs = {block.number: block for block in found}
    for block in wanted:
        other = theirs.pop(block.number, None)
        where = f"messages {block.first} to {block.last}"
        if other is None or other.rows != block.rows:
            yield f"{where}: {0 if other is None else other.rows} of {block.rows} are there"
        elif other != block:
            yield f"{where}: {block.rows} are there, but not all with their content"
    for block in theirs.values():
        yield f"messages {block.first} to {block.last}: {block.rows} are there, none should be"
