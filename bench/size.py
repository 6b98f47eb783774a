"""Large tables: what is stored takes how much, and what removing a part of it costs, row by row and as a partition.

`IPF_BENCH_VERSIONS` (1,000,000) versions of a fifth as many resources, and as many messages with 100 words each.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from bench.receive import postgres_socket, service
from bench.report import line
from tests.traffic.psql import psql

_VERSIONS = """
INSERT INTO resources SELECT n, 1, 'Encounter', md5(n::text), 5, timestamptz '2022-01-03' + n * interval '1 minute',
    false FROM generate_series(1, {resources}) n;
INSERT INTO resource_versions SELECT n, v, 1,
    timestamptz '2022-01-01' + n * interval '1 minute' + (v - 1) * interval '12 hours', 'PUT', false,
    gen_random_uuid(), '{{"resourceType":"Encounter","x":"' || repeat(md5((n * v)::text), 26) || '"}}'
    FROM generate_series(1, {resources}) n, generate_series(1, 5) v"""
_MESSAGES = """
INSERT INTO message_bodies (tenant, received_at, source_protocol, source_system, source_id, message_type,
    correlation_id, listener, charset, raw_content_type, raw_message)
SELECT 'default', timestamptz '2022-01-01' + n * interval '1 second', 'HL7V2_MLLP', 'HIS', 'SIZE' || n, 'ADT_A01',
    gen_random_uuid(), 'mllp', 'utf-8', 'x-application/hl7-v2+er7', convert_to(repeat(md5(n::text), 32), 'UTF8')
FROM generate_series(1, {messages}) n;
INSERT INTO message_keys SELECT source_id, source_system, tenant, id FROM message_bodies;
INSERT INTO message_text SELECT id, array_to_tsvector(ARRAY(
    SELECT DISTINCT CASE WHEN i < 60 THEN 'w' || id * i % 2000 ELSE 'p' || id % 20000 * 50 + i END
    FROM generate_series(1, 100) i)) FROM message_bodies;
UPDATE message_index_state SET indexed_to = (SELECT max(id) FROM message_bodies)"""
_SIZE = """SELECT pg_size_pretty(sum(pg_table_size(relid))) || ', indexes '
    || pg_size_pretty(sum(pg_indexes_size(relid)))
    FROM (SELECT relid FROM pg_partition_tree('{table}') WHERE isleaf UNION SELECT '{table}'::regclass) t"""
_FORMER = """DELETE FROM resource_versions v USING resources r WHERE r.rid = v.rid AND v.version_id < r.version_id
    AND v.rid <= {some}"""


def size(folder: Path) -> None:
    """Sizes of 1,000,000 versions and 200,000 messages, and what it costs to remove a tenth."""
    versions = int(os.environ.get("IPF_BENCH_VERSIONS", "1000000"))
    rows = versions // 5
    with service(folder, IPF_WORKER_ENABLED="false") as one:
        socket = postgres_socket(one)

        def seconds(sql: str, database: str = "ipf") -> float:
            began = time.monotonic()
            for statement in sql.split(";;"):
                psql(socket, statement, database)
            return time.monotonic() - began

        line(f"fill {versions:,} versions", f"{seconds(_VERSIONS.format(resources=rows), 'fhir'):.1f} s")
        line(f"fill {rows:,} messages", f"{seconds(_MESSAGES.format(messages=rows)):.1f} s")
        seconds("VACUUM ANALYZE")
        seconds("VACUUM ANALYZE", "fhir")
        for table, database in (("resource_versions", "fhir"), ("message_bodies", "ipf"), ("message_text", "ipf")):
            line(table, psql(socket, _SIZE.format(table=table), database).strip())
        _removal(seconds, rows)


def _removal(seconds: Callable[..., float], rows: int) -> None:
    some = rows // 10
    text = f"DELETE FROM message_text WHERE message_id <= {some};; DELETE FROM message_bodies WHERE id <= {some}"
    deleted = seconds(text)
    vacuumed = seconds("VACUUM message_bodies, message_text")
    line(f"{some:,} messages row by row", f"{deleted:.2f} s", f"VACUUM {vacuumed:.2f} s")
    dropped = seconds("SELECT drop_message_partition(upper) FROM message_partitions ORDER BY upper LIMIT 1")
    line(f"the other {rows - some:,} as a partition", f"{dropped:.2f} s")
    deleted, vacuumed = seconds(_FORMER.format(some=some), "fhir"), seconds("VACUUM resource_versions", "fhir")
    line(f"{some * 4:,} former versions row by row", f"{deleted:.2f} s", f"VACUUM {vacuumed:.2f} s")
