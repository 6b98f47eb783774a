"""A code system of SNOMED CT's size: import, then codes, filters and `:below` over HTTP.

The system is made from a seed: 400,000 concepts in a hierarchy with 1.5 parents each.  The reference of the import is
COPY of its closure into a table without indexes; those of each request are `SELECT 1` by psycopg2 and a read of a
resource over HTTP.  The processor time of a request is that of the service and of PostgreSQL, with all that they do.
"""

from __future__ import annotations

import http.client
import random
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import psycopg2

from bench.receive import postgres_socket, service
from bench.report import line
from bench.turns import spent
from ipf.ports.fhir.terminology_import import NewConcept, NewSystem
from ipf.store.terminology import rows
from ipf.store.terminology.loading import connected
from tests.service_process import ServiceProcess

CONCEPTS = 400_000
TIMES = 300
URL = "http://bench.test/cs"
ROOT = "1000000"
_STEMS = (
    "heart", "lung", "bone", "skin", "liver", "kidney", "nerve", "vessel", "acute", "chronic", "left", "right", "pain",
    "injury", "disorder", "finding", "procedure", "structure", "function", "congenital", "infectious", "benign",
    "malignant", "recurrent", "primary", "secondary", "upper", "lower",
)  # fmt: skip
_ENDINGS = ("", "al", "ic", "itis", "oma", "ectomy", "ous", "ing")
_BARE = "CREATE TEMP TABLE bare (system_id integer, ancestor integer, descendant integer)"


def bench(folder: Path) -> None:
    """Import of 400,000 concepts, $validate-code, $expand with a filter, and searches with :below."""
    with service(folder) as served:
        system = synthetic()
        url = f"host={postgres_socket(served)} dbname=fhir user=ipf"
        began = time.perf_counter()
        with connected(url) as loader:
            loader.load(system)
        took = time.perf_counter() - began
        line(
            f"import of {CONCEPTS} concepts", f"{took:.0f} s", f"COPY of the closure alone {_copied(url, system):.0f} s"
        )
        _fill(served)
        _requests(served, url)


def synthetic() -> NewSystem:
    """The system: the parents of a concept are among those before it, so that the root is above all."""
    chance = random.Random(20)
    words = [stem + ending for stem in _STEMS for ending in _ENDINGS]
    concepts: dict[str, NewConcept] = {}
    for number in range(CONCEPTS):
        display = f"{' '.join(chance.choices(words, k=chance.randint(2, 8)))} {number}"
        parents = {_code(chance.randrange(number // 4 + 1)) for _ in range(chance.choice((1, 2)))} if number else set()
        properties = [("site", chance.choice(words))]
        concepts[_code(number)] = NewConcept(_code(number), display, parents=sorted(parents), properties=properties)
    return NewSystem(URL, "1", "Bench", properties={"site": "string"}, concepts=concepts)


def _code(number: int) -> str:
    return str(1_000_000 + number)


def _copied(url: str, system: NewSystem) -> float:
    source = rows.CopySource(rows.prepared(system).ancestors(1), lambda done: None)
    with psycopg2.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(_BARE)
        began = time.perf_counter()
        cursor.copy_expert("COPY bare FROM STDIN", source, size=1 << 16)
        return time.perf_counter() - began


def _fill(served: ServiceProcess) -> None:
    """2,000 Observations with codes of the system."""
    chance = random.Random(21)
    for _ in range(4):
        entries = [
            {
                "request": {"method": "POST", "url": "Observation"},
                "resource": {
                    "resourceType": "Observation",
                    "status": "final",
                    "code": {"coding": [{"system": URL, "code": _code(chance.randrange(CONCEPTS))}]},
                },
            }
            for _ in range(500)
        ]
        status, _ = served.request("POST", "/fhir", {"resourceType": "Bundle", "type": "transaction", "entry": entries})
        assert status == 200, status


def _requests(served: ServiceProcess, url: str) -> None:
    chance = random.Random(22)
    any_code = lambda: _code(chance.randrange(CONCEPTS))  # noqa: E731
    _put_value_sets(served)
    two = [f"{chance.choice(_STEMS)} {chance.choice(_STEMS)[:4]}" for _ in range(TIMES)]
    expand, large, small = (
        f"/fhir/ValueSet/$expand?url={quote(URL)}/{one}&count=20&filter=" for one in ("all", "large", "small")
    )
    below = f"/fhir/Observation?_count=50&_total=none&code:below={quote(URL)}|"
    with psycopg2.connect(url) as connection, connection.cursor() as cursor:
        plain = _timed(lambda: (cursor.execute("SELECT 1"), cursor.fetchall()))
    read = _timed(_getter(served, lambda: "/fhir/ValueSet/all"))
    reference = f"SELECT 1 {plain}; a read {read}"
    for what, path in (
        ("$validate-code", lambda: f"/fhir/CodeSystem/$validate-code?url={quote(URL)}&code={any_code()}"),
        ("$lookup", lambda: f"/fhir/CodeSystem/$lookup?system={quote(URL)}&code={any_code()}"),
        ("$expand, filter of one word", lambda: expand + chance.choice(_STEMS)),
        ("$expand, filter of two words", lambda: expand + quote(chance.choice(two))),
        ("$expand of a large subtree, filter of two words", lambda: large + quote(chance.choice(two))),
        ("$expand of a small subtree, filter of two words", lambda: small + quote(chance.choice(two))),
        ("$expand, filter that one code has", lambda: expand + str(chance.randrange(100_000, CONCEPTS))),
        ("Observation?code:below the root", lambda: below + ROOT),
        ("Observation?code:below one of the first 1,000", lambda: below + _code(chance.randrange(1, 1000))),
    ):
        used = spent(served)
        figures = _timed(_getter(served, path))
        own, postgres = (
            (now - then) / (TIMES + TIMES // 10) * 1e3 for now, then in zip(spent(served), used, strict=True)
        )
        line(what, f"{figures}; processor {own:.1f} + {postgres:.1f} ms", reference)


def _put_value_sets(served: ServiceProcess) -> None:
    """The whole system, and subtrees of 126,420 and 9,704 codes."""
    for name, code in (("all", None), ("large", _code(3)), ("small", _code(80))):
        selected = [{"property": "concept", "op": "is-a", "value": code}] if code else []
        include = {"system": URL, **({"filter": selected} if selected else {})}
        value_set = {"resourceType": "ValueSet", "id": name, "url": f"{URL}/{name}", "status": "active",
                     "compose": {"include": [include]}}  # fmt: skip
        status, _ = served.request("PUT", f"/fhir/ValueSet/{name}", value_set)
        assert status == 201, status


def _getter(served: ServiceProcess, path: Callable[[], str]) -> Callable[[], object]:
    connection = http.client.HTTPConnection("127.0.0.1", served.http_port, timeout=60)

    def get() -> None:
        connection.request("GET", path())
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text[:300]

    return get


def _timed(work: Callable[[], object]) -> str:
    """Median and 99th percentile of TIMES repetitions, after a tenth as many."""
    for _ in range(TIMES // 10):
        work()
    found = []
    for _ in range(TIMES):
        began = time.perf_counter()
        work()
        found.append((time.perf_counter() - began) * 1000)
    found.sort()
    return f"p50 {found[TIMES // 2]:.2f} p99 {found[TIMES * 99 // 100]:.2f} ms"
