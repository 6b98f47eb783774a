"""Processor time of the audit trail, for the service and its PostgreSQL, for one operation, in turns (`turns.py`).

One service records nothing, the other records everything, reads and searches too.  Reads are of 300 Patients of 460
bytes, searches find 20 Observations.  8 clients send requests as fast as they are answered, so that a commit holds
several hundred records.  At lower rates the cost of ten commits a second, one to two milliseconds each, is shared by
fewer records.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from pathlib import Path

from bench.fhir import observation, patient
from bench.http_load import get, post
from bench.receive import fresh_messages, service
from bench.senders import closed_loop
from bench.senders import run as run_load
from bench.turns import CLIENTS, compare, requests
from tests.service_process import ServiceProcess
from tests.traffic.messages import adt

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
            fill(one)
        numbers, new = random.Random(1), itertools.count()
        _ingest(off, on)
        for what, make, status in (
            ("read", lambda _: get(f"/fhir/Patient/b{numbers.randrange(STORED)}"), 200),
            ("search, 20 hits", lambda _: get(f"/fhir/Observation?patient=b{numbers.randrange(9)}"), 200),
            ("create", lambda _: post("/fhir/Patient", json.dumps(patient(next(new))).encode()), 201),
        ):
            compare(what, off, on, requests(make, status), "target under +10 %; ")


def _ingest(off: ServiceProcess, on: ServiceProcess) -> None:
    """Messages received, converted and stored."""
    makes = {one.pid: fresh_messages("A", adt) for one in (off, on)}

    def turn(one: ServiceProcess) -> int:
        done = run_load(closed_loop(one.mllp_port, CLIENTS, 0.2, makes[one.pid]))
        waits = "/admin/messages?status=RECEIVED&limit=1", "/admin/messages?status=TRANSFORMING&limit=1"
        while any(one.get(url)[1]["total"] for url in waits):
            run_load(asyncio.sleep(0.1))
        return sum(done.codes.values())

    compare("a message, to its resources", off, on, turn)


def fill(one: ServiceProcess, token: str = "") -> None:
    """Store the resources that are read and found."""
    entries = [
        {"request": {"method": "PUT", "url": f"Patient/b{number}"}, "resource": {**patient(number), "id": f"b{number}"}}
        for number in range(STORED)
    ] + [
        {"request": {"method": "PUT", "url": f"Observation/o{number}"}, "resource": observation(number)}
        for number in range(200)
    ]
    bundle = {"resourceType": "Bundle", "type": "transaction", "entry": entries}
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    status, answer = one.request("POST", "/fhir", bundle, headers)
    if status != 200:
        raise SystemExit(f"{status}: {answer}")
