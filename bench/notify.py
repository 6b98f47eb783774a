"""Rest-hooks: notifications per second of one process, latency from commit to first byte, effect of a dead endpoint.

The effect of a dead endpoint is measured in pairs of rounds, with and without it, in alternating order.  The medians of
the p99s of all rounds are compared, so that other load on the machine in one round has little effect.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.receive import service
from bench.report import line
from bench.senders import run as run_load
from bench.turns import spent
from tests.service_process import ROOT, ServiceProcess
from tests.traffic.sink import Sink
from tests.traffic.subscribers import activated
from tests.waiting import free_port

ALONE = {"IPF_WORKER_PROCESSES": "0", "IPF_LOG_LEVEL": "WARN"}
PAIRS = 8
WARM, CHANGES = 4, 20


def notify(folder: Path) -> None:
    """Notifications per second against treq alone; commit to first byte; one dead endpoint among 100."""
    with service(folder, **ALONE) as one:
        for subscriptions, patients in ((1, 3000), (32, 200)):
            run_load(_rate(one, subscriptions, patients))
    with service(folder / "idle", **ALONE) as one:
        run_load(_first_byte(one))
    retries = {
        "SUBSCRIPTION_SERVICE_DELIVERY_MAX_ATTEMPTS": "1000",
        "SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_MAX_MS": "1000",
    }
    with service(folder / "dead", **retries, **ALONE) as one:
        run_load(_dead(one))


def register(one: ServiceProcess, url: str, criteria: str = "Patient?") -> str:
    """Create a subscription with full resources; its id."""
    resource = {
        "resourceType": "Subscription",
        "status": "requested",
        "reason": "bench",
        "criteria": criteria,
        "channel": {"type": "rest-hook", "endpoint": url, "payload": "application/fhir+json"},
    }
    status, created = one.request("POST", "/fhir/Subscription", resource)
    assert status == 201, created
    return str(created["id"])


def patient(number: int) -> dict[str, Any]:
    """A Patient of typical size."""
    return {
        "resourceType": "Patient",
        "identifier": [{"system": "urn:bench", "value": f"N{number}"}],
        "name": [{"family": f"Family{number}", "given": ["Anna", "Maria"]}],
        "gender": "female",
        "birthDate": "1980-02-03",
        "address": [{"line": ["Ring 1"], "city": "Wien", "postalCode": "1010", "country": "AT"}],
        "telecom": [{"system": "phone", "value": f"+43 1 {number:07d}"}],
    }


def transaction(first: int, count: int) -> dict[str, Any]:
    """A transaction that creates `count` Patients."""
    entries = [
        {"resource": patient(number), "request": {"method": "POST", "url": "Patient"}}
        for number in range(first, first + count)
    ]
    return {"resourceType": "Bundle", "type": "transaction", "entry": entries}


async def _rate(one: ServiceProcess, subscriptions: int, patients: int) -> None:
    """Events are numbered while the subscriptions are in error; then all are set active at once."""
    sink = Sink()
    url = await sink.start()
    ids = [register(one, f"{url}/{number}") for number in range(subscriptions)]
    await activated(one, ids)
    await _set(one, ids, "error")
    for first in range(0, patients, 100):
        status, answer = await asyncio.to_thread(one.request, "POST", "/fhir", transaction(first, 100))
        assert status == 200, answer
    total = subscriptions * patients
    _, page = await asyncio.to_thread(one.get, "/fhir/Patient?_count=1")
    body = json.dumps(page["entry"][0]["resource"]).encode()
    before, before_cost = await bare(url, body, min(total, 4000), min(subscriptions, 32))
    sink.times.clear()
    used = spent(one)
    await _set(one, ids, "active")
    if not await sink.until(total, 120):
        raise SystemExit(f"only {len(sink.times)} of {total} notifications arrived")
    await idle(one)
    own, postgres = [(now - then) / total * 1e6 for now, then in zip(spent(one), used, strict=True)]
    begin = sink.times[total // 10]
    rate = (total - total // 10) / (sink.times[-1] - begin)
    after, after_cost = await bare(url, body, min(total, 4000), min(subscriptions, 32))
    peer, peer_cost = (before + after) / 2, (before_cost + after_cost) / 2
    what = f"{total} notifications, {subscriptions} subscription{'s' if subscriptions > 1 else ''}, {len(body)} bytes"
    line(what, f"{rate:,.0f}/s", f"bare treq {peer:,.0f}/s; {rate / peer:.2f} x (target 0.8)")
    cost = f"bare treq {peer_cost:.0f} us; {peer_cost / own:.2f} x"
    line("  processor time of one: service, PostgreSQL", f"{own:.0f} us, {postgres:.0f} us", cost)
    for id in ids:
        await asyncio.to_thread(one.request, "DELETE", f"/fhir/Subscription/{id}")
    sink.close()


async def _set(one: ServiceProcess, ids: list[str], status: str) -> None:
    for id in ids:
        path = f"/admin/subscriptions/{id}/status"
        answered, body = await asyncio.to_thread(one.request, "PATCH", path, {"status": status})
        assert answered == 200, body


async def bare(url: str, body: bytes, count: int, at_once: int) -> tuple[float, float]:
    """POSTs per second of treq alone, `at_once` at a time, and the processor time of one in microseconds."""
    command = [sys.executable, "-m", "bench.bare_posts", url, str(count), str(at_once)]
    made = await asyncio.to_thread(
        subprocess.run, command, input=body, capture_output=True, cwd=ROOT, check=True, timeout=120
    )
    rate, cost = made.stdout.split()
    return float(rate), float(cost)


async def _first_byte(one: ServiceProcess) -> None:
    sink = Sink()
    await activated(one, [register(one, await sink.start())])
    from_answer, from_request = [], []
    for number in range(330):
        before = len(sink.times)
        sent_at = time.perf_counter()
        status, answer = await asyncio.to_thread(
            one.request, "PUT", f"/fhir/Patient/p{number}", patient(number) | {"id": f"p{number}"}
        )
        answered = time.perf_counter()
        assert status == 201, answer
        if not await sink.until(before + 1, 10):
            raise SystemExit("no notification arrived")
        if number >= 30:
            from_answer.append(max(0.0, sink.times[before] - answered))
            from_request.append(sink.times[before] - sent_at)
        await asyncio.sleep(0.01)
    sink.close()
    for what, times in (
        ("commit (its answer) to first byte", from_answer),
        ("request sent to first byte", from_request),
    ):
        figures = f"p50 {percentile(times, 0.5):.1f} p99 {percentile(times, 0.99):.1f} ms"
        line(f"{what}, idle, {len(times)} writes", figures, "target p50 under 10, p99 under 40 ms")


async def _dead(one: ServiceProcess) -> None:
    """Each change fires all 100; the dead endpoint refuses in one round of each pair and answers in the other."""
    port = free_port()
    sinks = [Sink() for _ in range(99)]
    urls = [await sink.start() for sink in sinks]
    ids = [register(one, url) for url in [*urls, f"http://127.0.0.1:{port}/hook"]]
    await activated(one, ids)
    revived, numbers = Sink(), iter(range(100_000, 200_000))
    figures: dict[bool, list[float]] = {True: [], False: []}
    for pair in range(PAIRS + 1):
        for is_dead in (False, True) if pair % 2 else (True, False):
            if not is_dead:
                await revived.start_on(port)
                await idle(one)  # the events that it missed are sent
            await _fan_out(one, sinks, [next(numbers) for _ in range(WARM)])
            times = await _fan_out(one, sinks, [next(numbers) for _ in range(CHANGES)])
            if pair:  # the first pair warms up
                figures[is_dead].append(percentile(times, 0.99))
            if not is_dead:
                await idle(one)
                revived.close()
                await asyncio.sleep(0.2)
    _compare(figures[False], figures[True])
    for sink in sinks:
        sink.close()


def _compare(healthy: list[float], dead: list[float]) -> None:
    """Print the p99s of the rounds, in milliseconds."""
    for what, values in (
        ("99 of 100 endpoints, p99 while all answer", healthy),
        ("the same while the 100th refuses connections", dead),
    ):
        spread = f"median of {len(values)} rounds, {min(values):.1f} to {max(values):.1f}"
        line(what, f"{statistics.median(values):.1f} ms", spread)
    ratio = statistics.median(dead) / statistics.median(healthy)
    paired = statistics.median(with_it / without for without, with_it in zip(healthy, dead, strict=True))
    line("  ratio", f"{ratio:.2f} x", f"{paired:.2f} x median of pairs; target 1.10 at most")


async def idle(one: ServiceProcess) -> None:
    """Wait until no event of an active subscription is pending."""
    while True:
        _, page = await asyncio.to_thread(one.get, "/admin/subscriptions/health")
        if not any(item["pending_count"] for item in page["items"] if item["status"] == "active"):
            return
        await asyncio.sleep(0.1)


async def _fan_out(one: ServiceProcess, sinks: list[Sink], numbers: list[int]) -> list[float]:
    waits = []
    for number in numbers:
        before = [len(sink.times) for sink in sinks]
        sent_at = time.perf_counter()
        status, _ = await asyncio.to_thread(
            one.request, "PUT", f"/fhir/Patient/p{number}", patient(number) | {"id": f"p{number}"}
        )
        assert status == 201
        for sink, count in zip(sinks, before, strict=True):
            if not await sink.until(count + 1, 10):
                raise SystemExit("a notification did not arrive")
            waits.append(sink.times[count] - sent_at)
        await asyncio.sleep(0.05)
    return waits


def percentile(values: list[float], share: float) -> float:
    """In milliseconds."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000
