"""Searches on 100,000 Synthea resources: the heavy ones, which must take less than 150 ms, and those of every day.

The patients of the reference folder are stored several times over as transactions (`synthea.py`).  Each question is
asked over HTTP, its first page and the next one.  The store is then asked the same questions in turns with the pool's
planner settings and with PostgreSQL's own (`planner.py`, a process of its own).
"""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg2

from bench.fhir import SYNTHEA, requests_of
from bench.http_load import load
from bench.receive import postgres_socket, service
from bench.report import line
from bench.search import DATABASE
from bench.senders import run as run_load
from bench.synthea import SHARED_FILES, synthea
from tests.service_process import ROOT
from tests.traffic.psql import psql

RESOURCES = 100_000
TIMES = 15
LABORATORY = "Observation?category=laboratory"
BODY_HEIGHT = "code=http://loinc.org|8302-2"
HEAVY = (
    f"{LABORATORY}&_sort=-date",
    f"Observation?subject:Patient.name=a&encounter:Encounter.class=AMB&{BODY_HEIGHT}",
    f"Observation?patient.gender=female&encounter.class=AMB&{BODY_HEIGHT}&_sort=-date",
    "Observation?code:text=glucose",
    "Condition?code:text=disorder",
    "Observation?_sort=code,-date",
    f"{LABORATORY}&_sort=code,-date",
    f"{LABORATORY}&_total=accurate",
    "Observation?_total=accurate",
    "Patient?name=a&_total=accurate",
    f"{LABORATORY}&date=ge2015&_sort=-date",
    "Observation?patient.gender=female&encounter.class=AMB",
    "Observation?_sort=patient,-date",
)
EVERYDAY = (
    "Patient?identifier={identifier}",
    "Observation?patient={patient}",
    f"Observation?patient={{patient}}&{BODY_HEIGHT}",
    "Observation?patient={patient}&category=laboratory&date=ge2015",
    "Observation?patient={patient}&_sort=-date",
    "Observation?patient={patient}&encounter.class=AMB",
    "Patient?name=ab",
    "Patient?birthdate=ge1970",
    "Patient?_has:Observation:patient:code=8302-2",
    "Encounter?patient={patient}&_sort=-date&_include=Encounter:participant",
    "Patient?gender=female&_revinclude=Condition:subject",
    "Observation?_lastUpdated=gt2020&_sort=-_lastUpdated",
    "Observation?code:not=8302-2",
    "Observation?value-quantity:missing=true",
    "Observation?value-quantity=gt100||mg/dL",
)


def heavy(folder: Path) -> None:
    """Heavy and everyday searches on 100,000 Synthea resources, and under PostgreSQL's own planner settings."""
    if not SYNTHEA.exists():
        line("the reference folder with Synthea patients does not exist", "-")
        return
    with service(folder, IPF_LOG_LEVEL="WARN", IPF_WORKER_PROCESSES="0") as one:
        bundles = list(synthea(RESOURCES))
        began = time.perf_counter()
        run_load(load(one.http_port, 1, requests_of(bundles[:SHARED_FILES]))).must_be(200)
        run_load(load(one.http_port, 2, requests_of(bundles[SHARED_FILES:]))).must_be(200)
        count = psql(postgres_socket(one), "SELECT count(*) FROM resources", DATABASE).strip()
        line(f"{count} resources stored", f"{time.perf_counter() - began:.0f} s")
        connection = http.client.HTTPConnection("127.0.0.1", one.http_port, timeout=120)
        known = _known(connection)
        questions = [question.format(**known) for question in (*HEAVY, *EVERYDAY)]
        planned = _planned(postgres_socket(one), questions)
        for question in questions:
            first, following = _asked(connection, question)
            ours, defaults = planned[question]
            line(
                question.replace(known["identifier"], "...").replace(known["patient"], "..."),
                f"{statistics.median(first):.1f} ms, max {max(first):.1f} ms",
                f"{'target 150 ms; ' if question in HEAVY else ''}next page {following:.1f} ms; "
                f"store alone {ours:.1f} ms, with PostgreSQL's planner settings {defaults:.1f} ms",
            )
        for what, milliseconds in _plain(postgres_socket(one)):
            line(what, f"{milliseconds:.1f} ms", "the machine")


def _get(connection: http.client.HTTPConnection, path: str) -> tuple[float, Any]:
    """Milliseconds and the searchset."""
    began = time.perf_counter()
    connection.request("GET", path.replace("|", "%7C"))
    answer = connection.getresponse()
    body = answer.read()
    spent = (time.perf_counter() - began) * 1000
    assert answer.status == 200, (path, body[:500])
    return spent, json.loads(body)


def _known(connection: http.client.HTTPConnection) -> dict[str, str]:
    """A patient and an identifier of it."""
    resource = _get(connection, "/fhir/Patient?_count=1")[1]["entry"][0]["resource"]
    identifier = resource["identifier"][0]
    return {"patient": resource["id"], "identifier": f"{identifier['system']}|{identifier['value']}"}


def _asked(connection: http.client.HTTPConnection, question: str) -> tuple[list[float], float]:
    """Milliseconds of first pages, and the median of the next page (0 when there is none)."""
    answers = [_get(connection, f"/fhir/{question}") for _ in range(TIMES)]
    links = [link["url"] for link in answers[-1][1]["link"] if link["relation"] == "next"]
    further = [_get(connection, f"/fhir{links[0].partition('/fhir')[2]}")[0] for _ in range(TIMES if links else 0)]
    return [spent for spent, _ in answers], statistics.median(further or [0.0])


def _planned(socket_folder: Path, questions: list[str]) -> dict[str, tuple[float, float]]:
    command = [sys.executable, "-m", "bench.planner", str(socket_folder)]
    done = subprocess.run(command, cwd=ROOT, input=json.dumps(questions).encode(), stdout=subprocess.PIPE, check=True)
    return {question: tuple(times) for question, times in json.loads(done.stdout).items()}


def _plain(socket_folder: Path) -> list[tuple[str, float]]:
    """Medians of a count over an index and of 50 bodies by their key, through psycopg2."""
    connection = psycopg2.connect(host=str(socket_folder), user="ipf", dbname=DATABASE)
    cursor = connection.cursor()

    def median(sql: str) -> float:
        times = []
        for _ in range(TIMES):
            began = time.perf_counter()
            cursor.execute(sql)
            cursor.fetchall()
            times.append((time.perf_counter() - began) * 1000)
        return statistics.median(times)

    measured: Callable[[str], float] = median
    observations = "FROM resources WHERE partition_id = 1 AND resource_type = 'Observation' AND NOT deleted"
    found = [
        ("count of all Observations by an index", measured(f"SELECT count(*) {observations}")),
        ("50 bodies by key", measured(f"SELECT body FROM (SELECT rid, version_id {observations} ORDER BY rid LIMIT 50)"
                                      " r JOIN resource_versions v USING (rid, version_id)")),
    ]  # fmt: skip
    connection.close()
    return found
