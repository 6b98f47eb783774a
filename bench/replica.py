"""Processor time of the primary for reads, with and without a standby that answers them.

One service on a primary and its standby is asked in turns of a second: with `Cache-Control: no-cache`, which the
primary answers, and without, which the standby does.  Writes are compared between that service and one without
`IPF_FHIR_READ_DB_URL` on the same servers: a commit then tells its position.  What the servers spend while nothing is
asked is subtracted.  The first turn is a warm-up; the figure is the lower quartile of the others.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

from bench.http_load import load
from bench.report import line
from bench.search import DATABASE, SAMPLES, fill
from bench.senders import run as run_load
from bench.turns import lower_quartile, spent_by_server
from tests.faults.replica_client import metric, outcomes, until
from tests.replication import Pair, Server, why_not
from tests.service_process import ServiceProcess

PATIENTS = 5000
CLIENTS = 4
TURNS = 8
_IDLE = 5.0  # seconds
_SETTLING = 0.2  # seconds, until writes after the response are done

Make = Callable[[], bytes]


def bench(folder: Path) -> None:
    """Reads on a standby: what the primary spends on them, in turns with reads on the primary."""
    if why_not():
        line("not measured", why_not())
        return
    pair = Pair()
    services: list[ServiceProcess] = []
    try:
        pair.start()
        pair.forget_standby()
        for name in ("replica", "plain"):
            services.append(_service(folder / name, pair, name == "replica"))
        _compare_writes(services[0], services[1], pair)
        services.pop().stop()
        _fill(services[0], pair)
        run_load(until(lambda: metric(services[0], "fhir_replica_used") == 1.0))
        idle = _idle(pair)
        for what, path in _reads().items():
            _compare_reads(what, path, services[0], pair, idle)
    finally:
        for service in services:
            service.stop()
        pair.close()


def _service(folder: Path, pair: Pair, has_standby: bool) -> ServiceProcess:
    chosen = {name: f"postgresql://ipf@{pair.primary.address}/{database}" for name, database in
              (("IPF_DB_URL", "ipf"), ("IPF_FHIR_DB_URL", DATABASE))}  # fmt: skip
    if has_standby:
        chosen["IPF_FHIR_READ_DB_URL"] = f"postgresql://ipf@{pair.standby.address}/{DATABASE}"
    service = ServiceProcess(
        folder, **chosen, IPF_LOG_LEVEL="WARN", IPF_WORKER_PROCESSES="0", SUBSCRIPTION_SERVICE_AUDIT_ENABLED="false"
    )
    service.start()
    service.wait_ready()
    return service


def _fill(service: ServiceProcess, pair: Pair) -> None:
    for sample in SAMPLES:
        status, answer = service.request("POST", f"/fhir/{sample['resourceType']}", sample)
        assert status == 201, answer
    for statement in fill(PATIENTS):
        pair.primary.sql(statement, DATABASE)


def _idle(pair: Pair) -> list[float]:
    """Processor seconds a second of both servers while the service does what it does in the background."""
    before = [spent_by_server(server.process()) for server in pair.servers]
    run_load(asyncio.sleep(_IDLE))
    found = [(spent_by_server(one.process()) - spent) / _IDLE for one, spent in zip(pair.servers, before, strict=True)]
    line(
        "in the background, subtracted below", f"{found[0] * 1000:.0f} ms a second", f"standby {found[1] * 1000:.0f} ms"
    )
    return found


def _reads() -> dict[str, Callable[[], str]]:
    chosen = random.Random(7)

    def anyone() -> int:
        return chosen.randrange(1, PATIENTS + 1)

    return {
        "read": lambda: f"Patient/p{anyone()}",
        "search by identifier": lambda: f"Patient?identifier={quote(f'urn:mrn|m{anyone()}')}",
        "search by patient, newest first": lambda: f"Observation?patient=p{anyone()}&_sort=-date",
        "search by family name": lambda: f"Patient?family=family{anyone() % 5000}",
        "$everything of a patient": lambda: f"Patient/p{anyone()}/$everything",
    }


def _compare_reads(
    what: str, path: Callable[[], str], service: ServiceProcess, pair: Pair, idle: Sequence[float]
) -> None:
    def make(headers: str) -> Make:
        return lambda: f"GET /fhir/{path()} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n".encode()

    before = outcomes(service)
    alone, shared = _in_turns(
        (service, make("Cache-Control: no-cache\r\n")), (service, make("")), (pair.primary, pair.standby), 200, idle
    )
    found = outcomes(service) - before
    answered = found["replica"] / max(1, found.total() - found["asked"])
    line(
        what, f"{shared[0] / max(alone[0], 1e-9):.2f} of the primary",
        f"primary {alone[0]:.0f} -> {shared[0]:.0f} ms per 1,000, standby {alone[1]:.0f} -> {shared[1]:.0f} ms; "
        f"{answered:.1%} of the second on the standby",
    )  # fmt: skip


def _compare_writes(service: ServiceProcess, plain: ServiceProcess, pair: Pair) -> None:
    numbers = iter(range(10_000_000))

    def make() -> bytes:
        body = f'{{"resourceType":"Patient","id":"w{next(numbers)}"}}'
        path = f"/fhir/Patient/{body[32:-2]}"
        kind = "Content-Type: application/fhir+json"
        return f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{kind}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()

    without, with_it = _in_turns((plain, make), (service, make), (pair.primary, pair.standby), 201)
    line(
        "write, with the position of its commit", f"{with_it[0] / max(without[0], 1e-9):.2f} of the primary",
        f"primary {without[0]:.0f} -> {with_it[0]:.0f} ms per 1,000",
    )  # fmt: skip


def _in_turns(
    first: tuple[ServiceProcess, Make],
    second: tuple[ServiceProcess, Make],
    servers: tuple[Server, ...],
    status: int,
    idle: Sequence[float] = (0.0, 0.0),
) -> tuple[list[float], list[float]]:
    """Milliseconds of each server for 1,000 requests, of the first and of the second kind."""
    costs: tuple[list[list[float]], list[list[float]]] = ([], [])
    for number in range(TURNS + 1):
        for kind in (0, 1) if number % 2 else (1, 0):
            service, make = (first, second)[kind]
            began, before = time.perf_counter(), [spent_by_server(server.process()) for server in servers]
            done = run_load(load(service.http_port, CLIENTS, make, 1)).must_be(status)
            run_load(asyncio.sleep(_SETTLING))
            count = sum(done.statuses.values())
            if number:
                costs[kind].append([
                    (spent_by_server(server.process()) - earlier - rest * (time.perf_counter() - began)) / count * 1e6
                    for server, earlier, rest in zip(servers, before, idle, strict=True)
                ])  # fmt: skip
    first_costs, second_costs = (
        [max(0.0, lower_quartile(column)) for column in zip(*cost, strict=True)] for cost in costs
    )  # a busy machine holds up what runs in the background as well
    return first_costs, second_costs
