"""Searches on 1,000,000 resources: by identifier, by patient, code and date, by a chained identifier, and in order.

The resources are inserted into the store's tables by SQL: 100,000 Patients and nine Observations of each.  The
reference is a plain indexed SELECT of as many bodies through psycopg2 on the same server.
"""

from __future__ import annotations

import http.client
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import psycopg2

from bench.receive import postgres_socket, service
from bench.report import line
from tests.service_process import ServiceProcess
from tests.traffic.psql import psql

PATIENTS = 100_000
TIMES = 200
DATABASE = "fhir"
SAMPLES = (
    {"resourceType": "Patient", "identifier": [{"system": "urn:mrn", "value": "sample"}], "gender": "male",
     "birthDate": "1980", "name": [{"family": "Sample"}]},
    {"resourceType": "Observation", "status": "final", "subject": {"reference": "Patient/sample"},
     "effectiveDateTime": "2020-01-01", "code": {"coding": [{"system": "http://loinc.org", "code": "sample"}]},
     "valueQuantity": {"value": 1, "unit": "mg", "code": "mg", "system": "http://unitsofmeasure.org"}},
)  # fmt: skip
DAY = 86_400_000_000
_PARAM = "(SELECT id FROM search_parameters WHERE resource_type = '{}' AND code = '{}')"


def _param(resource_type: str, code: str) -> str:
    return _PARAM.format(resource_type, code)


def fill(patients: int) -> tuple[str, ...]:
    """The statements that insert Patients, and nine Observations of each, into the store's tables."""
    persons = f"FROM generate_series(1, {patients}) n"
    observations = f"FROM generate_series({patients + 1}, {patients * 10}) n"
    subject = f"(n % {patients} + 1)"
    return (
        "SELECT setval('rid_blocks', 10000000)",
        "TRUNCATE resources, resource_versions, index_text, index_date, index_quantity, index_words",
        f"INSERT INTO resources SELECT n, 1, 'Patient', 'p' || n, 1, now(), false {persons}",
        f"INSERT INTO resources SELECT n, 1, 'Observation', 'o' || n, 1, now(), false {observations}",
        "INSERT INTO resource_versions SELECT n, 1, 1, now(), 'PUT', false, gen_random_uuid(), "
        '\'{"resourceType":"Patient","id":"p\' || n || \'",\' '
        '|| \'"identifier":[{"system":"urn:mrn","value":"m\' || n '
        f'|| \'"}}],"name":[{{"family":"Family\' || n % 5000 || \'"}}]}}\' {persons}',
        "INSERT INTO resource_versions SELECT n, 1, 1, now(), 'PUT', false, gen_random_uuid(), "
        '\'{"resourceType":"Observation","id":"o\' || n || \'","status":"final",\' '
        f'|| \'"subject":{{"reference":"Patient/p\' || {subject} || \'"}},\' '
        '|| \'"code":{"coding":[{"code":"c\' || n % 9 || \'"}]},"note":[{"text":"\' '
        f"|| repeat('lorem ipsum ', 30) || '\"}}]}}' {observations}",
        f"INSERT INTO index_text SELECT 1, {_param('Patient', 'identifier')}, 'm' || n || E'\\turn:mrn', n {persons}",
        f"INSERT INTO index_text SELECT 1, {_param('Patient', 'gender')}, "
        f"(ARRAY['male','female'])[n % 2 + 1] || E'\\t', n {persons}",
        f"INSERT INTO index_text SELECT 1, {_param('Patient', 'family')}, "
        f"'family' || n % 5000 || E'\\tFamily' || n % 5000, n {persons}",
        f"INSERT INTO index_text SELECT 1, {_param('Observation', 'subject')}, "
        f"'Patient/p' || {subject}, n {observations}",
        f"INSERT INTO index_text SELECT 1, {_param('Observation', 'code')}, 'c' || (n / {patients}) % 9 "
        f"|| E'\\thttp://loinc.org', n {observations}",
        f"INSERT INTO index_text SELECT 1, {_param('Observation', 'status')}, E'final\\t', n {observations}",
        f"INSERT INTO index_date SELECT 1, {_param('Observation', 'date')}, 1500000000000000 + n % 3000 * {DAY}, "
        f"1500000000000000 + (n % 3000 + 1) * {DAY}, n {observations}",
        "VACUUM ANALYZE resources, resource_versions, index_text, index_date",
    )


