"""Compares two configurations of the service: processor time for one operation, in turns.

Two services run at the same time, each with its own PostgreSQL and the same content.  They are loaded alternately for a
second each, in changing order, so that other load on the machine affects both.  The figure is the CPU time of the
service (all threads) and of its PostgreSQL (all processes) from the kernel's scheduler statistics.  The first turn is a
warm-up; the result is the lower quartile of the others, because other load only adds time.  Two services with equal
settings differ by up to 2 % on a quiet machine, and by up to 20 % on a busy one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from bench.http_load import load
from bench.report import line
from bench.senders import run as run_load
from tests.service_process import ServiceProcess

CLIENTS = 8
TURNS = 8
_SETTLING = 0.2  # seconds, until writes after the response are done

Turn = Callable[[ServiceProcess], int]
"""Puts load on a service; returns the number of operations."""


def requests(make: Callable[[ServiceProcess], bytes], status: int) -> Turn:
    """A turn that sends one kind of request for a second."""

    def turn(one: ServiceProcess) -> int:
        return sum(run_load(load(one.http_port, CLIENTS, lambda: make(one), 1)).must_be(status).statuses.values())

    return turn


def compare(what: str, off: ServiceProcess, on: ServiceProcess, turn: Turn, target: str = "") -> None:
    """Print one line: cost of `turn` on `on` compared with `off`."""
    costs: dict[int, list[tuple[float, float]]] = {off.pid: [], on.pid: []}
    for number in range(TURNS + 1):
        for one in (off, on) if number % 2 else (on, off):
            before = spent(one)
            count = turn(one)
            run_load(asyncio.sleep(_SETTLING))
            after = spent(one)
            if number:
                costs[one.pid].append(((after[0] - before[0]) / count * 1e6, (after[1] - before[1]) / count * 1e6))
    without, with_it = ([lower_quartile(column) for column in zip(*costs[one.pid], strict=True)] for one in (off, on))
    share = (sum(with_it) / sum(without) - 1) * 100
    line(
        what, f"{share:+.1f} %",
        f"{target}service {without[0]:.0f} -> {with_it[0]:.0f} us, PostgreSQL {without[1]:.0f} -> {with_it[1]:.0f} us",
    )  # fmt: skip


def spent(one: ServiceProcess) -> tuple[float, float]:
    """Processor seconds so far: of the service, and of all processes of its PostgreSQL, including ended ones."""
    data = one.environment["IPF_DATA_DIR"]
    main = next(
        each for each in psutil.process_iter(["cmdline"]) if any(data in part for part in each.info["cmdline"] or ())
        and "postgres" in (each.info["cmdline"] or [""])[0]
    )  # fmt: skip
    return _of_threads(one.pid), spent_by_server(main)


def spent_by_server(main: psutil.Process) -> float:
    """Processor seconds so far of a PostgreSQL server, given its first process, including ended ones."""
    ended = main.cpu_times()
    database = ended.children_user + ended.children_system + _of_threads(main.pid)
    return float(database + sum(_of_threads(each.pid) for each in main.children(recursive=True)))


def lower_quartile(values: Sequence[float]) -> float:
    """Other load on the machine only adds to the values."""
    return sorted(values)[len(values) // 4]


def _of_threads(pid: int) -> float:
    """Seconds; 0 when the process has ended meanwhile.  Source: Linux, Documentation/scheduler/sched-stats.rst."""
    nanoseconds = 0
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            nanoseconds += int((task / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9
