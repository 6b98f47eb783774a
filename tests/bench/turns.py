"""What one way of running the service costs beside another: processor time for one operation, in turns.

Two services run side by side, each with its own PostgreSQL and the same content, and are loaded one after the other, a
second each, in an order that is turned round every time, so that whatever else the machine does falls on both.  Counted
is the time that the kernel gave to the service (all its threads) and to its PostgreSQL (all its processes), to the
nanosecond; the first turn warms up, and of the others the lower quartile counts: what else a shared machine does, be it
that its processor runs slower for a while, only adds.  Two services that are set up alike differ by up to 2 % in this
way of measuring on a quiet machine, and by ten times as much on one that is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tests.bench.http_load import load
from tests.bench.report import line
from tests.bench.senders import run as run_load
from tests.service_process import ServiceProcess

CLIENTS = 8
TURNS = 8
_SETTLING = 0.2  # seconds, until what is written behind an answer is written

Turn = Callable[[ServiceProcess], int]
"""Does something to a service, and how often."""


def asking(make: Callable[[ServiceProcess], bytes], status: int) -> Turn:
    """A turn of one kind of request, for a second."""

    def turn(one: ServiceProcess) -> int:
        return sum(run_load(load(one.http_port, CLIENTS, lambda: make(one), 1)).must_be(status).statuses.values())

    return turn


def compare(what: str, off: ServiceProcess, on: ServiceProcess, turn: Turn, target: str = "") -> None:
    """One line: what `turn` costs `on` beside what it costs `off`."""
    costs: dict[int, list[tuple[float, float]]] = {off.pid: [], on.pid: []}
    for number in range(TURNS + 1):
        for one in (off, on) if number % 2 else (on, off):
            before = spent(one)
            count = turn(one)
            run_load(asyncio.sleep(_SETTLING))
            after = spent(one)
            if number:
                costs[one.pid].append(((after[0] - before[0]) / count * 1e6, (after[1] - before[1]) / count * 1e6))
    without, with_it = ([_lower_quartile(column) for column in zip(*costs[one.pid], strict=True)] for one in (off, on))
    share = (sum(with_it) / sum(without) - 1) * 100
    line(
        what, f"{share:+.1f} %",
        f"{target}service {without[0]:.0f} -> {with_it[0]:.0f} us, PostgreSQL {without[1]:.0f} -> {with_it[1]:.0f} us",
    )  # fmt: skip


def spent(one: ServiceProcess) -> tuple[float, float]:
    """Seconds of processor time so far: of the service, and of all processes of its PostgreSQL, ended ones included."""
    data = one.environment["IPF_DATA_DIR"]
    main = next(
        each for each in psutil.process_iter(["cmdline"]) if any(data in part for part in each.info["cmdline"] or ())
        and "postgres" in (each.info["cmdline"] or [""])[0]
    )  # fmt: skip
    ended = main.cpu_times()
    database = ended.children_user + ended.children_system + _of_threads(main.pid)
    return _of_threads(one.pid), database + sum(_of_threads(each.pid) for each in main.children(recursive=True))


def _lower_quartile(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 4]


def _of_threads(pid: int) -> float:
    """Seconds; 0 when the process has ended meanwhile.  Source: Linux, Documentation/scheduler/sched-stats.rst."""
    nanoseconds = 0
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            nanoseconds += int((task / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9
