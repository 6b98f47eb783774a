"""Import of Synthea patients into an empty store, and into one of 2,000,000 resources.

The resources are inserted into the store's tables by SQL (`search.py`): 200,000 Patients and nine Observations of each.
"""

from __future__ import annotations

import bz2
import json
import time
from pathlib import Path

from bench.fhir import SYNTHEA, requests_of
from bench.http_load import Load, load
from bench.receive import postgres_socket, service
from bench.report import line
from bench.search import DATABASE, SAMPLES, fill
from bench.senders import run as run_load
from tests.service_process import ServiceProcess
from tests.traffic.psql import psql

PATIENTS = 200_000


def growth(folder: Path) -> None:
    """Import of Synthea patients into an empty store, and into one of 2,000,000 resources."""
    if not SYNTHEA.exists():
        line("the reference folder with Synthea patients does not exist", "-")
        return
    files = [bz2.decompress(path.read_bytes()) for path in sorted(SYNTHEA.glob("*.bz2"))]
    empty = full = 0.0
    with service(folder / "empty", IPF_LOG_LEVEL="WARN", IPF_WORKER_PROCESSES="0") as one:
        empty = _rate(one, files)
    with service(folder / "full", IPF_LOG_LEVEL="WARN", IPF_WORKER_PROCESSES="0") as one:
        for sample in SAMPLES:
            assert one.request("POST", f"/fhir/{sample['resourceType']}", sample)[0] == 201
        began = time.perf_counter()
        for statement in fill(PATIENTS):
            psql(postgres_socket(one), statement, DATABASE)
        psql(postgres_socket(one), "CHECKPOINT", DATABASE)
        one.stop()  # it has reserved internal numbers that the fill uses
        one.start()
        one.wait_ready()
        line("2,000,000 resources inserted", f"{time.perf_counter() - began:.0f} s")
        full = _rate(one, files)
    line("entries per second, empty store", f"{empty:,.0f}/s")
    line(
        "entries per second, 2,000,000 resources", f"{full:,.0f}/s", f"{full / empty:.2f} x the empty one; target 0.75"
    )


def _rate(one: ServiceProcess, files: list[bytes]) -> float:
    """Entries per second, after two patients as warm-up."""
    first, patients = files[:2], files[2:]
    run_load(load(one.http_port, 1, requests_of(first))).must_be(200)
    result: Load = run_load(load(one.http_port, 1, requests_of(patients))).must_be(200)
    return sum(len(json.loads(text)["entry"]) for text in patients) / result.seconds
