"""A started service and its console under all attacks at once, beside an MLLP feed: what the feed and the machine saw.

Used by the campaign (`test_attack_campaign.py`) and by `bin/bench attacks`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.console.process import ConsoleProcess
from tests.faults.attackers import Target
from tests.faults.feed import Answer, Feed
from tests.faults.scenario import many_files, scratch
from tests.flows.idp import OwnProvider
from tests.service_process import ROOT, ServiceProcess, children_of, memory_mib
from tests.traffic.psql import psql
from tests.waiting import PATIENCE, breathe, until

ADMIN_TOKEN = "attacked-0123456789"
SENDERS = 4
BACKLOG = 200
"""Messages that wait for their conversion: senders rest when there are more."""
_STALL = re.compile(r'^ipf_reactor_stall_seconds_(count|sum)\{process="main"\} ([0-9.e+-]+)', re.MULTILINE)


@dataclass
class Report:
    """What happened.  `lost`: control ids that were acknowledged and are not DELIVERED.  Memory: MiB, at its peak.

    `stalls`: number and seconds of turns of the reactor of 0.1 s and more.  `health`: of the service at the end.
    `lag`: the longest time in which this process, which measures, had no processor.
    """

    answers: list[Answer] = field(default_factory=list)
    attacks: dict[str, dict[str, int]] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    memory: dict[str, float] = field(default_factory=dict)
    stalls: dict[str, float] = field(default_factory=dict)
    stalled_by: Counter[str] = field(default_factory=Counter)
    health: str = ""
    lag: float = 0.0

    @property
    def slowest(self) -> float:
        """Seconds of the slowest acknowledgement."""
        return max((one.ended - one.began for one in self.answers), default=float("inf"))

    def percentile(self, share: float) -> float:
        """Seconds."""
        ordered = sorted(one.ended - one.began for one in self.answers)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("inf")

    @property
    def codes(self) -> Counter[str]:
        """Of the acknowledgements."""
        return Counter(one.code for one in self.answers)


class Provider(OwnProvider):
    """An identity provider that people could sign in at, too."""

    def document(self) -> dict[str, Any]:
        """The discovery document."""
        return super().document() | {"authorization_endpoint": f"{self.issuer}/authorize"}


class Attacked:
    """The service with authentication, a watched folder and a console."""

    def __init__(self) -> None:
        many_files()
        self.folder = scratch()
        self.provider = Provider()
        self.watched = self.folder / "drop"
        self.watched.mkdir()
        self.service = ServiceProcess(
            self.folder / "service",
            IPF_WORKER_PROCESSES="1",
            IPF_ADMIN_AUTH_TOKEN=ADMIN_TOKEN,
            IPF_FILE_SOURCES=f"drop={self.watched}",
            IPF_FILE_POLL_SECONDS="0.2",
            SUBSCRIPTION_SERVICE_AUTH_ISSUER=self.provider.issuer,
        )
        self.console = ConsoleProcess(
            self.folder, self.service.base_url, IPF_ADMIN_AUTH_TOKEN=ADMIN_TOKEN, OIDC_ISSUER=self.provider.issuer,
            OIDC_CLIENT_ID="console", OIDC_CLIENT_SECRET="s3cret",
        )  # fmt: skip
        self.report = Report()
        self._waiting = 0

    def start(self) -> None:
        """Start both."""
        self.service.start()
        self.service.wait_ready()
        self.console.start()

    def stop(self) -> None:
        """End everything."""
        self.console.stop()
        self.service.stop()
        self.provider.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def admin(self, path: str) -> Any:
        """The body of a GET of the operator API."""
        return self.service.request("GET", path, None, {"Authorization": f"Bearer {ADMIN_TOKEN}"})[1]

    async def run(self, seconds: float, only: Sequence[str] = ()) -> Report:
        """Attack for so long, and wait until every message is delivered.  `only`: names of attacks; none = all."""
        feed = Feed(self.service.mllp_port, senders=SENDERS, behind=lambda: self._waiting, window=BACKLOG, rest=_rest)
        target = Target(self.service.http_port, self.service.mllp_port, self.console.port, str(self.watched),
                        ADMIN_TOKEN, self.provider.issuer, seconds, list(only))  # fmt: skip
        given = json.dumps({name: value for name, value in asdict(target).items() if not name.startswith("_")})
        attackers = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.faults.attackers", cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=self.service.environment,
        )  # fmt: skip
        watching = [asyncio.create_task(each) for each in (self._measure(), self._look(), self._lag())]
        feed.start()
        try:
            said, _ = await attackers.communicate(given.encode())
        finally:
            with contextlib.suppress(ProcessLookupError):
                attackers.kill()
            await feed.stop()
            for task in watching:
                task.cancel()
        self.report.attacks, self.report.answers = json.loads(said), feed.answers
        await self._settle(feed)
        return self.report

    async def _settle(self, feed: Feed) -> None:
        """Wait for the deliveries; what is not delivered is lost."""
        with contextlib.suppress(AssertionError):
            await until(lambda: asyncio.to_thread(lambda: not self._open()), "delivered", seconds=6 * PATIENCE)
        rows = self._sql("SELECT source_id FROM ingested_messages WHERE status = 'DELIVERED'")
        self.report.lost = sorted(feed.accepted.keys() - set(rows))
        self.report.health = str((await asyncio.to_thread(self.service.get, "/actuator/health"))[1]["status"])
        text = str(self.admin("/actuator/prometheus"))
        self.report.stalls = {name: float(value) for name, value in _STALL.findall(text)}
        for line in self.service.log_path.read_text(errors="replace").splitlines():
            if "event=reactor_stall" in line:
                self.report.stalled_by[re.sub(r"[0-9.]+", "#", str(json.loads(line).get("message", line)))[:200]] += 1

    def _open(self) -> list[str]:
        return self._sql(
            "SELECT 1 FROM ingested_messages WHERE source_system = 'FEED' AND status NOT IN ('DELIVERED',"
            " 'DEAD_LETTER') LIMIT 1"
        )

    def _sql(self, query: str) -> list[str]:
        return psql(Path(self.service.environment["IPF_DATA_DIR"]) / "postgres", query, "ipf").splitlines()

    async def _measure(self) -> None:
        """The memory of the service with its children, but PostgreSQL, and of the console."""

        def look() -> None:
            with contextlib.suppress(OSError):
                children = [memory_mib(pid, "Pss") for pid in children_of(self.service.pid) if not _is_postgres(pid)]
                self._peak("service", memory_mib(self.service.pid, "Pss") + sum(children))
                self._peak("main process", memory_mib(self.service.pid))
                self._peak("console", memory_mib(self.console.pid))

        await _again_and_again(look)

    def _peak(self, name: str, mib: float) -> None:
        self.report.memory[name] = max(mib, self.report.memory.get(name, 0.0))

    async def _look(self) -> None:
        """How many messages wait."""

        def look() -> None:
            query = "SELECT count(*) FROM ingested_messages WHERE status IN ('RECEIVED', 'TRANSFORMING')"
            self._waiting = int(self._sql(query)[0])

        await _again_and_again(look)

    async def _lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await breathe()
            self.report.lag = max(self.report.lag, loop.time() - began)


async def _again_and_again(look: Callable[[], None]) -> None:
    """About every second."""
    while True:
        await asyncio.to_thread(look)
        for _ in range(100):
            await breathe()


async def _rest() -> None:
    for _ in range(5):
        await breathe()


def _is_postgres(pid: int) -> bool:
    return "postgres" in Path(f"/proc/{pid}/comm").read_text()
