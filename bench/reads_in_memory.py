"""A read without sockets and without a database: from the bytes of a request to those of its response.

Processor time of one process that serves reads with and without bearer tokens, in turns.  It varies less with the load
of the machine than a comparison of two services.
"""

from __future__ import annotations

import gc
from dataclasses import replace
from datetime import UTC, datetime
from time import process_time, time
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.testing import StringTransport

from bench.fhir import patient
from bench.report import line
from ipf.fhir.model.json import dumps
from ipf.ports import DEFAULT_TENANT, Identify, Version
from ipf.rest.http.outcome import refuse
from ipf.rest.router import handler
from ipf.rest.write.permission import OPEN_PATHS
from ipf.rest.write.repository import Repository
from ipf.wire.http.app import resource
from ipf.wire.http.bearer import Bearer
from ipf.wire.http.oidc import KeySource
from ipf.wire.http.site import site
from tests.fakes.history import MemoryHistories
from tests.fakes.resources import MemoryFhirStore
from tests.security.issuer import RULES, token
from tests.wire.http.test_oidc import Provider

READS = 600
TURNS = 40
_HEAD = b"Host: localhost\r\nAccept: application/fhir+json\r\n"
reactor: Any = _reactor


def bench() -> None:
    """Microseconds of a read with and without a bearer token."""
    bearer = _bearer()
    given = token(iat=time() - 10, exp=time() + 3600, scope="system/*.cruds")
    header = f"Authorization: Bearer {given}\r\n".encode()
    ways = [(_channel(identify), _requests(more)) for identify, more in ((None, b""), (bearer.identify, header))]
    turns = [[_turn(channel, requests) for channel, requests in ways] for _ in range(TURNS)]
    gc.collect()
    without, with_it = (min(column) for column in zip(*turns[1:], strict=True))
    text = f"target under +15 us; {without:.1f} and {with_it:.1f} us of one core"
    line("read in memory", f"{with_it - without:+.1f} us", text)


def _bearer() -> Bearer:
    return Bearer(KeySource(RULES.issuer, Provider("rsa").fetch, reactor), RULES, time, OPEN_PATHS)


def _channel(identify: Identify | None) -> Any:
    store = MemoryFhirStore()
    body = dumps({**patient(1), "id": "b0"})
    first = Version(1, "Patient", "b0", 1, datetime.now(UTC), body, False, "PUT")
    for number in range(READS):
        store.versions[DEFAULT_TENANT, "Patient", f"b{number}"] = [replace(first, id=f"b{number}")]
    unused: Any = None
    repository = Repository(store, unused, lambda: datetime.now(UTC), MemoryHistories(store))
    factory = site({"fhir": resource(handler(repository, identify), refuse)})
    channel: Any = factory.buildProtocol(unused)
    channel.callLater = reactor.callLater
    channel.makeConnection(StringTransport())
    return channel


def _requests(header: bytes) -> list[bytes]:
    return [b"GET /fhir/Patient/b%d HTTP/1.1\r\n%b%b\r\n" % (number, _HEAD, header) for number in range(READS)]


def _turn(channel: Any, requests: list[bytes]) -> float:
    """Microseconds of a request."""
    began = process_time()
    for one in requests:
        channel.dataReceived(bytes(memoryview(one)))
    spent = process_time() - began
    answers = channel.transport.value().count(b"HTTP/1.1 200 OK\r\n")
    channel.transport.clear()
    if answers != len(requests):
        raise SystemExit(f"{len(requests) - answers} reads were not answered")
    return spent / len(requests) * 1e6
