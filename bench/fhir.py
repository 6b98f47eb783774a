"""The FHIR server over HTTP: reads, searches, creates, and the import of Synthea patients.

The load generator and PostgreSQL run on the same cores.  Each figure has a reference, PostgreSQL alone in the
same run, and the processor time that the service spent for one request.
"""

from __future__ import annotations

import bz2
import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from bench.http_load import Load, get, load, post
from bench.limits import plain_inserts, plain_reads
from bench.receive import postgres_socket, service
from bench.report import line
from bench.senders import run as run_load
from tests.service_process import ROOT, ServiceProcess, memory_mib
from tests.traffic.psql import psql

CLIENTS = 16
SECONDS = 5
SYNTHEA = ROOT.parent / "shared/reference/load"
PATIENTS = 2000
MARITAL_STATUS = "http://terminology.hl7.org/CodeSystem/v3-MaritalStatus"


def patient(number: int) -> dict[str, object]:
    """A Patient of a kilobyte."""
    return {
        "resourceType": "Patient",
        "identifier": [{"system": "urn:mrn", "value": f"B{number}"}],
        "active": True,
        "name": [{"use": "official", "family": f"Family{number % 300}", "given": ["Given", f"Second{number % 50}"]}],
        "telecom": [{"system": "phone", "value": f"555-{number:07}", "use": "home"}],
        "gender": ("male", "female")[number % 2],
        "birthDate": f"19{number % 100:02}-0{number % 9 + 1}-1{number % 10}",
        "address": [
            {"line": [f"{number} Street"], "city": f"City{number % 100}", "postalCode": "12345", "country": "AT"}
        ],
        "maritalStatus": {
            "coding": [{"system": "http://terminology.hl7.org/CodeSystem/v3-MaritalStatus", "code": "M"}]
        },
    }


@contextmanager
def processor(one: ServiceProcess) -> Iterator[Callable[[], float]]:
    """Processor seconds of the service since then."""
    process = psutil.Process(one.pid)

    def spent() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    began = spent()
    yield lambda: spent() - began


def measured(one: ServiceProcess, what: str, make: Callable[[], bytes], reference: str, *statuses: int) -> None:
    """One line: rate, latencies, processor time of the service."""
    run_load(load(one.http_port, CLIENTS, make, 1))
    with processor(one) as spent:
        result: Load = run_load(load(one.http_port, CLIENTS, make, SECONDS)).must_be(*(statuses or (200,)))
        cost = spent() / sum(result.statuses.values()) * 1e6
    figures = f"{result.rate:,.0f}/s"
    waits = f"p50 {result.percentile(0.5):.1f} p99 {result.percentile(0.99):.1f} ms, {cost:.0f} us of one core"
    line(what, figures, f"{reference}; {waits}")