def search(folder: Path) -> None:
    """Searches on 1,000,000 resources, each page under 20 ms."""
    with service(folder, IPF_LOG_LEVEL="WARN", IPF_WORKER_PROCESSES="0") as one:
        for sample in SAMPLES:
            status, answer = one.request("POST", f"/fhir/{sample['resourceType']}", sample)
            assert status == 201, answer
        began = time.perf_counter()
        for statement in fill(PATIENTS):
            psql(postgres_socket(one), statement, DATABASE)
        line("1,000,000 resources inserted", f"{time.perf_counter() - began:.0f} s")
        chosen = random.Random(7)

        def anyone() -> int:
            return chosen.randrange(1, PATIENTS + 1)

        for what, make in (
            ("by identifier", lambda: f"Patient?identifier={quote(f'urn:mrn|m{anyone()}')}"),
            ("by patient, code and date",
             lambda: f"Observation?patient=p{anyone()}&code={quote('http://loinc.org|c1')}&date=ge2017"),
            ("by a chained identifier", lambda: f"Observation?patient.identifier={quote(f'urn:mrn|m{anyone()}')}"),
            ("by patient, newest first", lambda: f"Observation?patient=p{anyone()}&_sort=-date"),
            ("by family name", lambda: f"Patient?family=family{anyone() % 5000}"),
            ("all Observations, newest first", lambda: "Observation?_sort=-date&_count=20&_total=none"),
            ("of a code, newest first",
             lambda: f"Observation?code={quote('http://loinc.org|c1')}&_sort=-date&_count=20&_total=none"),
            ("by identifier and _has",
             lambda: f"Patient?identifier={quote(f'urn:mrn|m{anyone()}')}&_has:Observation:patient:status=final"),
        ):  # fmt: skip
            middle, slow = _measured(one, make)
            line(what, f"{middle:.1f} ms, p99 {slow:.1f} ms", "target 20 ms")
        middle, slow = _plain(one, anyone)
        line("plain SELECT of nine bodies by an index, psycopg2", f"{middle:.2f} ms, p99 {slow:.2f} ms", "the machine")


def _measured(one: ServiceProcess, make: Callable[[], str]) -> tuple[float, float]:
    """Median and p99 in milliseconds of sequential requests on one connection; every page has a match."""
    connection = http.client.HTTPConnection("127.0.0.1", one.http_port, timeout=60)
    times = []
    for _ in range(TIMES):
        began = time.perf_counter()
        connection.request("GET", f"/fhir/{make()}")
        answer = connection.getresponse()
        body = answer.read()
        times.append((time.perf_counter() - began) * 1000)
        assert answer.status == 200 and b'"mode":"match"' in body, body[:500]
    connection.close()
    return statistics.median(times), sorted(times)[int(0.99 * TIMES)]


def _plain(one: ServiceProcess, anyone: Callable[[], int]) -> tuple[float, float]:
    connection = psycopg2.connect(host=str(postgres_socket(one)), user="ipf", dbname=DATABASE)
    cursor, times = connection.cursor(), []
    cursor.execute(f"SELECT {_param('Observation', 'subject')}")
    row = cursor.fetchone()
    assert row is not None
    for _ in range(TIMES):
        began = time.perf_counter()
        cursor.execute(
            "SELECT v.body FROM index_text t JOIN resource_versions v ON v.rid = t.rid AND v.version_id = 1 "
            "WHERE t.partition_id = 1 AND t.param = %s AND t.val = %s ORDER BY t.rid LIMIT 20",
            (row[0], f"Patient/p{anyone()}"),
        )
        assert len(cursor.fetchall()) == 9
        times.append((time.perf_counter() - began) * 1000)
    connection.close()
    return statistics.median(times), sorted(times)[int(0.99 * TIMES)]
