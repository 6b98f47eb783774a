"""The operator API on 1,000,000 messages while a feed runs: lists, effects, text search; and indexing.

The messages are put into the tables by SQL, each with a patient, a name and an order number of its own among words that
are in all of them; so are the resources that they made.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from bench.receive import fresh_messages, must_be_accepted, postgres_socket, service
from bench.report import line
from bench.senders import open_loop
from bench.senders import run as run_load
from tests.service_process import ROOT, ServiceProcess
from tests.traffic.messages import adt
from tests.traffic.psql import psql

ROWS = 1_000_000
TIMES = 100
FEED = 100

_MESSAGES = """
WITH sample AS (SELECT * FROM message_bodies ORDER BY id LIMIT 1), bodies AS (
    INSERT INTO message_bodies (tenant, received_at, source_protocol, source_system, source_id, message_type,
        correlation_id, ordering_key, listener, charset, raw_content_type, raw_message)
    SELECT tenant, received_at - (:rows - n) * interval '0.1 second' - interval '1 minute', source_protocol,
        'SYS' || n % 20, 'FILL' || n, CASE WHEN n % 100 = 0 THEN 'ORU_R01' ELSE message_type END, md5('c' || n)::uuid,
        n % 20000, listener, charset, raw_content_type,
        convert_to(replace(replace(replace(convert_from(raw_message, 'UTF8'), 'SAMPLE', 'MRN' || n % 100000),
            'Hansen', 'Family' || n % 5000), 'Trygg', 'ORD' || n), 'UTF8')
    FROM sample, generate_series(1, :rows) AS n ORDER BY n
    RETURNING id, tenant, received_at, ordering_key
)
INSERT INTO message_states
    (id, tenant, status, received_at, ordering_key, ready_at, delivered_at, last_attempt_at, last_error, map_url,
     transform_ms)
SELECT id, tenant, CASE WHEN id % 500 = 0 THEN 'DEAD_LETTER' ELSE 'DELIVERED' END::message_status, received_at,
       ordering_key, received_at, received_at, received_at,
       CASE WHEN id % 500 = 0 THEN 'matchbox: no rule for field ' || id % 7 END, 'urn:map|1', 2
