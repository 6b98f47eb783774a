"""The observe API on 1,000,000 messages: traces, dead letters, counts per hour, the system, and a scrape of metrics.

SQL writes the rows: 90 days of messages; one in 200 is a dead letter; each tenth has a version, an event and a delivery
attempt.  Senders send messages while the responses are measured.
"""

from __future__ import annotations

import asyncio
import http.client
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.receive import fresh_messages, postgres_socket, service
from bench.report import line
from bench.senders import open_loop
from tests.service_process import ServiceProcess
from tests.traffic.psql import psql

MESSAGES = 1_000_000
TIMES = 200
FEED = 100  # messages per second
ID = "lpad(to_hex(n), 8, '0') || '-0000-4000-8000-000000000000'"
_BODIES = (
    "INSERT INTO message_bodies (tenant, received_at, source_protocol, source_system, source_id, message_type,"
    " correlation_id, listener, charset, raw_content_type, raw_message)"
    f" SELECT 'default', now() - ({MESSAGES} - n) * interval '7.7 seconds', 'HL7V2_MLLP', 'SYS' || n % 20, 'B' || n,"
    f" 'ADT_A01', ({ID})::uuid, 'lab', 'utf-8', 'x', convert_to(repeat('MSH|lorem ', 60), 'UTF8')"
    f" FROM generate_series(1, {MESSAGES}) n"
)
_STATES = (
    "INSERT INTO message_states (id, tenant, status, received_at, ready_at, delivered_at, last_attempt_at, last_error)"
    " SELECT id, tenant, (CASE WHEN id % 200 = 0 THEN 'DEAD_LETTER' ELSE 'DELIVERED' END)::message_status, received_at,"
    " received_at, CASE WHEN id % 200 <> 0 THEN received_at END, received_at, 'matchbox: no map' FROM message_bodies"
)
# These rows are older than their insertion, unlike messages.
_UNCOUNTED = "TRUNCATE received_hours; UPDATE received_counted SET until = '-infinity', kept = 0"
_TENTH = f"FROM generate_series(10, {MESSAGES}, 10) n"
_FHIR = (
    f"INSERT INTO resources SELECT n, 1, 'Patient', 'p' || n, 1, now(), false {_TENTH}",
    "INSERT INTO resource_versions SELECT n, 1, 1, now(), 'POST', false, "
    f'({ID})::uuid, \'{{"resourceType":"Patient"}}\' {_TENTH}',
    "INSERT INTO subscription_states (rid, partition_id, id, status, last_event_number, delivered_number)"
    f" VALUES (5, 1, 's', 'off', {MESSAGES // 10}, {MESSAGES // 10})",
    f"INSERT INTO subscription_events SELECT 5, n / 10, n, 1, now(), ({ID})::uuid {_TENTH}",
    "INSERT INTO delivery_attempts (subscription_rid, event_number, attempted_at, succeeded, http_status, duration_ms,"
    f" correlation_id) SELECT 5, n / 10, now(), true, 200, 5, ({ID})::uuid {_TENTH}",
    "VACUUM ANALYZE resource_versions, subscription_events, delivery_attempts, resources",
)


def observe(folder: Path) -> None:
    """Traces, dead letters and counts of 1,000,000 messages while senders send; a scrape of metrics."""
    with service(folder, IPF_LOG_LEVEL="WARN") as one:
        began = time.perf_counter()
        for statement in (_BODIES, _STATES, "VACUUM ANALYZE message_bodies, message_states", _UNCOUNTED):
            psql(postgres_socket(one), statement)
        for statement in _FHIR:
            psql(postgres_socket(one), statement, "fhir")
        line("1,000,000 messages inserted", f"{time.perf_counter() - began:.0f} s")
        ask(one, "throughput over 90 days before anything was counted", lambda n: "throughput?window=90d", 3)
        _counted(one)
        feed = threading.Thread(target=_feed, args=(one.mllp_port,), daemon=True)
        feed.start()
        ask(one, "trace", lambda n: f"trace/{n * 4990 + 10:08x}-0000-4000-8000-000000000000", TIMES, "30 ms")
        ask(one, "dlq", lambda n: "dlq?limit=100", TIMES, "30 ms")
        ask(one, "throughput, 24 hours", lambda n: "throughput?window=24h", TIMES, "30 ms")
        ask(one, "throughput, 90 days", lambda n: "throughput?window=90d", TIMES, "30 ms")
        ask(one, "throughput of one sender, 90 days", lambda n: "throughput?window=90d&source_system=SYS3", 50)
        ask(one, "system", lambda n: "system", TIMES, "30 ms")
        ask(one, "scrape of the metrics", lambda n: "/actuator/prometheus", TIMES, "10 ms")
        feed.join()


def _feed(port: int) -> None:
    asyncio.run(open_loop(port, FEED, 4, 20, fresh_messages("F")))


def count_again(one: ServiceProcess) -> None:
    """Let the background job count rows that SQL has put into the past."""
    psql(postgres_socket(one), _UNCOUNTED)
    _counted(one)


def _counted(one: ServiceProcess) -> None:
    """Wait until the background job has counted all hours."""
    began = time.perf_counter()
    pause = getattr(time, "sleep")  # noqa: B009  # blocks on purpose: there is no reactor here
    while psql(postgres_socket(one), "SELECT until > now() - interval '5 minutes' FROM received_counted") != "t\n":
        pause(0.5)
    line("counted by hour in the background", f"within {time.perf_counter() - began:.0f} s")


def ask(one: ServiceProcess, what: str, path: Callable[[int], str], times: int, target: str = "") -> None:
    """Median and p99 of sequential requests on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", one.http_port, timeout=60)
    taken, size = [], 0
    for number in range(times):
        target_path = path(number)
        began = time.perf_counter()
        connection.request("GET", target_path if target_path.startswith("/") else f"/admin/observe/{target_path}")
        answer = connection.getresponse()
        size = len(answer.read())
        taken.append((time.perf_counter() - began) * 1000)
        assert answer.status == 200, (target_path, answer.status)
    connection.close()
    slow = sorted(taken)[int(0.99 * times)]
    figures = f"{statistics.median(taken):.1f} ms, p99 {slow:.1f} ms, {size:,} bytes"
    line(what, figures, f"target {target}" if target else "")
