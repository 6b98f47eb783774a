"""Searches of 100,000 Observations while 10,000 of 20,000 patients deny access to their data.

A client that Consents limit and one that they do not (`IPF_ACCESS_TRUSTED_CLIENTS`) ask the same in turns, of the same
service.  The ratio is what Consents cost.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.receive import postgres_socket, service
from bench.report import line
from tests.flows import idp
from tests.security.privacy.consents import coded, consent, observation, rule
from tests.service_process import ServiceProcess
from tests.traffic.psql import psql

OBSERVATIONS, PATIENTS, DENIALS = 100_000, 20_000, 10_000
TIMES = 15
_BUNDLE = 5000
QUERIES = {
    "read of one resource": "Observation/o19999",
    "one patient": "Observation?subject=Patient/p15000",
    "one code, 50 of 2,000, no total": "Observation?code=http://loinc.org|7&_total=none",
    "one code, 50 of 2,000": "Observation?code=http://loinc.org|7",
    "newest 50, no total": "Observation?_sort=-_lastUpdated&_total=none",
    "first 50 behind 10,000 hidden ones, no total": "Observation?_total=none",
    "total of all": "Observation?_summary=count",
}


def bench(folder: Path) -> None:
    """Searches of 100,000 Observations while 10,000 of 20,000 patients deny access to their data."""
    provider = idp.OwnProvider()
    chosen = {
        "SUBSCRIPTION_SERVICE_AUTH_ENABLED": "true",
        "SUBSCRIPTION_SERVICE_AUTH_ISSUER": provider.issuer,
        "SUBSCRIPTION_SERVICE_AUDIT_ENABLED": "false",
        "IPF_ACCESS_CONSENT": "true",
        "IPF_ACCESS_TRUSTED_CLIENTS": "feed",
    }
    try:
        with service(folder, **chosen) as one:
            feed, limited = (provider.signed(client, "system/*.cruds") for client in ("feed", "limited"))
            for bundle in _bundles():
                status, answer = one.request("POST", "/fhir", bundle, _bearer(feed))
                assert status == 200, answer
            psql(postgres_socket(one), "ANALYZE", "fhir")
            began = time.perf_counter()
            _ask(one, QUERIES["read of one resource"], limited)
            line("first decision: 10,000 Consents are read", f"{time.perf_counter() - began:.2f} s")
            for name, query in QUERIES.items():
                _compare(one, name, query, feed, limited)
    finally:
        provider.stop()


def _compare(one: ServiceProcess, name: str, query: str, feed: str, limited: str) -> None:
    """One line: the median of each client, asked in turns."""
    times: dict[str, list[float]] = {feed: [], limited: []}
    for _ in range(TIMES):
        for token, found in times.items():
            began = time.perf_counter()
            _ask(one, query, token)
            found.append((time.perf_counter() - began) * 1000)
    without, within = (statistics.median(times[token]) for token in (feed, limited))
    line(name, f"{within:.1f} ms", f"{without:.1f} ms without Consents, {within / without:.1f} times")


def _ask(one: ServiceProcess, query: str, token: str) -> Any:
    status, answer = one.request("GET", f"/fhir/{query}", None, _bearer(token))
    assert status == 200, answer
    return answer


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _resources() -> Iterator[dict[str, Any]]:
    for number in range(OBSERVATIONS):
        code = {"coding": [coded("http://loinc.org", str(number % 50))]}
        yield observation(f"o{number}", f"p{number % PATIENTS}", code=code)
    for number in range(DENIALS):
        yield {**consent(rule("deny"), patient={"reference": f"Patient/p{number}"}), "id": f"c{number}"}


def _bundles() -> Iterator[dict[str, Any]]:
    """Transactions of all resources."""
    entries: list[dict[str, Any]] = []
    for one in _resources():
        entries.append({"resource": one, "request": {"method": "PUT", "url": f"{one['resourceType']}/{one['id']}"}})
        if len(entries) == _BUNDLE:
            yield {"resourceType": "Bundle", "type": "transaction", "entry": entries}
            entries = []
