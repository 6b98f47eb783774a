"""Large messages and Bundles: the time until all of it is stored, and its growth with the size; the first message."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from bench.receive import service
from bench.report import line
from bench.senders import run as run_load
from ipf.app.runtime.garbage import collect_rarely
from ipf.mapping.language.grammar import parse
from ipf.mapping.library.mapset import MapSet
from tests.flows.test_end_to_end import answer_to
from tests.service_process import ServiceProcess
from tests.traffic.messages_results import oru_orders

SIZES = ((1, 500), (1, 5_000), (20, 20), (200, 20))
TARGETS = {(1, 5_000): "target 5 s", (200, 20): "target 6 s"}

MAP = """/// url = "urn:bench"
group main(source src : Bundle, target tgt : Bundle) {
  src.entry as e -> tgt.entry as t then {
    e.resource : Observation as o -> t.resource = create('Observation') as p then Observation(o, p);
  };
}
group Observation(source src : Observation, target tgt : Observation) {
  src.status as s -> tgt.status = s;
  src.category as c -> tgt.category = c;
  src.code as c -> tgt.code = c;
  src.subject as s -> tgt.subject = s;
  src.value : Quantity as v -> tgt.value = v;
}"""


def large_messages(folder: Path) -> None:
    """ORU^R01 of 5,000 OBX and of 200 orders, stored; a Bundle of 10,000 entries through a map"""
    with service(folder / "default", IPF_LOG_LEVEL="WARN") as one:
        line("first message after readiness", f"{_stored(one, 1, 1, 'F'):.2f} s", "target 2 s")
        for small, large in (SIZES[:2], SIZES[2:]):
            found = [min(_stored(one, *size, f"L{turn}{size}") for turn in range(2)) for size in (small, large)]
            growth = f"{small[0] * small[1]:,} OBX {found[0]:.2f} s: x {found[1] / found[0]:.1f}"
            line(f"{large[0]} OBR x {large[1]:,} OBX", f"{found[1]:.2f} s", f"{growth}; {TARGETS[large]}")
    _bundles()


def _stored(one: ServiceProcess, orders: int, results: int, key: str) -> float:
    """Seconds from the acknowledgement of a message until its conversion is stored."""
    name = key.replace(" ", "").strip("()")

    async def send() -> float:
        await answer_to(one.mllp_port, oru_orders(orders, results, name, f"P{name}"))
        began = time.perf_counter()
        while True:
            _, page = await asyncio.to_thread(one.get, f"/admin/messages?source_id={name}")
            states = [item["status"] for item in page["items"]]
            if states and states[0] not in ("RECEIVED", "TRANSFORMING"):
                assert states == ["DELIVERED"], page
                return time.perf_counter() - began
            await asyncio.sleep(0.01)

    return run_load(send())


def _bundles() -> None:
    maps = MapSet([parse(MAP)])
    maps.program("urn:bench")
    collect_rarely()  # as the service does at its start
    costs = {}
    for size in (1_000, 10_000):
        source = {"resourceType": "Bundle", "entry": [_entry(number) for number in range(size)]}
        times = []
        for _ in range(3):
            began = time.process_time()
            maps.transform("urn:bench", source)
            times.append(time.process_time() - began)
        costs[size] = min(times)
    growth = f"1,000 entries {costs[1_000]:.3f} s: x {costs[10_000] / costs[1_000]:.1f}"
    line("a Bundle of 10,000 entries through a map, processor time", f"{costs[10_000]:.3f} s", growth)


def _entry(number: int) -> dict[str, Any]:
    coding = {"system": "http://loinc.org", "code": str(number), "display": "A test"}
    return {
        "resource": {
            "resourceType": "Observation",
            "status": "final",
            "category": [{"coding": [{"code": "laboratory"}]}],
            "code": {"coding": [coding], "text": "A test"},
            "subject": {"reference": "Patient/1"},
            "valueQuantity": {"value": number, "unit": "mg/dL"},
        }
    }
