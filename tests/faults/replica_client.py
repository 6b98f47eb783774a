"""A service on a primary and its standby, and clients of several addresses, for tests of reads on replicas."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from tests import waiting
from tests.faults.scenario import scratch
from tests.replication import Pair
from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE

READER = "127.0.0.2"
WRITER = "127.0.0.1"


class Reply(NamedTuple):
    """The answer to a request.  `headers`: by their names in lower case."""

    status: int
    body: Any
    headers: dict[str, str]

    @property
    def version(self) -> str:
        """meta.versionId of a resource; the status of another answer."""
        return str(self.body["meta"]["versionId"]) if self.status == 200 else str(self.status)


class Replicated:
    """`async with Replicated(...)`: both servers run, the standby follows asynchronously and answers reads."""

    def __init__(self, **environment: str) -> None:
        self.pair = Pair()
        self.folder = scratch()
        self._environment = environment
        self.services: list[ServiceProcess] = []

    async def __aenter__(self) -> Replicated:
        try:
            await asyncio.to_thread(self.pair.start)
            await asyncio.to_thread(self.pair.forget_standby)
            await self.add_service()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            for service in reversed(self.services):
                service.stop()
        finally:
            self.pair.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    async def add_service(self) -> ServiceProcess:
        """One more service, ready and with the standby in use."""
        urls = {
            "IPF_DB_URL": self.pair.url("ipf"),
            "IPF_FHIR_DB_URL": self.pair.url("fhir"),
            "IPF_FHIR_READ_DB_URL": self.pair.url("fhir"),
            "IPF_WORKER_PROCESSES": "0",
        }
        service = ServiceProcess(self.folder / str(len(self.services)), **(urls | self._environment))
        self.services.append(service)
        service.start()
        await until(service.ready)
        await self.until_used(True, service)
        return service

    @property
    def service(self) -> ServiceProcess:
        """The first service."""
        return self.services[0]

    async def until_used(self, is_used: bool, service: ServiceProcess | None = None) -> None:
        """Wait until the standby answers reads, or no longer."""
        await until(lambda: metric(service or self.service, "fhir_replica_used") == is_used)

    def pause_replay(self) -> None:
        """Let the standby receive, but show nothing more."""
        self.pair.standby.sql("SELECT pg_wal_replay_pause()")

    def resume_replay(self) -> None:
        """End `pause_replay`."""
        self.pair.standby.sql("SELECT pg_wal_replay_resume()")

    def is_caught_up(self) -> bool:
        """Whether the standby has replayed what the primary has written until now."""
        reached = self.pair.primary.sql("SELECT pg_current_wal_lsn()").strip()
        return self.pair.standby.sql(f"SELECT pg_last_wal_replay_lsn() >= '{reached}'").strip() == "t"


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that is asked in a thread."""
    await waiting.until(lambda: asyncio.to_thread(condition))


def ask(
    service: ServiceProcess, method: str, path: str, body: Any = None, *, address: str = READER, **headers: str
) -> Reply:
    """One request from an address.  Names of headers have _ for -."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", service.http_port, timeout=PATIENCE, source_address=(address, 0)
    )
    try:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        payload = None
        if body is not None:
            payload = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent = {"Content-Type": "application/fhir+json"} | sent
        connection.request(method, f"/fhir/{path}", payload, sent)
        answer = connection.getresponse()
        text = answer.read()
        return Reply(
            answer.status,
            json.loads(text) if text else None,
            {name.lower(): value for name, value in answer.getheaders()},
        )
    finally:
        connection.close()


def metric(service: ServiceProcess, name: str) -> float:
    """The value of a series, by its name with labels."""
    _, text = service.get("/actuator/prometheus")
    found = re.search(rf"^{re.escape(name)} (\S+)$", str(text), re.MULTILINE)
    return float(found[1]) if found else -1.0


def outcomes(service: ServiceProcess) -> Counter[str]:
    """How many reads each side answered, and why."""
    _, text = service.get("/actuator/prometheus")
    found = re.findall(r'^fhir_replica_reads_total\{outcome="(\w+)"\} (\S+)$', str(text), re.MULTILINE)
    return Counter({name: int(float(value)) for name, value in found})


class Readers:
    """Threads that read all the time.  `statuses`: of all answers; `longest`: the longest wait in seconds."""

    def __init__(self, service: ServiceProcess, *paths: str) -> None:
        self.statuses: Counter[int] = Counter()
        self.longest = 0.0
        self._service = service
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._read, args=(path,), daemon=True) for path in paths]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, after the answers that are awaited."""
        self._ended.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def _read(self, path: str) -> None:
        while not self._ended.wait(0.02):
            began = time.monotonic()
            try:
                status = ask(self._service, "GET", path).status
            except OSError:
                status = 0
            self.statuses[status] += 1
            self.longest = max(self.longest, time.monotonic() - began)
