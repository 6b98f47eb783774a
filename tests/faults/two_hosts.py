"""Two hosts of ipf that can lose their power, on one Ethernet with PostgreSQL: network namespaces, veth and a bridge.

The process lives in namespaces of its own (`bin/test-vip` makes them), so the addresses are those of
`etc/keepalived/keepalived.conf` and `etc/haproxy/haproxy.cfg`, the files run as they are, and nothing is left when it
ends.  10.0.0.1 on the bridge is the sender, the database and HAProxy.  All functions block, and every wait has a bound.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.faults.scenario import PATIENT
from tests.replication import Server, scratch_folder, why_not
from tests.service_process import ROOT
from tests.waiting import PATIENCE, block_until

KEEPALIVED, HAPROXY = ROOT / "etc/keepalived/keepalived.conf", ROOT / "etc/haproxy/haproxy.cfg"
BRIDGE, NETWORK = "10.0.0.1", "10.0.0.0/24"
MLLP_PORT, HTTP_PORT = 2575, 8090


def run(*command: str) -> str:
    """Run a program; its output.  RuntimeError with its own words when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Host:
    """One host: a network namespace with `eth0`, the service, and keepalived."""

    def __init__(self, network: Network, number: int) -> None:
        self.name, self.address = f"ipf{number}", f"10.0.0.1{number}"
        self._network = network
        self._service: subprocess.Popen[bytes] | None = None
        self._keepalived: subprocess.Popen[bytes] | None = None

    @property
    def shares_address(self) -> bool:
        """Whether it runs keepalived."""
        return self._network.has_address

    def boot(self) -> None:
        """Switch it on: network, service, keepalived."""
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", self.name, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "link", "set", self.name, "master", "bridge", "up")
        for link in ("lo", "eth0"):
            run("ip", "-n", self.name, "link", "set", link, "up")
        run("ip", "-n", self.name, "address", "add", f"{self.address}/24", "dev", "eth0")
        self.start_service()
        if self.shares_address:
            self.start_keepalived()

    def start_service(self) -> None:
        """Start ipf."""
        folder = self._network.folder / self.name
        folder.mkdir(exist_ok=True)
        twistd = str(Path(sys.executable).with_name("twistd"))
        self._service = self._start([twistd, "--nodaemon", "--pidfile=", "ipf"], folder, "service.log")

    def start_keepalived(self) -> None:
        """Start keepalived with the file of etc/keepalived."""
        files = [word for kind in ("p", "r", "c") for word in (f"-{kind}", f"/run/{self.name}-{kind}.pid")]
        command = ["keepalived", "--dont-fork", "--log-console", "--log-detail", "-f", str(KEEPALIVED), *files]
        self._keepalived = self._start(command, self._network.folder, "keepalived.log")

    def lose_power(self) -> None:
        """The cable first, so that no connection is closed; then every process is killed, and the host is gone."""
        self.unplug()
        for pid in run("ip", "netns", "pids", self.name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        for process in (self._service, self._keepalived):
            if process is not None:
                process.wait(PATIENCE)
        for file in Path("/run").glob(f"{self.name}-*.pid"):
            file.unlink()
        run("ip", "netns", "delete", self.name)
        run("ip", "link", "delete", self.name)

    def unplug(self) -> None:
        """Pull the cable."""
        run("ip", "link", "set", self.name, "down")

    def plug(self) -> None:
        """Put it back."""
        run("ip", "link", "set", self.name, "up")

    def kill_service(self) -> None:
        """kill -9 of ipf alone."""
        assert self._service is not None
        self._service.kill()
        self._service.wait(PATIENCE)

    def restart_service(self) -> None:
        """SIGTERM of ipf, and start it again, as an upgrade does."""
        assert self._service is not None
        self._service.terminate()
        self._service.wait(PATIENCE)
        self.start_service()

    def stop_keepalived(self) -> None:
        """SIGTERM of keepalived: it gives the address away."""
        assert self._keepalived is not None
        self._keepalived.terminate()
        self._keepalived.wait(PATIENCE)

    def is_ready(self) -> bool:
        """Whether the service accepts messages, asked from the bridge."""
        connection = http.client.HTTPConnection(self.address, HTTP_PORT, timeout=5)
        try:
            connection.request("GET", "/actuator/health/readiness")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def has_address(self) -> bool:
        """Whether it has the virtual address."""
        return f"{virtual_address()}/24" in run("ip", "-n", self.name, "address", "show", "dev", "eth0")

    def _start(self, command: list[str], folder: Path, log: str) -> subprocess.Popen[bytes]:
        named = ["unshare", "--uts", "sh", "-c", f'hostname {self.name}; exec "$@"', "sh", *command]
        with (self._network.folder / f"{self.name}-{log}").open("ab") as out:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.name, *named],
                env=self._network.environment(self.name), cwd=folder, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip


class Network:
    """The Ethernet, PostgreSQL on it, and both hosts.  `has_address`: they share one by keepalived."""

    def __init__(self, has_address: bool) -> None:
        self.has_address = has_address
        self.folder = scratch_folder("ipf-hosts-")
        self.folder.chmod(0o755)
        self.postgres = Server(self.folder, "postgres")
        self.hosts = (Host(self, 1), Host(self, 2))
        self._haproxy: subprocess.Popen[bytes] | None = None

    def holder(self, number: int) -> Host:
        """The host that senders are connected to: the one that has the virtual address, once one has.

        With HAProxy, the other one than before: all connections of a host that failed went there.
        """
        if not self.has_address:
            return self.hosts[number % len(self.hosts)]
        block_until(lambda: any(host.has_address() for host in self.hosts), "no host has the virtual address")
        return next(host for host in self.hosts if host.has_address())

    @property
    def address(self) -> str:
        """What senders connect to."""
        return virtual_address() if self.has_address else BRIDGE

    def start(self) -> None:
        """Start everything and wait until both services are ready."""
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "bridge", "type", "bridge")
        run("ip", "address", "add", f"{BRIDGE}/24", "dev", "bridge")
        run("ip", "link", "set", "bridge", "up")
        self._start_postgres()
        for host in self.hosts:
            host.boot()
            block_until(host.is_ready, f"{host.name} is not ready: {self._logs()}")
        if not self.has_address:
            with (self.folder / "haproxy.log").open("ab") as log:
                self._haproxy = subprocess.Popen(["haproxy", "-db", "-f", str(HAPROXY)], stdout=log, stderr=log)
            block_until(_answers, f"HAProxy does not answer: {self._logs()}")

    def _start_postgres(self) -> None:
        self.postgres.create()
        with (self.postgres.data / "pg_hba.conf").open("a") as hba:
            hba.write(f"host all all {NETWORK} trust\n")
        self.postgres.configure(listen_addresses=f"'127.0.0.1,{BRIDGE}'", max_connections="200", **_keepalives())
        self.postgres.start()
        for name in ("ipf", "fhir"):
            self.postgres.sql(f"CREATE DATABASE {name}")

    def environment(self, host: str) -> dict[str, str]:
        """The environment of a host's programs."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("IPF_", "SUBSCRIPTION_"))}
        url = f"postgresql://ipf@{BRIDGE}:{self.postgres.port}"
        return kept | PATIENT | {
            "PYTHONPATH": str(ROOT),
            "IPF_DATA_DIR": str(self.folder / host / "data"),
            "IPF_DB_URL": f"{url}/ipf",
            "IPF_FHIR_DB_URL": f"{url}/fhir",
            "IPF_HTTP_LISTEN": f"tcp:{HTTP_PORT}:interface=0.0.0.0",
            "IPF_MLLP_LISTEN": f"tcp:{MLLP_PORT}:interface=0.0.0.0",
            "IPF_WORKER_PROCESSES": "0",  # a host is ready sooner
            "IPF_WORKER_TRANSFORMING_STALE_SECONDS": "10",
            "IPF_LOG_FORMAT": "json",
        }  # fmt: skip

    def sql(self, database: str, query: str) -> list[list[str]]:
        """Rows of a query, as text."""
        return [row.split("|") for row in self.postgres.sql(query, database).splitlines()]

    def _logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.log"))

    def close(self) -> None:
        """Stop PostgreSQL; the namespaces end with this process, and everything in them."""
        for host in self.hosts:
            with contextlib.suppress(RuntimeError):
                host.lose_power()
        if self._haproxy is not None:
            self._haproxy.kill()
            self._haproxy.wait(PATIENCE)
        self.postgres.stop("kill")
        with contextlib.suppress(RuntimeError):
            run("ip", "link", "delete", "bridge")
        shutil.rmtree(self.folder, ignore_errors=True)


def _answers() -> bool:
    with contextlib.suppress(OSError), socket.create_connection((BRIDGE, MLLP_PORT), timeout=5):
        return True
    return False


def _keepalives() -> dict[str, str]:
    """The settings in etc/patroni/config.yml by which PostgreSQL forgets a host that is gone."""
    found = re.findall(r"^ +(tcp_keepalives_\w+): (\d+)$", (ROOT / "etc/patroni/config.yml").read_text(), re.M)
    assert len(found) == 3
    return dict(found)


def virtual_address() -> str:
    """The address in etc/keepalived/keepalived.conf."""
    found = re.search(r"virtual_ipaddress \{\s*([0-9.]+)/24 dev eth0\s*\}", KEEPALIVED.read_text())
    assert found is not None
    return found[1]


def missing() -> str:
    """What this machine lacks; empty when nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    lacks = [name for name in ("keepalived", "haproxy", "ip", "curl", "unshare") if shutil.which(name) is None]
    return why_not() or (f"not installed: {', '.join(lacks)}" if lacks else "")
