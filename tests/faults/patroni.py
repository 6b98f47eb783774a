"""Three Patroni nodes and three of etcd on loopback, from the files in `etc/patroni`; only addresses, folders and
passwords are replaced.  All functions block, and every wait has a bound.

Source: https://patroni.readthedocs.io/en/latest/rest_api.html
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests import processes
from tests.replication import as_postgres, binaries, program, scratch_folder, why_not
from tests.service_process import ROOT
from tests.waiting import PATIENCE, block_until, free_port

FILES = ROOT / "etc" / "patroni"
_HOST = "127.0.0.1"
_PASSWORD = "loopback"


def missing() -> str:
    """What this host lacks; empty when nothing."""
    lacks = [name for name in ("patroni", "etcd") if shutil.which(name) is None]
    return why_not() or (
        f"not installed (Debian: patroni, etcd-server, python3-etcd): {', '.join(lacks)}" if lacks else ""
    )


class Node:
    """One node: etcd and Patroni, which runs PostgreSQL."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.folder = folder
        self.port, self.api_port, self.etcd_port, self.peer_port = (free_port() for _ in range(4))
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self.etcd: dict[str, str] = {}
        self.patroni: dict[str, str] = {}

    @property
    def peer(self) -> str:
        """Its entry in the list of etcd's members."""
        return f"{self.name}=http://{_HOST}:{self.peer_port}"

    def configure(self, nodes: list[Node]) -> None:
        """The settings of `etc/patroni`, at the addresses of loopback."""
        client, peers = f"http://{_HOST}:{self.etcd_port}", f"http://{_HOST}:{self.peer_port}"
        self.etcd = _settings("etcd.env") | {
            "ETCD_NAME": self.name,
            "ETCD_DATA_DIR": str(self.folder / f"{self.name}.etcd"),
            "ETCD_LISTEN_PEER_URLS": peers,
            "ETCD_INITIAL_ADVERTISE_PEER_URLS": peers,
            "ETCD_LISTEN_CLIENT_URLS": client,
            "ETCD_ADVERTISE_CLIENT_URLS": client,
            "ETCD_INITIAL_CLUSTER": ",".join(node.peer for node in nodes),
        }
        given = _settings("node.env")
        passwords = {name: _PASSWORD for name in given if name.endswith("_PASSWORD")}
        api, server = f"{_HOST}:{self.api_port}", f"{_HOST}:{self.port}"
        self.patroni = given | passwords | {
            "PATRONI_NAME": self.name,
            "PATRONI_RESTAPI_LISTEN": api,
            "PATRONI_RESTAPI_CONNECT_ADDRESS": api,
            "PATRONI_POSTGRESQL_LISTEN": server,
            "PATRONI_POSTGRESQL_CONNECT_ADDRESS": server,
            "PATRONI_POSTGRESQL_DATA_DIR": str(self.folder / self.name),
            "PATRONI_POSTGRESQL_BIN_DIR": str(binaries()),
            "PATRONI_POSTGRESQL_PGPASS": str(self.folder / f"{self.name}.pgpass"),
            "PATRONI_ETCD3_HOSTS": ",".join(f"{_HOST}:{node.etcd_port}" for node in nodes),
        }  # fmt: skip

    def start_etcd(self) -> None:
        """Start its member of etcd."""
        self._start("etcd", ["etcd"], self.etcd)

    def start(self) -> None:
        """Start Patroni."""
        self._start("patroni", ["patroni", str(FILES / "config.yml")], self.patroni)

    def _start(self, what: str, command: list[str], environment: dict[str, str]) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        with open(self.folder / f"{self.name}.{what}.log", "ab") as log:
            self._started[what] = subprocess.Popen(
                command, env=kept | environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, **as_postgres(),
            )  # fmt: skip

    def kill(self) -> None:
        """kill -9 of Patroni and of every process of PostgreSQL, as when the machine is switched off."""
        victims = []
        with contextlib.suppress(OSError, ValueError, psutil.Error):
            first = psutil.Process(int((self.folder / self.name / "postmaster.pid").read_text().split()[0]))
            if first.cwd() == str(self.folder / self.name):
                victims = processes.family(first.pid)
        self._kill("patroni")
        processes.send(victims, signal.SIGKILL)
        psutil.wait_procs(victims, timeout=PATIENCE)

    def _kill(self, what: str) -> None:
        started = self._started.pop(what, None)
        if started is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(started.pid, signal.SIGKILL)
            started.wait(PATIENCE)

    def close(self) -> None:
        """Kill everything of it."""
        self.kill()
        self._kill("etcd")

    def ended(self) -> str:
        """The program that has ended by itself, with the end of its log; empty when all run."""
        for what, process in self._started.items():
            if process.poll() is not None:
                return f"{what} of {self.name} ended with {process.returncode}:\n{self.log(what)}"
        return ""

    def log(self, what: str) -> str:
        """The end of a log."""
        return (self.folder / f"{self.name}.{what}.log").read_text(errors="replace")[-3000:]

    def dsn(self, database: str) -> str:
        """Connection string of its server."""
        login = f"user=ipf password={_PASSWORD} dbname={database}"
        return f"host={_HOST} port={self.port} {login} sslmode=disable gssencmode=disable"

    def sql(self, query: str, database: str) -> str:
        """Rows of a query, as psql prints them without headings."""
        return program("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.dsn(database), "-c", query)

    def members(self) -> list[dict[str, Any]]:
        """The members as its REST interface sees them; empty when it does not answer."""
        connection = http.client.HTTPConnection(_HOST, self.api_port, timeout=5)
        try:
            connection.request("GET", "/cluster")
            members: list[dict[str, Any]] = json.loads(connection.getresponse().read())["members"]
            return members
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            return []
        finally:
            connection.close()


class Cluster:
    """The nodes.  `start` ends when one leads, one follows synchronously, and the databases exist."""

    def __init__(self) -> None:
        self.folder = scratch_folder("ipf-patroni-")
        self.nodes = [Node(self.folder, f"db{number}") for number in (1, 2, 3)]

    def start(self) -> None:
        """Start all programs and make the databases."""
        for node in self.nodes:
            node.configure(self.nodes)
            node.start_etcd()
        for node in self.nodes:
            node.start()
        self.wait_complete()
        admin = f"host={_HOST} port={self.leader().port} user=postgres password={_PASSWORD} dbname=postgres"
        script = (FILES / "databases.sql").read_text()
        copy = self.folder / "databases.sql"
        copy.write_text(script)
        program(
            "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-v", f"password={_PASSWORD}", "-d", admin, "-f", str(copy)
        )

    def url(self, database: str) -> str:
        """The URL of `etc/patroni/ipf.env`, at the addresses of loopback."""
        given = _settings("ipf.env")["IPF_DB_URL" if database == "ipf" else "IPF_FHIR_DB_URL"]
        path = given.rpartition("/")[2]
        return f"postgresql://ipf:{_PASSWORD}@{','.join(f'{_HOST}:{node.port}' for node in self.nodes)}/{path}"

    def leader(self) -> Node:
        """The node that leads.  TimeoutError when there is none."""
        found: list[Node] = []

        def look() -> bool:
            names = {one["name"] for one in self._members() if one["role"] == "leader" and one["state"] == "running"}
            found[:] = [node for node in self.nodes if node.name in names]
            return bool(found)

        self._until(look, "no node leads")
        return found[0]

    def wait_complete(self) -> None:
        """Wait until all three nodes run, one leads and one of the others is its synchronous standby."""

        def complete() -> bool:
            members = self._members()
            roles = sorted(one["role"] for one in members if one["state"] in ("running", "streaming"))
            return roles == ["leader", "replica", "sync_standby"]

        self._until(complete, "the nodes do not form a cluster")

    def close(self) -> None:
        """Kill every program, and remove the folder."""
        for node in self.nodes:
            node.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _members(self) -> list[dict[str, Any]]:
        return next((members for node in self.nodes if (members := node.members())), [])

    def _until(self, condition: Callable[[], bool], otherwise: str) -> None:
        def holds() -> bool:
            if ended := "".join(node.ended() for node in self.nodes):
                raise RuntimeError(f"{otherwise}: {ended}")
            return condition()

        try:
            block_until(holds, otherwise)
        except AssertionError as late:
            raise TimeoutError(f"{otherwise}: {self._members()}") from late


def _settings(name: str) -> dict[str, str]:
    lines = (FILES / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))  # type: ignore[misc]