FROM bodies
"""
_RESOURCES = (
    "SELECT setval('rid_blocks', 10000000)",
    "INSERT INTO resources SELECT 1000000 + n, 1, 'Encounter', 'e' || n, 1, now(), false "
    "FROM generate_series(1, :rows) n",
    "INSERT INTO resource_versions SELECT 1000000 + n, 1, 1, now(), 'PUT', false, md5('c' || n)::uuid, "
    '\'{"resourceType":"Encounter"}\' FROM generate_series(1, :rows) n',
    "VACUUM ANALYZE resources, resource_versions",
)


def admin(folder: Path) -> None:
    """Admin list and effects under 30 ms, text search under 200 ms (p99), on 1,000,000 rows while a feed runs."""
    with service(folder, IPF_LOG_LEVEL="WARN") as one:
        run_load(sample(one))
        began = time.perf_counter()
        fill(one, ROWS)
        line(f"{ROWS:,} messages and resources inserted", f"{time.perf_counter() - began:.0f} s")
        index(one)
        run_load(_measured(one))


def fill(one: ServiceProcess, rows: int) -> None:
    """Put messages like the one that `sample` sent, and resources, into the tables."""
    psql(postgres_socket(one), _MESSAGES.replace(":rows", str(rows)))
    psql(postgres_socket(one), "VACUUM ANALYZE")
    for statement in _RESOURCES:
        psql(postgres_socket(one), statement.replace(":rows", str(rows)), "fhir")


async def sample(one: ServiceProcess) -> None:
    """Send one message, and wait until it is converted."""
    run = await open_loop(one.mllp_port, 10, 1, 0.2, lambda: adt(f"S{time.monotonic_ns()}", "SAMPLE"))
    must_be_accepted(run)
    await asyncio.sleep(2)


def index(one: ServiceProcess) -> None:
    """Let the words of all messages be found."""
    socket = postgres_socket(one)
    before = int(psql(socket, "SELECT indexed_to FROM message_index_state"))
    began = time.perf_counter()
    url = f"postgresql://ipf@/ipf?host={quote(str(socket), safe='')}"
    subprocess.run([sys.executable, "-m", "bench.index_all", url], check=True, cwd=ROOT)
    seconds = time.perf_counter() - began
    rate = (int(psql(socket, "SELECT indexed_to FROM message_index_state")) - before) / seconds
    psql(socket, "VACUUM ANALYZE message_text, message_totals")
    sizes = psql(socket, "SELECT pg_size_pretty(pg_total_relation_size('message_text')) || ' of words, '"
                         " || pg_size_pretty(pg_total_relation_size('message_bodies')) || ' of messages'")  # fmt: skip
    line("indexing without pauses", f"{rate:,.0f} messages/s", sizes.strip())


async def _measured(one: ServiceProcess) -> None:
    feed = asyncio.ensure_future(open_loop(one.mllp_port, FEED, 8, 120, fresh_messages("F")))
    await asyncio.sleep(3)
    pick = random.Random(1)

    def number() -> int:
        return pick.randrange(1, ROWS)

    first = int(psql(postgres_socket(one), "SELECT min(id) FROM message_bodies WHERE source_id = 'FILL1'"))
    for what, target, path in (
        ("list, first page", 30, lambda: "?limit=50"),
        ("list, page 20", 30, lambda: "?limit=50&offset=1000"),
        ("list of DELIVERED", 30, lambda: "?status=DELIVERED"),
        ("list of DEAD_LETTER (2,000)", 30, lambda: "?status=DEAD_LETTER"),
        ("list of a sender (50,000)", 30, lambda: f"?source_system=SYS{number() % 20}"),
        ("list of a sender and type", 30, lambda: f"?source_system=SYS{number() % 20}&message_type=ADT_A01"),
        ("by control id", 30, lambda: f"?source_id=FILL{number()}"),
        ("one message", 30, lambda: f"/{first + number()}"),
        ("effects", 30, lambda: f"/{first + number()}/effects"),
        ("by patient (10)", 30, lambda: f"?patient=MRN{number() % 100000}"),
        ("text: a number in one message", 200, lambda: f"?text=ORD{number()}"),
        ("text: a name (200)", 200, lambda: f"?text=Family{number() % 5000}"),
        ("text: two words (in all)", 200, lambda: "?text=angina%20penicillin"),
        ("text: in all, and DEAD_LETTER", 200, lambda: "?text=angina&status=DEAD_LETTER"),
        ("text: in all, and DELIVERED", 200, lambda: "?text=angina&status=DELIVERED"),
        ("text: beginning of a word (2,220)", 200, lambda: f"?text=Family{number() % 500}*"),
        ("text: in no message", 200, lambda: f"?text=absent{number()}"),
        ("text of last error", 200, lambda: f"?error=field%20{number() % 7}"),
    ):
        waits = await asyncio.to_thread(_ask, one, path)
        figures = f"p50 {_percentile(waits, 0.5):.1f} p99 {_percentile(waits, 0.99):.1f} ms"
        line(what, figures, f"target p99 {target} ms")
    feed.cancel()


def _ask(one: ServiceProcess, path: Callable[[], str]) -> list[float]:
    """Milliseconds of each of several sequential requests on one connection."""
    connection, waits = http.client.HTTPConnection("127.0.0.1", one.http_port), []
    for number in itertools.count():
        began = time.perf_counter()
        connection.request("GET", "/admin/messages" + path())
        response = connection.getresponse()
        body = json.loads(response.read())
        if response.status != 200:
            raise SystemExit(f"{response.status}: {body}")
        waits.append((time.perf_counter() - began) * 1000)
        if number >= TIMES:
            return waits[1:]
    return waits


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
