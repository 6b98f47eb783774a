"""End to end: MLLP to stored resources to the web hook.  Load generator and PostgreSQL run on the same cores."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from pathlib import Path

from bench.limits import fsync_ms, plain_inserts
from bench.receive import fresh_messages, must_be_accepted, postgres_socket, service
from bench.report import line
from bench.senders import closed_loop, open_loop
from bench.senders import run as run_load
from tests.service_process import ServiceProcess, children_of, memory_mib
from tests.traffic.messages import adt, plain
from tests.traffic.psql import psql
from tests.traffic.sink import Sink
from tests.traffic.subscribers import subscribe


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000


def webhook(folder: Path) -> None:
    """From the acknowledgement to the web hook's receipt, one message at a time on an idle system."""
    with service(folder) as one:
        run_load(_webhook(one, folder))


async def _webhook(one: ServiceProcess, folder: Path) -> None:
    sink = Sink()
    await subscribe(one, await sink.start())
    waits: list[float] = []
    for number in range(220):
        before = len(sink.times)
        run = await closed_loop(one.mllp_port, 1, 0, lambda number=number: adt(f"L{number}", f"L{number}"))
        acknowledged = time.perf_counter()
        must_be_accepted(run)
        if not await sink.until(before + 1, 10):
            raise SystemExit("no notification arrived")
        if number >= 20:
            waits.append(max(0.0, sink.times[before] - acknowledged))
        await asyncio.sleep(0.02)
    sink.close()
    line("fdatasync of 8 kB on this disk", f"{fsync_ms(folder):.3f} ms")
    figures = f"p50 {_percentile(waits, 0.5):.1f} p99 {_percentile(waits, 0.99):.1f} ms"
    line(f"acknowledgement to web hook, {len(waits)} messages", figures, "target p50 25, p99 80 ms")


def throughput(folder: Path) -> None:
    """End to end: ADT^A01 to stored resources and one subscription delivered, with 0 and 1 converter processes."""
    for processes, target in (("0", "600/s"), ("1", "1,000/s")):
        for name, make in (("dense", adt), ("plain", plain)):
            with service(folder / (processes + name), IPF_WORKER_PROCESSES=processes, IPF_LOG_LEVEL="WARN") as one:
                peer = plain_inserts(postgres_socket(one), adt("X", "P1"), 3)
                rate = run_load(_drain(one, 6000, fresh_messages("F", make)))
                versions = psql(postgres_socket(one), "SELECT count(*) FROM resource_versions", "fhir").strip()
                what = f"{processes} converters, {name} ADT^A01, {len(make('X', 'P1'))} bytes"
                reference = f"target {target}; {versions} resource versions; plain inserts {peer:,.0f}/s"
                line(what, f"{rate:,.0f}/s", reference)


async def _drain(one: ServiceProcess, count: int, message: Callable[[], bytes], subscribed: bool = True) -> float:
    """Send `count` messages as fast as they are accepted; rate per second until the last notification."""
    sink = Sink()
    if subscribed:
        await subscribe(one, await sink.start())
    run = await open_loop(one.mllp_port, 800, 16, 1, message)
    must_be_accepted(run)
    await sink.until(len(run.latencies), 60)
    warm = len(sink.times)
    began = time.perf_counter()
    run = await open_loop(one.mllp_port, 4000, 32, count / 4000, message)
    must_be_accepted(run)
    if not await sink.until(warm + len(run.latencies), 120):
        raise SystemExit(f"only {len(sink.times) - warm} of {len(run.latencies)} notifications arrived")
    seconds = sink.times[-1] - began
    sink.close()
    return len(run.latencies) / seconds


def offered(folder: Path) -> None:
    """1,000 messages per second offered with conversion and delivery running: latency of the acknowledgement."""
    with service(folder, IPF_LOG_LEVEL="WARN") as one:
        run_load(_offered(one))


