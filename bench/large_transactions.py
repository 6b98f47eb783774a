"""Transactions of the same size, one after another: resident memory after each, compared with what the first left."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from bench.receive import service
from bench.report import line
from bench.senders import run as run_load
from tests.service_process import ServiceProcess, memory_mib

ENTRIES = 25_000
TRANSACTIONS = 5
SETTLED = 6  # equal readings, 2.5 s apart: free memory is returned again after ten seconds


def large_transactions(folder: Path) -> None:
    """Resident memory after each of five transactions of 25,000 entries, against what the first left."""
    environment = {"IPF_FHIR_MAX_BUNDLE_ENTRIES": str(ENTRIES), "IPF_LOG_LEVEL": "WARN", "IPF_WORKER_ENABLED": "false"}
    with service(folder, **environment) as one:
        line("resident memory at the start", f"{memory_mib(one.pid):.0f} MiB")
        first = 0.0
        for number in range(TRANSACTIONS):
            body = _bundle(number * ENTRIES)
            status, answer = one.request("POST", "/fhir", body, {"Content-Type": "application/fhir+json"})
            assert status == 200, str(answer)[:500]
            at_once = memory_mib(one.pid)
            left = run_load(_settled(one))
            first = first or left
            what = f"transaction {number + 1}, {ENTRIES:,} entries, {len(body) / 1e6:.1f} MB"
            line(what, f"{left:.0f} MiB", f"at its answer {at_once:.0f} MiB; {left / first:.2f} x what the first left")


async def _settled(one: ServiceProcess) -> float:
    """Resident memory once it does not change any more."""
    readings: list[float] = []
    while len(readings) < SETTLED or max(readings[-SETTLED:]) - min(readings[-SETTLED:]) > 1:
        await asyncio.sleep(2.5)
        readings.append(memory_mib(one.pid))
    return readings[-1]


def _bundle(first: int) -> bytes:
    """Patients, each with four Observations that refer to it."""
    entries: list[dict[str, Any]] = []
    patient = ""
    for number in range(first, first + ENTRIES):
        url = f"urn:uuid:{number:032}"
        if number % 5 == 0:
            patient, resource = url, _patient(number)
        else:
            resource = _observation(number, patient)
        request = {"method": "POST", "url": resource["resourceType"]}
        entries.append({"fullUrl": url, "resource": resource, "request": request})
    return json.dumps({"resourceType": "Bundle", "type": "transaction", "entry": entries}).encode()


def _patient(number: int) -> dict[str, Any]:
    identifier = {"system": "urn:mrn", "value": f"B{number}"}
    name = {"family": f"Family{number % 300}", "given": ["Anna"]}
    return {"resourceType": "Patient", "identifier": [identifier], "name": [name], "gender": "female"}


def _observation(number: int, patient: str) -> dict[str, Any]:
    category = {"system": "http://terminology.hl7.org/CodeSystem/observation-category", "code": "vital-signs"}
    code = {"system": "http://loinc.org", "code": f"85{number % 50}-4", "display": "Some measure"}
    quantity = {"value": number / 7, "unit": "mm", "system": "http://unitsofmeasure.org", "code": "mm"}
    return {
        "resourceType": "Observation",
        "status": "final",
        "category": [{"coding": [category]}],
        "code": {"coding": [code], "text": "Some measure"},
        "subject": {"reference": patient},
        "effectiveDateTime": f"20{number % 20:02}-03-1{number % 9}T10:00:00+01:00",
        "valueQuantity": quantity,
    }
