"""What the audit trail costs: processor time of the service and of its PostgreSQL for one operation.

Two services run side by side, one without a trail and one with all of it (reads and searches too); they are loaded in
turns of a second, so that whatever else the machine does falls on both.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from statistics import median

import psutil

from tests.bench.fhir import observation, patient
from tests.bench.http_load import get, load, post
from tests.bench.messages import adt
from tests.bench.receive import fresh_messages, service
from tests.bench.report import line
from tests.bench.senders import closed_loop
from tests.bench.senders import run as run_load
from tests.service_process import ServiceProcess

CLIENTS = 8
TURNS = 4
STORED = 300
SWITCHES = {
    "SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_READS": "true",
    "SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_SEARCH": "true",
}


def bench(folder: Path) -> None:
    """Processor time of reads, searches, creates and ingested messages, without and with the audit trail."""
    quiet = {"IPF_LOG_LEVEL": "WARN", "IPF_WORKER_PROCESSES": "0"}
    (folder / "off").mkdir(mode=0o755)
    (folder / "on").mkdir(mode=0o755)
    without = quiet | {"SUBSCRIPTION_SERVICE_AUDIT_ENABLED": "false"}
    with service(folder / "off", **without) as off, service(folder / "on", **quiet, **SWITCHES) as on:
        for one in (off, on):
            _fill(one)
        numbers, new = random.Random(1), itertools.count()
        _ingest(off, on)
        compare("read", off, on, lambda: get(f"/fhir/Patient/b{numbers.randrange(STORED)}"), 200)
        compare("search, 20 hits", off, on, lambda: get(f"/fhir/Observation?patient=b{numbers.randrange(9)}"), 200)
        compare("create", off, on, lambda: post("/fhir/Patient", json.dumps(patient(next(new))).encode()), 201)


def compare(what: str, off: ServiceProcess, on: ServiceProcess, make: Callable[[], bytes], status: int) -> None:
    """One line about one kind of request."""

    def turn(one: ServiceProcess) -> int:
        return sum(run_load(load(one.http_port, CLIENTS, make, 1)).must_be(status).statuses.values())

    _tell(what, off, on, turn)


def _ingest(off: ServiceProcess, on: ServiceProcess) -> None:
    """Messages received, converted and stored."""
    makes = {one.pid: fresh_messages("A", adt) for one in (off, on)}

    def turn(one: ServiceProcess) -> int:
        done = run_load(closed_loop(one.mllp_port, CLIENTS, 0.2, makes[one.pid]))
        waits = "/admin/messages?status=RECEIVED&limit=1", "/admin/messages?status=TRANSFORMING&limit=1"
        while any(one.get(url)[1]["total"] for url in waits):
            run_load(asyncio.sleep(0.1))
        return sum(done.codes.values())

    _tell("a message, to its resources", off, on, turn)


def _tell(what: str, off: ServiceProcess, on: ServiceProcess, turn: Callable[[ServiceProcess], int]) -> None:
    costs: dict[int, list[tuple[float, float]]] = {off.pid: [], on.pid: []}
    for number in range(TURNS + 1):
        for one in (off, on) if number % 2 else (on, off):
            before = spent(one)
            count = turn(one)
            after = spent(one)
            if number:  # the first turn warms up
                costs[one.pid].append(((after[0] - before[0]) / count * 1e6, (after[1] - before[1]) / count * 1e6))
    without, with_it = ([median(column) for column in zip(*costs[one.pid], strict=True)] for one in (off, on))
    share = (sum(with_it) / sum(without) - 1) * 100
    line(
        what, f"{share:+.0f} %",
        f"service {without[0]:.0f} -> {with_it[0]:.0f} us, PostgreSQL {without[1]:.0f} -> {with_it[1]:.0f} us",
    )  # fmt: skip


def spent(one: ServiceProcess) -> tuple[float, float]:
    """Seconds of processor time so far: of the service, and of all processes of its PostgreSQL."""
    data = one.environment["IPF_DATA_DIR"]
    times = psutil.Process(one.pid).cpu_times()
    own, database = times.user + times.system, 0.0
    main = next(
        each for each in psutil.process_iter(["cmdline"]) if any(data in part for part in each.info["cmdline"] or ())
        and "postgres" in (each.info["cmdline"] or [""])[0]
    )  # fmt: skip
    times = main.cpu_times()
    database += times.user + times.system + times.children_user + times.children_system
    for each in main.children(recursive=True):
        times = each.cpu_times()
        database += times.user + times.system
    return own, database


def _fill(one: ServiceProcess) -> None:
    entries = [
        {"request": {"method": "PUT", "url": f"Patient/b{number}"}, "resource": {**patient(number), "id": f"b{number}"}}
        for number in range(STORED)
    ] + [
        {"request": {"method": "PUT", "url": f"Observation/o{number}"}, "resource": observation(number)}
        for number in range(200)
    ]
    bundle = {"resourceType": "Bundle", "type": "transaction", "entry": entries}
    status, answer = one.request("POST", "/fhir", bundle)
    if status != 200:
        raise SystemExit(f"{status}: {answer}")
