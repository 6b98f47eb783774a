"""Processor time of bearer tokens for one operation, alone and with the whole audit trail, in turns.

The first service needs no token, the second does, the third also records reads and searches; `turns.py` measures them
(the loads are those of `audit.py`).  A token has either every scope, or a scope with a search that each resource must
match.  Last, a read without sockets and database (`reads_in_memory`).
"""

from __future__ import annotations

import random
from pathlib import Path

from bench import reads_in_memory
from bench.audit import STORED, SWITCHES, fill
from bench.http_load import get
from bench.receive import service
from bench.turns import Turn, compare, requests
from tests.flows.idp import AUDIENCE, OwnProvider
from tests.service_process import ServiceProcess

EVERYTHING = "system/*.cruds"
WITH_SEARCH = "system/Patient.rs?gender=male,female"


def bench(folder: Path) -> None:
    """Processor time of reads and searches without and with bearer tokens, and with the audit trail as well."""
    provider = OwnProvider()
    authentication = {
        "SUBSCRIPTION_SERVICE_AUTH_ENABLED": "true",
        "SUBSCRIPTION_SERVICE_AUTH_ISSUER": provider.issuer,
        "SUBSCRIPTION_SERVICE_AUTH_AUDIENCE": AUDIENCE,
    }
    quiet = {"IPF_LOG_LEVEL": "WARN", "IPF_WORKER_PROCESSES": "0"}
    unrecorded = {"SUBSCRIPTION_SERVICE_AUDIT_ENABLED": "false"}
    try:
        with (
            service(folder / "open", **quiet, **unrecorded) as plain,
            service(folder / "tokens", **quiet, **authentication, **unrecorded) as guarded,
            service(folder / "both", **quiet, **authentication, **SWITCHES) as recorded,
        ):
            token, limited = (provider.signed("bench", scope) for scope in (EVERYTHING, WITH_SEARCH))
            for one, bearer in ((plain, ""), (guarded, token), (recorded, token)):
                fill(one, bearer)
            for name, one in (("tokens", guarded), ("tokens and audit", recorded)):
                _compare(name, plain, one, token, limited)
        reads_in_memory.bench()
    finally:
        provider.stop()


def _compare(name: str, plain: ServiceProcess, other: ServiceProcess, token: str, limited: str) -> None:
    target, numbers = "target under +10 %; ", random.Random(1)

    def turn(path: str, among: int, bearer: str) -> Turn:
        header = f"Authorization: Bearer {bearer}\r\n"
        return requests(lambda one: get(path.format(numbers.randrange(among)), "" if one is plain else header), 200)

    read, found = "/fhir/Patient/b{}", "/fhir/Observation?patient=b{}"
    compare(f"{name}: read", plain, other, turn(read, STORED, token), target)
    compare(f"{name}: read, a scope with a search", plain, other, turn(read, STORED, limited), target)
    compare(f"{name}: search, 20 hits", plain, other, turn(found, 9, token), target)
