"""`Observation/$lastn` of a patient with 50,000 Observations of 200 codes, beside 50,000 of others.

The rows are inserted by SQL.  The references are plain searches for the same patient in the same run: the newest page
of all Observations, and of one code.
"""

from __future__ import annotations

import http.client
import statistics
import time
from pathlib import Path

from bench.receive import postgres_socket, service
from bench.report import line
from tests.service_process import ServiceProcess
from tests.traffic.psql import psql

OBSERVATIONS = 50_000
CODES = 200
TIMES = 30
_SAMPLE = {
    "resourceType": "Observation", "status": "final", "subject": {"reference": "Patient/sample"},
    "effectiveDateTime": "2020-01-01", "code": {"coding": [{"system": "http://loinc.org", "code": "sample"}]},
    "category": [{"coding": [{"system": "urn:k", "code": "sample"}]}],
}  # fmt: skip
_BODY = """'{"resourceType":"Observation","id":"o' || n || '","status":"final","subject":{"reference":"' || ref
 || '"},"effectiveDateTime":"' || to_char(at, 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
 || '","category":[{"coding":[{"system":"urn:k","code":"'
 || category || '"}]}],"code":{"coding":[{"system":"http://loinc.org","code":"c' || code || '"}]},"note":[{"text":"'
 || repeat('lorem ipsum ', 30) || '"}]}'"""


def fill() -> tuple[str, ...]:
    """The statements that insert the Observations: every second one is of the patient, every second code laboratory."""
    observations = f"""(SELECT n, CASE WHEN n % 2 = 0 THEN 'Patient/many' ELSE 'Patient/p' || n % 5000 END AS ref,
        n / 2 % {CODES} AS code, CASE WHEN n / 2 % 2 = 0 THEN 'laboratory' ELSE 'vital-signs' END AS category,
        timestamptz '2020-01-01Z' + n * interval '10 minutes' AS at FROM generate_series(1, {2 * OBSERVATIONS}) n) x"""
    low = "(extract(epoch FROM at) * 1000000)::bigint"
    texts = {
        "subject": "ref", "code": r"'c' || code || E'\thttp://loinc.org'", "status": r"E'final\t'",
        "category": r"category || E'\turn:k'",
        "$lastn": rf"ref || E'\n' || md5('c' || code || category) || E'\n8' || lpad(to_hex({low}), 15, '0')",
    }  # fmt: skip
    return (
        "SELECT setval('rid_blocks', 10000000)",
        "TRUNCATE resources, resource_versions, index_text, index_date, index_quantity, index_words",
        f"INSERT INTO resources SELECT n, 1, 'Observation', 'o' || n, 1, now(), false FROM {observations}",
        "INSERT INTO resource_versions SELECT n, 1, 1, now(), 'PUT', false, gen_random_uuid(), "
        f"{_BODY} FROM {observations}",
        *(f"INSERT INTO index_text SELECT 1, {_number(code)}, {value}, n FROM {observations}"
          for code, value in texts.items()),
        f"INSERT INTO index_date SELECT 1, {_number('date')}, {low}, {low} + 1000000, n FROM {observations}",
        "VACUUM ANALYZE resources, resource_versions, index_text, index_date",
    )  # fmt: skip


def bench(folder: Path) -> None:
    """$lastn of a patient with 50,000 Observations."""
    with service(folder, IPF_LOG_LEVEL="WARN", IPF_WORKER_PROCESSES="0") as one:
        status, answer = one.request("POST", "/fhir/Observation", _SAMPLE)
        assert status == 201, answer
        for statement in fill():
            psql(postgres_socket(one), statement, "fhir")
        many = "patient=many"
        for what, url, count in (
            ("plain search, newest first, 100 of 50,000", f"Observation?{many}&_sort=-date&_count=100", 100),
            ("the same without total", f"Observation?{many}&_sort=-date&_count=100&_total=none", 100),
            ("plain search, one code, newest first", f"Observation?{many}&code=c7&_sort=-date&_count=1", 1),
            ("$lastn, category of 100 codes", f"Observation/$lastn?{many}&category=urn:k|laboratory", 100),
            ("$lastn, the same, max=3", f"Observation/$lastn?{many}&category=urn:k|laboratory&max=3", 300),
            ("$lastn, category without system", f"Observation/$lastn?{many}&category=laboratory", 100),
            ("$lastn, all 200 codes", f"Observation/$lastn?{many}&code:missing=false", 200),
            ("$lastn, one code", f"Observation/$lastn?{many}&code=c7", 1),
            (
                "$lastn, code:missing=false&status=amended (none)",
                f"Observation/$lastn?{many}&code:missing=false&status=amended",
                0,
            ),
            (
                "$lastn, code:missing=false&date=lt2019 (none)",
                f"Observation/$lastn?{many}&code:missing=false&date=lt2019",
                0,
            ),
            (
                "$lastn, code:missing=false&date=lt2020-01-02 (few)",
                f"Observation/$lastn?{many}&code:missing=false&date=lt2020-01-02",
                71,
            ),
            (
                "$lastn, code:missing=false&date=lt2020-02 (2,200)",
                f"Observation/$lastn?{many}&code:missing=false&date=lt2020-02",
                200,
            ),
            (
                "$lastn, code:missing=false&date=ge2021-11-24 (few)",
                f"Observation/$lastn?{many}&code:missing=false&date=ge2021-11-24",
                105,
            ),
            (
                "$lastn, code:missing=false&date=ge2021 (many)",
                f"Observation/$lastn?{many}&code:missing=false&date=ge2021",
                200,
            ),
        ):
            middle, most = _measured(one, url, count)
            line(what, f"{middle:.1f} ms, most {most:.1f} ms", f"{count} Observations")


def _number(code: str) -> str:
    return f"(SELECT id FROM search_parameters WHERE resource_type = 'Observation' AND code = '{code}')"


def _measured(one: ServiceProcess, url: str, count: int) -> tuple[float, float]:
    """Median and maximum in milliseconds of sequential requests on one connection; the first one is left out."""
    connection = http.client.HTTPConnection("127.0.0.1", one.http_port, timeout=60)
    times = []
    for _ in range(TIMES + 1):
        began = time.perf_counter()
        connection.request("GET", f"/fhir/{url}")
        answer = connection.getresponse()
        body = answer.read()
        times.append((time.perf_counter() - began) * 1000)
        assert answer.status == 200 and body.count(b'"mode":"match"') == count, body[:500]
    connection.close()
    return statistics.median(times[1:]), max(times[1:])