async def _offered(one: ServiceProcess) -> None:
    sink = Sink()
    await subscribe(one, await sink.start())
    await open_loop(one.mllp_port, 300, 64, 2, fresh_messages("W"))
    for rate in (500, 1000):
        before = len(sink.times)
        run = await open_loop(one.mllp_port, rate, 64, 10, fresh_messages(f"O{rate}-"))
        must_be_accepted(run)
        arrived = await sink.until(before + len(run.latencies), 60)
        figures = f"p50 {run.percentile(0.5):.1f} p99 {run.percentile(0.99):.1f} ms"
        line(f"{rate}/s offered; all delivered: {arrived}", figures, "target p99 10 ms at 1,000/s")
    sink.close()


def growth(folder: Path) -> None:
    """The cost of a message on an empty inbox and on one of 1,000,000 rows."""
    with service(folder, IPF_LOG_LEVEL="WARN") as one:
        empty = run_load(_drain(one, 4000, fresh_messages("E")))
        seconds = _fill(one, 1_000_000)
        line("1,000,000 rows added to the inbox", f"{seconds:.0f} s")
        full = run_load(_drain(one, 4000, fresh_messages("G")))
        line("end to end on an empty inbox", f"{empty:,.0f}/s")
        line("end to end on 1,000,000 rows", f"{full:,.0f}/s", f"{full / empty:.2f} x the empty one")


def _fill(one: ServiceProcess, rows: int) -> float:
    """Copy one delivered row many times, with fresh keys."""
    began = time.perf_counter()
    psql(postgres_socket(one), FILL.replace(":rows", str(rows)))
    psql(postgres_socket(one), "VACUUM ANALYZE")
    return time.perf_counter() - began


FILL = """
WITH sample AS (SELECT * FROM message_bodies ORDER BY id LIMIT 1), bodies AS (
    INSERT INTO message_bodies (tenant, received_at, source_protocol, source_system, source_id, message_type,
        correlation_id, ordering_key, listener, charset, raw_content_type, raw_message)
    SELECT tenant, received_at - n * interval '1 second', source_protocol, source_system, 'FILL' || n, message_type,
        gen_random_uuid(), n % 20000, listener, charset, raw_content_type, raw_message
    FROM sample, generate_series(1, :rows) AS n
    RETURNING id, tenant, received_at, ordering_key
)
INSERT INTO message_states (id, tenant, status, received_at, ordering_key, ready_at, delivered_at, last_attempt_at)
SELECT id, tenant, 'DELIVERED', received_at, ordering_key, received_at, received_at, received_at FROM bodies
"""


def memory(folder: Path) -> None:
    """Resident memory of the service's processes: idle, after a first message, and after 100,000."""
    with service(folder, IPF_LOG_LEVEL="WARN") as one:
        run_load(asyncio.sleep(4))  # until the converter process has started
        _print_memory(one, "idle", "target 150 MiB")
        run_load(_many(one, 1))
        _print_memory(one, "after a first ADT^A01", "all maps were compiled at the start")
        run_load(_many(one, 100_000))
        _print_memory(one, "after 100,000 messages", "target 250 MiB")


def _print_memory(one: ServiceProcess, when: str, target: str) -> None:
    converters = [pid for pid in children_of(one.pid) if "ipf.app.converter" in _command(pid)]
    values = [memory_mib(pid) for pid in (one.pid, *converters)]
    each = " + ".join(f"{value:.0f}" for value in values)
    shared = sum(memory_mib(pid, "Pss") for pid in (one.pid, *converters))
    reference = f"{target}; total {sum(values):.0f} MiB, {shared:.0f} with shared pages counted once"
    line(f"{when}: main + converters", f"{each} MiB", reference)


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


async def _many(one: ServiceProcess, count: int) -> None:
    numbers = itertools.count()

    def message() -> bytes:
        number = next(numbers)
        return adt(f"M{number}", f"M{number % 20000}")

    run = await open_loop(one.mllp_port, 2000, 32, count / 2000, message)
    must_be_accepted(run)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        _, page = one.get("/admin/messages?status=DELIVERED&limit=1")
        if page["total"] >= count:
            return
        await asyncio.sleep(1)
    raise SystemExit("the messages were not all delivered in time")
