"""The roles of one service in processes of their own, on two databases of the PostgreSQL of this test run."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from psycopg2.extensions import parse_dsn

from tests.faults.feed import Feed
from tests.faults.scenario import PATIENT, Scenario, scratch
from tests.postgres import fresh_url
from tests.service_process import ServiceProcess
from tests.traffic.psql import psql
from tests.traffic.sink import Sink
from tests.traffic.subscribers import subscribe
from tests.waiting import PATIENCE, until


async def two_databases() -> tuple[str, str]:
    """The URLs of a fresh inbox database and a fresh FHIR database."""
    return await fresh_url("ipf"), await fresh_url("fhir")


class RoleProcesses(Scenario):
    """`async with`: all processes are ready and a subscription to every Patient is active.

    `wanted`: settings of each process by its name; `service` is that with the FHIR API, and `receive` takes the feed.
    """

    def __init__(self, databases: tuple[str, str], wanted: dict[str, dict[str, str]], **environment: str) -> None:
        inbox, fhir = (parse_dsn(url) for url in databases)
        self.folder = scratch()
        self.chosen = PATIENT | {"IPF_DB_URL": databases[0], "IPF_FHIR_DB_URL": databases[1]} | environment
        self.processes = {
            name: ServiceProcess(self.folder / name, **(self.chosen | more)) for name, more in wanted.items()
        }
        self.service = next(
            one for one in self.processes.values() if "fhir" in one.environment.get("IPF_ROLES", "fhir")
        )
        self.sink = Sink()
        self.sink.keep_bodies = True
        self.feed = Feed(self.processes["receive"].mllp_port, behind=self.behind)
        names = {"ipf": inbox["dbname"], "fhir": fhir["dbname"]}
        self.psql = lambda query, database: psql(Path(inbox["host"]), query, names[database])

    async def __aenter__(self) -> RoleProcesses:
        try:
            for one in self.processes.values():
                one.start()
            for name in self.processes:
                await self.answers(name)
            await subscribe(self.service, await self.sink.start(), self.criteria)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            self.sink.close()
            for one in self.processes.values():
                if one.ended() is None:
                    one.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    async def answers(self, name: str, seconds: float = PATIENCE) -> None:
        """Wait until a process is ready."""
        await until(lambda: asyncio.to_thread(self.processes[name].ready), f"{name} is ready", seconds=seconds)

    async def restart(self, name: str) -> None:
        """SIGTERM, and the same again: what an upgrade does with one process."""
        status = await asyncio.to_thread(self.processes[name].stop)
        if status != 0:
            raise AssertionError(f"{name} ended with {status}:\n{self.processes[name].log_tail()}")
        self.processes[name].start()
        await self.answers(name)
