"""FHIR transactions of 10,000 entries during HL7 load: latency of acknowledgements, and memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.fhir import patient, processor
from bench.http_load import load, post
from bench.receive import fresh_messages, must_be_accepted, service
from bench.report import line
from bench.senders import Run, open_loop
from bench.senders import run as run_load
from tests.service_process import ServiceProcess, memory_mib

ENTRIES = 10_000
RATE = 200
SECONDS = 4.0


def bundle(count: int, first: int, kind: str) -> bytes:
    """A transaction that creates `count` Patients; `kind`: `POST`, `PUT`, or `If-None-Exist`."""
    entries = []
    for number in range(first, first + count):
        resource = patient(number)
        request = {"method": "PUT" if kind == "PUT" else "POST", "url": "Patient"}
        if kind == "PUT":
            resource["id"] = f"large{number}"
            request["url"] = f"Patient/large{number}"
        elif kind == "If-None-Exist":
            request["ifNoneExist"] = f"identifier=urn:mrn|B{number}"
        entries.append({"fullUrl": f"urn:uuid:{number:032}", "resource": resource, "request": request})
    return json.dumps({"resourceType": "Bundle", "type": "transaction", "entry": entries}).encode()


@dataclass
class Concurrent:
    """Measurements during a transaction."""

    senders: Run
    seconds: float
    cpu: float
    before: float
    peak: float = field(default=0.0)

    def waits(self) -> str:
        """Percentiles of the acknowledgements."""
        return waits(self.senders)


def waits(run: Run) -> str:
    """Percentiles of the acknowledgements."""
    return f"p50 {run.percentile(0.5):.1f} p99 {run.percentile(0.99):.1f} max {run.percentile(1):.1f} ms"


async def run_concurrently(
    one: ServiceProcess, body: bytes, message: Callable[[], bytes], status: int = 200
) -> Concurrent:
    """Send messages while the service runs the transaction, which starts 0.2 s after them."""
    found = Concurrent(Run(), 0.0, 0.0, memory_mib(one.pid))
    waiting = iter([post("/fhir", body, "Prefer: return=minimal\r\n")])

    async def send() -> None:
        await asyncio.sleep(0.2)
        result = await load(one.http_port, 1, lambda: next(waiting, None))
        found.seconds = result.must_be(status).seconds

    async def measure() -> None:
        while True:
            found.peak = max(found.peak, memory_mib(one.pid))
            await asyncio.sleep(0.02)

    measuring = asyncio.ensure_future(measure())
    with processor(one) as spent:
        found.senders, _ = await asyncio.gather(open_loop(one.mllp_port, RATE, 8, SECONDS, message), send())
        found.cpu = spent()
    measuring.cancel()
    return found


def large(folder: Path) -> None:
    """Acknowledgements of 200 messages a second, without and with transactions of 10,000 entries; memory."""
    with service(folder / "default", IPF_LOG_LEVEL="WARN", IPF_WORKER_ENABLED="false") as one:
        message = fresh_messages("L")
        run_load(open_loop(one.mllp_port, RATE, 8, 1, message))
        for number, kind in enumerate(("POST", "If-None-Exist", "PUT", "PUT")):
            alone = run_load(open_loop(one.mllp_port, RATE, 8, SECONDS / 2, message))
            body = bundle(ENTRIES, min(number, 2) * ENTRIES, kind)
            found = run_load(run_concurrently(one, body, message))
            must_be_accepted(found.senders)
            what = f"{ENTRIES:,} entries by {kind}" + (", all existing" if number == 3 else "")
            line(f"{what}: acknowledgements during it", found.waits(), f"alone {waits(alone)}")
            memory = f"memory {found.before:.0f}, at most {found.peak:.0f}, then {memory_mib(one.pid):.0f} MiB"
            line(
                f"  {len(body) / 1e6:.1f} MB in",
                f"{found.seconds:.1f} s",
                f"service {found.cpu:.1f} s of CPU; {memory}",
            )
        refused = run_load(run_concurrently(one, bundle(25_000, 0, "POST"), message, 413))
        line("25,000 entries, refused (413) in", f"{refused.seconds:.2f} s", f"memory at most {refused.peak:.0f} MiB")
    environment = {"IPF_FHIR_MAX_BUNDLE_ENTRIES": "25000", "IPF_LOG_LEVEL": "WARN", "IPF_WORKER_ENABLED": "false"}
    with service(folder / "raised", **environment) as one:
        for number in range(2):
            found = run_load(run_concurrently(one, bundle(25_000, number * 25_000, "POST"), message))
            memory = f"memory {found.before:.0f}, at most {found.peak:.0f}, then {memory_mib(one.pid):.0f} MiB"
            line("25,000 entries, with the limit raised", f"{found.seconds:.1f} s", f"{found.waits()}; {memory}")
