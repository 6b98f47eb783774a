"""What the fault tests share: a service on a scratch folder, a subscriber, and the promises that hold at the end."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.faults.feed import Feed
from tests.flows.few_maps import few_maps
from tests.service_process import ServiceProcess
from tests.traffic.psql import psql
from tests.traffic.sink import Sink
from tests.traffic.subscribers import subscribe
from tests.waiting import PATIENCE, SLOW, until


def scratch() -> Path:
    """A folder that PostgreSQL's own user can pass through."""
    folder = Path(tempfile.mkdtemp(prefix="ipf-fault-"))
    os.chmod(folder, 0o755)
    return folder


def many_files() -> None:
    """Let this process, and the services it starts, hold as many sockets as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


PATIENT = {
    "IPF_WORKER_TRANSFORMING_STALE_SECONDS": f"{10 * SLOW:.0f}",
    "IPF_BACKOFF_BASE_MS": "100",
    "IPF_BACKOFF_MAX_MS": "1000",
    "IPF_MAX_ATTEMPTS": "60",
    "SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_BASE_MS": "100",
    "SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_MAX_MS": "1000",
    "SUBSCRIPTION_SERVICE_DELIVERY_MAX_ATTEMPTS": "60",
}
"""Quick and many retries, so that a fault that lasts seconds is outlived within a test."""


class Scenario:
    """`async with Scenario(...)`: the service is ready, a subscription to every Patient is active.

    It has the maps of admissions, merges and results alone, unless it has `all_maps`.  `psql(query, database)` asks the
    service's own PostgreSQL; a test with servers of its own replaces it.
    """

    criteria = "Patient?"

    def __init__(self, *, all_maps: bool = False, **environment: str) -> None:
        self.folder = scratch()
        maps = {} if all_maps else {"IPF_MAPS_DIR": str(few_maps())}
        self.chosen = maps | PATIENT | environment
        self.service = ServiceProcess(self.folder / "service", **self.chosen)
        self.sink = Sink()
        self.sink.keep_bodies = True
        self.feed = Feed(self.service.mllp_port, behind=self.behind)
        self.psql: Callable[[str, str], str] = self._embedded

    async def __aenter__(self) -> Scenario:
        self.service.start()
        try:
            await self.ready()
            await subscribe(self.service, await self.sink.start(), self.criteria)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            self.sink.close()
            self.service.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    async def ready(self, seconds: float = PATIENCE) -> None:
        """Wait until the service accepts messages."""
        await until(lambda: asyncio.to_thread(self.service.ready), "the service is ready", seconds=seconds)

    def is_down(self) -> bool:
        """Whether the service says that it cannot work."""
        return self.service.get("/actuator/health")[0] == 503

    def behind(self) -> int:
        """Messages that were acknowledged, and of which the subscriber does not know."""
        return len(self.feed.accepted) - len(self.sink.times)

    @property
    def postgres(self) -> Path:
        """Folder of the embedded cluster and its socket."""
        return Path(self.service.environment["IPF_DATA_DIR"]) / "postgres"

    def sql(self, database: str, query: str) -> list[list[str]]:
        """Rows of a query, as text."""
        return [row.split("|") for row in self.psql(query, database).splitlines()]

    def _embedded(self, query: str, database: str) -> str:
        return psql(self.postgres, query, database)

    async def settled(self, seconds: float = 3 * PATIENCE) -> None:
        """Wait until every accepted message is DELIVERED and every event acknowledged by the subscriber."""
        await until(lambda: asyncio.to_thread(self._all_done), "all is delivered", seconds=seconds)

    def _all_done(self) -> bool:
        open_rows = self.sql("ipf", "SELECT count(*) FROM ingested_messages WHERE status <> 'DELIVERED'")
        behind = self.sql("fhir", "SELECT count(*) FROM subscription_states WHERE delivered_number < last_event_number")
        return open_rows == [["0"]] and behind == [["0"]]

    def broken_promises(self) -> list[str]:
        """What does not hold of: each `AA` one row, DELIVERED, once in effect; each event numbered and delivered."""
        return broken_messages(self.feed, self.sql) + self._events()

    def _events(self) -> list[str]:
        """Numbers without gap, one event a version, and each version received by the subscriber."""
        broken = []
        rows = self.sql(
            "fhir",
            "SELECT e.event_number, r.id, e.version_id FROM subscription_events e"
            " JOIN resources r ON r.rid = e.resource_rid ORDER BY event_number",
        )
        numbers = [int(row[0]) for row in rows]
        if numbers != list(range(1, len(numbers) + 1)):
            broken.append("event numbers have gaps")
        versions = {(row[1], row[2]) for row in rows}
        if len(versions) != len(rows):
            broken.append("a version has two events")
        stored = self.sql(
            "fhir",
            "SELECT count(*) FROM resource_versions JOIN resources r USING (rid) WHERE resource_type = 'Patient'",
        )
        if int(stored[0][0]) != len(rows):
            broken.append(f"{stored[0][0]} versions of patients, {len(rows)} events")
        received = {(body["id"], body["meta"]["versionId"]) for body in map(_json, self.sink.bodies)}
        broken += [f"event of Patient/{one} version {version} never arrived" for one, version in versions - received]
        return broken


def broken_messages(feed: Feed, sql: Callable[[str, str], list[list[str]]]) -> list[str]:
    """What does not hold of: each `AA` one row, DELIVERED, once in effect.  `sql(database, query)`: rows as text."""
    broken = []
    rows = sql("ipf", "SELECT source_id, status, count(*) FROM ingested_messages GROUP BY 1, 2")
    found = {source_id: (status, int(count)) for source_id, status, count in rows}
    for control_id in feed.accepted:
        if found.get(control_id) != ("DELIVERED", 1):
            broken.append(f"message {control_id}: {found.get(control_id)}")
    return broken + _broken_patients(feed, found, sql)


def _broken_patients(feed: Feed, rows: Iterable[str], sql: Callable[[str, str], list[list[str]]]) -> list[str]:
    """One Patient for each patient, with exactly one version for each message about it."""
    broken = []
    wanted = Counter(feed.sent[control_id] for control_id in rows)
    bodies = sql(
        "fhir",
        "SELECT r.rid, r.version_id, replace(v.body, '|', ' ') FROM resources r"
        " JOIN resource_versions v USING (rid, version_id) WHERE resource_type = 'Patient' AND NOT r.deleted",
    )
    seen: Counter[str] = Counter()
    for _, version, body in bodies:
        patient = json.loads(body)["identifier"][0]["value"]
        seen[patient] += 1
        if int(version) != wanted[patient]:
            broken.append(f"patient {patient}: {version} versions of {wanted[patient]} messages")
    return broken + [f"patient {name}: {seen[name]} resources" for name in wanted if seen[name] != 1]


def _json(body: bytes) -> Any:
    return json.loads(body)
