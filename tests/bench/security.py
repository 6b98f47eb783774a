"""What bearer tokens cost on a read: two services side by side, one that asks for tokens and one that does not.

Both get the same requests in turns of a second, since the machine's own speed changes all the time; what is compared is
the processor time that each service spent for one request, in the quietest turn of each.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.bench import reads_in_memory
from tests.bench.fhir import patient
from tests.bench.http_load import get, load
from tests.bench.receive import service
from tests.bench.report import line
from tests.bench.senders import run as run_load
from tests.flows.idp import AUDIENCE, OwnProvider
from tests.service_process import ServiceProcess

CLIENTS = 16
TURNS = 12
SECONDS = 1
PATIENTS = 600


def bench(folder: Path) -> None:
    """Reads and searches with and without bearer tokens; target under 10 % more."""
    provider = OwnProvider()
    asked = {
        "SUBSCRIPTION_SERVICE_AUTH_ENABLED": "true",
        "SUBSCRIPTION_SERVICE_AUTH_ISSUER": provider.issuer,
        "SUBSCRIPTION_SERVICE_AUTH_AUDIENCE": AUDIENCE,
    }
    quiet = {"IPF_LOG_LEVEL": "WARN", "IPF_WORKER_PROCESSES": "0", "SUBSCRIPTION_SERVICE_AUDIT_ENABLED": "false"}
    try:
        with service(folder / "open", **quiet) as plain, service(folder / "asked", **quiet, **asked) as guarded:
            token = provider.signed("bench", "system/*.cruds")
            limited = provider.signed("bench", "system/Patient.rs?gender=male,female")
            for one, bearer in ((plain, ""), (guarded, token)):
                _store(one, bearer)
            for what, path in (("read by id", "/fhir/Patient/b{}"), ("search by identifier", "/fhir/Patient?_id=b{}")):
                base = _spent(plain, path, "", guarded, token)
                _tell(what, *base)
            _tell("read by id, a scope with a search", *_spent(plain, "/fhir/Patient/b{}", "", guarded, limited))
        reads_in_memory.bench()
    finally:
        provider.stop()


def _store(one: ServiceProcess, bearer: str) -> None:
    entries = [
        {"request": {"method": "PUT", "url": f"Patient/b{number}"}, "resource": {**patient(number), "id": f"b{number}"}}
        for number in range(PATIENTS)
    ]
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    bundle = {"resourceType": "Bundle", "type": "transaction", "entry": entries}
    status, answer = one.request("POST", "/fhir", bundle, headers)
    assert status == 200, answer


def _spent(plain: ServiceProcess, path: str, bearer: str, guarded: ServiceProcess, token: str) -> tuple[float, ...]:
    """Microseconds of processor time a request, and requests a second, of each."""
    made = [_requests(path, bearer), _requests(path, token)]
    costs: list[list[float]] = [[], []]
    rates: list[list[float]] = [[], []]
    for turn in range(-1, TURNS):
        for number, one in ((0, plain), (1, guarded)) if turn % 2 else ((1, guarded), (0, plain)):
            process = psutil.Process(one.pid)
            before = sum(process.cpu_times()[:2])
            result = run_load(load(one.http_port, CLIENTS, made[number], SECONDS)).must_be(200)
            if turn >= 0:
                spent = sum(process.cpu_times()[:2]) - before
                costs[number].append(spent / sum(result.statuses.values()) * 1e6)
                rates[number].append(result.rate)
    return min(costs[0]), min(costs[1]), max(rates[0]), max(rates[1])


def _requests(path: str, bearer: str) -> Callable[[], bytes]:
    numbers = itertools.count()
    header = f"Authorization: Bearer {bearer}\r\n" if bearer else ""
    return lambda: get(path.format(next(numbers) % PATIENTS), header)


def _tell(what: str, open_cost: float, asked_cost: float, open_rate: float, asked_rate: float) -> None:
    more = f"{(asked_cost / open_cost - 1) * 100:+.1f} %"
    line(what, more, f"target under +10 %; {open_cost:.0f} and {asked_cost:.0f} us of one core; "
                     f"{open_rate:,.0f}/s and {asked_rate:,.0f}/s")  # fmt: skip
