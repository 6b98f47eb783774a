"""Receiving: MLLP message, durable row, acknowledgement.  The workers are off."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.limits import fsync_ms, plain_inserts
from bench.report import line
from bench.senders import Run, closed_loop, open_loop
from bench.senders import run as run_load
from tests.service_process import ServiceProcess
from tests.traffic.messages import adt, oru


@contextmanager
def service(folder: Path, **environment: str) -> Iterator[ServiceProcess]:
    """A ready service; stops at the end."""
    one = ServiceProcess(folder / "service", **environment)
    one.start()
    try:
        one.wait_ready()
        yield one
    finally:
        one.stop()


def postgres_socket(one: ServiceProcess) -> Path:
    """Where the service's embedded PostgreSQL listens."""
    return Path(one.environment["IPF_DATA_DIR"]) / "postgres"


def fresh_messages(prefix: str, make: Callable[[str, str], bytes] = adt) -> Callable[[], bytes]:
    """A source of messages with unused control ids and about 20,000 patients."""
    numbers = itertools.count()

    def next_message() -> bytes:
        number = next(numbers)
        return make(f"{prefix}{number}", f"{prefix}P{number % 20000}")

    return next_message


def must_be_accepted(run: Run) -> None:
    """A figure counts only if every message was accepted."""
    if set(run.codes) - {"AA", "CA"}:
        raise SystemExit(f"not every message was accepted: {run.codes}")


def closed(folder: Path) -> None:
    """Closed loop: messages per second at 1, 16 and 64 stop-and-wait senders, and of plain single-row inserts."""
    with service(folder, IPF_WORKER_ENABLED="false") as one:
        sample = adt("X", "P1")
        line("message size", f"{len(sample)} bytes")
        line("fdatasync of 8 kB on this disk", f"{fsync_ms(folder):.3f} ms")
        peer = plain_inserts(postgres_socket(one), sample, 5)
        line("plain durable inserts, one connection (pgbench)", f"{peer:,.0f}/s")
        for senders, target in ((1, "2,000/s"), (16, f"{1.5 * peer:,.0f}/s (1.5 x plain)"), (64, "15,000/s")):
            asyncio.run(closed_loop(one.mllp_port, senders, 1, fresh_messages(f"W{senders}-")))
            run = asyncio.run(closed_loop(one.mllp_port, senders, 6, fresh_messages(f"R{senders}-")))
            must_be_accepted(run)
            figures = f"{run.rate:,.0f}/s p99 {run.percentile(0.99):.2f} ms"
            line(f"{senders} senders", figures, f"target {target}; {run.rate / peer:.2f} x plain")


def scheduled(folder: Path) -> None:
    """Open loop: latency of the acknowledgement from the scheduled arrival, 5,000 messages per second."""
    with service(folder, IPF_WORKER_ENABLED="false") as one:
        line("fdatasync of 8 kB on this disk", f"{fsync_ms(folder):.3f} ms")
        run_load(open_loop(one.mllp_port, 2000, 64, 2, fresh_messages("W")))
        for rate in (1000, 2000, 5000):
            run = run_load(open_loop(one.mllp_port, rate, 64, 8, fresh_messages(f"R{rate}-")))
            must_be_accepted(run)
            figures = f"p50 {run.percentile(0.5):.2f} p99 {run.percentile(0.99):.2f} ms"
            line(f"{rate}/s offered, {run.rate:,.0f}/s acknowledged", figures, "target p99 5 ms at 5,000/s")


def stall(folder: Path) -> None:
    """A 500 kB ORU^R01 among small messages: latency of the small ones."""
    with service(folder) as one:
        run_load(_stall(one))


async def _stall(one: ServiceProcess) -> None:
    numbers = itertools.count()
    quiet = await open_loop(one.mllp_port, 200, 8, 4, fresh_messages("Q"))
    large = closed_loop(one.mllp_port, 1, 4, lambda: oru(f"L{next(numbers)}", 500_000))
    others, big = await asyncio.gather(open_loop(one.mllp_port, 200, 8, 4, fresh_messages("S")), large)
    line("small messages alone", f"p99 {quiet.percentile(0.99):.1f} max {quiet.percentile(1):.1f} ms")
    line(
        f"small messages with {len(big.latencies)} of 500 kB",
        f"p99 {others.percentile(0.99):.1f} max {others.percentile(1):.1f} ms",
        "target: no more than 50 ms longer",
    )