def bare_klein(body: bytes) -> float:
    """Requests per second of a Klein application that does nothing, in a process of its own."""
    command = [sys.executable, "-m", "bench.bare_klein"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(body + b"\n")
        server.stdin.flush()
        port = int(server.stdout.readline())
        rate = run_load(load(port, CLIENTS, lambda: get("/fhir/Patient/b1"), SECONDS)).must_be(200).rate
        server.stdin.close()
    return rate


def interactions(folder: Path) -> None:
    """Reads, searches of 20 hits and creates of 16 clients, one process."""
    with service(folder, IPF_LOG_LEVEL="WARN", IPF_WORKER_PROCESSES="0") as one:
        where = postgres_socket(one)
        ids = _stored(one)
        body = json.dumps(patient(1))
        reads, inserts = plain_reads(where, body, 3, CLIENTS), plain_inserts(where, body.encode(), 3, CLIENTS)
        bare = bare_klein(body.encode())
        numbers, numbering = random.Random(1), itertools.count(PATIENTS)
        measured(one, "metadata (no store)", lambda: get("/fhir/metadata?mode=terminology"), "")
        measured(
            one,
            "read by id",
            lambda: get(f"/fhir/Patient/{numbers.choice(ids)}"),
            f"target 4,000/s; bare Klein {bare:,.0f}/s; plain reads {reads:,.0f}/s",
        )
        measured(
            one,
            "search, 20 Observations of a patient",
            lambda: get(f"/fhir/Observation?patient=b{numbers.randrange(300)}&_count=20"),
            "target 2,500/s",
        )
        measured(
            one,
            "search, 20 of a name and gender",
            lambda: get(
                f"/fhir/Patient?family=Family{numbers.randrange(300)}&gender=male,female&_count=20&_total=none"
            ),
            "",
        )
        measured(
            one,
            "search by identifier",
            lambda: get(f"/fhir/Patient?identifier=urn:mrn|B{numbers.randrange(PATIENTS)}"),
            "",
        )
        measured(
            one,
            "create",
            lambda: post("/fhir/Patient", json.dumps(patient(next(numbering))).encode()),
            f"target 1,500/s; plain inserts {inserts:,.0f}/s",
            201,
        )


def observation(number: int) -> dict[str, object]:
    """An Observation of 700 bytes; twenty of each patient."""
    return {
        "resourceType": "Observation",
        "id": f"o{number}",
        "status": "final",
        "category": [{"coding": [{"system": "urn:category", "code": "vital-signs"}]}],
        "code": {"coding": [{"system": "http://loinc.org", "code": f"{number % 20}-1", "display": "A measurement"}]},
        "subject": {"reference": f"Patient/b{number // 20}"},
        "effectiveDateTime": f"2020-01-{number % 28 + 1:02}T10:00:00Z",
        "issued": "2020-01-01T10:00:00.000Z",
        "valueQuantity": {"value": number % 100, "unit": "mg", "system": "http://unitsofmeasure.org", "code": "mg"},
        "note": [{"text": "a remark of some length about it; " * 6}],
    }


def _stored(one: ServiceProcess) -> list[str]:
    """Patients for reads and searches, twenty for each family name, and Observations; ids of the patients."""
    entries = [
        {"request": {"method": "PUT", "url": f"Patient/b{number}"},
         "resource": {**patient(number % 300 + number // 300 * 300), "id": f"b{number}"}}
        for number in range(20 * 300)
    ]  # fmt: skip
    ids = [f"b{number}" for number in range(len(entries))]
    entries += [
        {"request": {"method": "PUT", "url": f"Observation/o{number}"}, "resource": observation(number)}
        for number in range(20 * 300)
    ]
    for start in range(0, len(entries), 500):
        bundle = {"resourceType": "Bundle", "type": "transaction", "entry": entries[start : start + 500]}
        status, answer = one.request("POST", "/fhir", bundle)
        assert status == 200, answer
    return ids


def synthea(folder: Path) -> None:
    """Import of 20 Synthea patients as transactions: resources per second, and the processor time of each part."""
    if not SYNTHEA.exists():
        line("the reference folder with Synthea patients does not exist", "-")
        return
    files = [bz2.decompress(path.read_bytes()) for path in sorted(SYNTHEA.glob("*.bz2"))]
    first, patients = files[:2], files[2:]
    entries = sum(len(json.loads(text)["entry"]) for text in patients)
    for clients in (1, 2):
        with service(folder / str(clients), IPF_LOG_LEVEL="WARN", IPF_WORKER_PROCESSES="0") as one:
            for text in first:
                run_load(load(one.http_port, 1, requests_of([text]))).must_be(200)
            waiting = requests_of(patients)
            before = memory_mib(one.pid)
            with processor(one) as spent:
                result: Load = run_load(load(one.http_port, clients, waiting)).must_be(200)
                cost = spent()
            rows = psql(postgres_socket(one), "SELECT count(*) FROM resources", "fhir").strip()
            line(
                f"{entries} entries in {len(patients)} transactions, {clients} clients",
                f"{entries / result.seconds:,.0f}/s",
                f"target 3,000/s; service {cost / entries * 1e6:.0f} us an entry of "
                f"{result.seconds / entries * 1e6:.0f}; {rows} resources; memory {before:.0f} to "
                f"{memory_mib(one.pid):.0f} MiB",
            )


def requests_of(bundles: Sequence[bytes]) -> Callable[[], bytes | None]:
    """A request for each Bundle, then None."""
    waiting = iter(bundles)

    def next_request() -> bytes | None:
        text = next(waiting, None)
        return None if text is None else post("/fhir", text, "Prefer: return=minimal\r\n")

    return next_request


def bench(folder: Path) -> None:
    """Reads, searches and creates of 16 clients, and the import of Synthea patients."""
    interactions(folder / "interactions")
    synthea(folder / "synthea")
