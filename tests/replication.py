"""Two real PostgreSQL servers with synchronous streaming replication, and the faults of a pair: for failover tests.

Servers are those of the host (Debian's `postgresql`), because the embedded one has no `pg_basebackup`.  PostgreSQL
refuses to run as root, so its programs then run as the user `postgres`, which the package makes.  All functions block.

The pair does what an operator such as Patroni does: a primary names its standby in `synchronous_standby_names` while
that one streams, so that an acknowledged commit is on both, and no longer when it is away, so that commits go on.  Only
a standby that was named until the end is promoted.

Sources: https://www.postgresql.org/docs/current/warm-standby.html#SYNCHRONOUS-REPLICATION,
https://www.postgresql.org/docs/current/app-pgrewind.html, https://patroni.readthedocs.io/en/latest/replication_modes.html
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psutil

from tests import processes
from tests.waiting import PATIENCE, block_until, free_port

_NEEDED = ("initdb", "pg_ctl", "pg_basebackup", "pg_rewind", "psql")
_USER = "ipf"
SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "unix_socket_directories": "''",
    "wal_log_hints": "on",  # for pg_rewind
    "wal_keep_size": "'512MB'",
    "wal_retrieve_retry_interval": "'200ms'",
    "fsync": "off",  # processes are killed here, never the machine
    "max_connections": "100",
    "shared_buffers": "'64MB'",
}


def binaries() -> Path | None:
    """The folder of the newest PostgreSQL server that is installed with all its programs."""
    found = [folder for folder in Path("/usr/lib/postgresql").glob("*/bin") if _is_complete(folder)]
    return max(found, key=lambda folder: int(folder.parent.name), default=None)


def why_not() -> str:
    """Why there can be no pair on this host; empty when there can."""
    if binaries() is None:
        return "PostgreSQL's server programs are not installed (Debian: postgresql)"
    if os.geteuid() == 0 and not _has_user("postgres"):
        return "PostgreSQL does not run as root, and there is no user postgres"
    return ""


def _is_complete(folder: Path) -> bool:
    return folder.parent.name.isdigit() and all((folder / name).exists() for name in _NEEDED)


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def as_postgres() -> dict[str, Any]:
    """Options of `subprocess` for a program that refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("postgres")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def scratch_folder(prefix: str) -> Path:
    """A new folder that PostgreSQL's user may write in."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o755)
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
    return folder


def program(name: str, *arguments: str) -> str:
    """Run one of PostgreSQL's programs; its output.  RuntimeError with its own words when it fails or hangs."""
    folder = binaries()
    assert folder is not None
    command = [str(folder / name), *arguments]
    # Into files: a server that pg_ctl starts would keep a pipe open.
    with tempfile.TemporaryFile() as out:
        done = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/", timeout=PATIENCE,
            **as_postgres(),
        )  # fmt: skip
        out.seek(0)
        text = out.read().decode(errors="replace")
    if done.returncode != 0:
        raise RuntimeError(f"{name}: {text.strip()}")
    return text


class Server:
    """One PostgreSQL server in a folder.  Its settings are outside of its data, which `pg_rewind` copies."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.port = free_port()
        self.data = folder / name
        self._settings_file = folder / f"{name}.conf"
        self._log = folder / f"{name}.log"
        self._settings = SETTINGS | {"port": str(self.port)}

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    def dsn(self, database: str) -> str:
        """Connection string of this server alone."""
        return f"host=127.0.0.1 port={self.port} user={_USER} dbname={database} sslmode=disable gssencmode=disable"

    def create(self) -> None:
        """Make an empty cluster."""
        program("initdb", "-D", str(self.data), "-U", _USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    def copy(self, primary: Server) -> None:
        """Become a copy of `primary`, which runs."""
        shutil.rmtree(self.data, ignore_errors=True)
        program("pg_basebackup", "-D", str(self.data), "-d", primary.dsn(""), "-c", "fast", "-X", "stream", "--no-sync")

    def configure(self, **settings: str) -> None:
        """Set these settings, at once when it runs."""
        self._settings |= settings
        text = "".join(f"{name} = {value}\n" for name, value in self._settings.items())
        self._settings_file.write_text(text)
        if self.is_running():
            os.kill(self._postmaster(), signal.SIGHUP)

    def start(self, primary: Server | None = None) -> None:
        """Start it, as the standby of `primary` or to write, and wait until it answers."""
        mark = self.data / "standby.signal"
        if primary is None:
            mark.unlink(missing_ok=True)
        else:
            mark.touch()
            where = f"'host=127.0.0.1 port={primary.port} user={_USER} application_name={self.name}'"
            self._settings["primary_conninfo"] = where
        self.configure()
        options = f"-c config_file={self._settings_file}"
        program("pg_ctl", "start", "-D", str(self.data), "-w", "-l", str(self._log), "-o", options)

    def stop(self, mode: str = "fast") -> None:
        """Stop it as pg_ctl does; `kill`: SIGKILL of all its processes, also of those that hang."""
        if not self.is_running():
            return
        if mode != "kill":
            program("pg_ctl", "stop", "-D", str(self.data), "-w", "-m", mode)
            return
        killed = processes.family(self._postmaster())
        processes.send(killed, signal.SIGKILL)
        psutil.wait_procs(killed, timeout=PATIENCE)
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def hang(self) -> None:
        """SIGSTOP of all its processes: its sockets stay open, and nothing answers."""
        processes.suspend(self._postmaster())

    def resume(self) -> None:
        """End `hang`."""
        processes.resume(processes.family(self._postmaster()))

    def promote(self) -> None:
        """Make a standby writable."""
        self.configure(synchronous_standby_names="''")
        program("pg_ctl", "promote", "-D", str(self.data), "-w")

    def read_only(self, yes: bool) -> None:
        """Refuse writes of all sessions, or no longer."""
        self.configure(default_transaction_read_only="on" if yes else "off")

    def rewind(self, primary: Server) -> None:
        """Undo what `primary` does not have; by a new copy when pg_rewind refuses."""
        self.stop("immediate")
        primary.sql("CHECKPOINT")  # its control file names the new timeline then
        try:
            program("pg_rewind", "-D", str(self.data), f"--source-server={primary.dsn('postgres')}", "--no-sync",
                    f"--config-file={self._settings_file}")  # fmt: skip
        except RuntimeError:
            self.copy(primary)

    def sql(self, query: str, database: str = "postgres") -> str:
        """Rows of a query, as psql prints them without headings."""
        return program("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.dsn(database), "-c", query)

    def is_running(self) -> bool:
        """Whether its first process is there."""
        try:
            return psutil.Process(self._postmaster()).cwd() == str(self.data)
        except (OSError, ValueError, psutil.Error):
            return False

    def process(self) -> psutil.Process:
        """Its first process."""
        return psutil.Process(self._postmaster())

    def _postmaster(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])


class Pair:
    """Two servers: `primary` writes, `standby` follows.  `servers` is the order in which URLs name them."""

    def __init__(self) -> None:
        self.folder = scratch_folder("ipf-pair-")
        self.servers = (Server(self.folder, "a"), Server(self.folder, "b"))
        self.primary, self.standby = self.servers

    def start(self) -> None:
        """Make and start both, with empty databases `ipf` and `fhir`."""
        self.primary.create()
        self.primary.start()
        for name in ("ipf", "fhir"):
            self.primary.sql(f"CREATE DATABASE {name}")
        self.standby.copy(self.primary)
        self.standby.start(self.primary)
        self.wait_synchronous()

    def url(self, database: str, first: int = 0) -> str:
        """URL of both servers, `servers[first]` in front."""
        hosts = f"{self.servers[first].address},{self.servers[1 - first].address}"
        return f"postgresql://{_USER}@{hosts}/{database}?target_session_attrs=read-write"

    def switch(self) -> None:
        """Promote the standby; the old primary, whatever it does, is the standby from now on, once it is demoted."""
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def demote(self) -> None:
        """Stop the old primary and start it as the standby of the new one."""
        self.standby.stop("kill")
        self.standby.configure(default_transaction_read_only="off")
        self.standby.rewind(self.primary)
        self.standby.start(self.primary)

    def forget_standby(self) -> None:
        """Let the primary write alone: its standby is away."""
        self.primary.configure(synchronous_standby_names="''")

    def wait_synchronous(self) -> None:
        """Name the standby once it streams, and wait until every further commit is on both."""
        self._until(f"application_name = '{self.standby.name}' AND state = 'streaming'")
        self.primary.configure(synchronous_standby_names=f"'{self.standby.name}'")
        self._until(f"application_name = '{self.standby.name}' AND sync_state = 'sync'")

    def _until(self, condition: str) -> None:
        found = f"SELECT count(*) FROM pg_stat_replication WHERE {condition}"
        try:
            block_until(lambda: self.primary.sql(found).strip() == "1")
        except AssertionError as late:
            text = f"the standby does not follow: {self.primary.sql('TABLE pg_stat_replication')}"
            raise TimeoutError(text) from late

    def close(self) -> None:
        """Kill both and remove their folder."""
        for server in self.servers:
            with contextlib.suppress(OSError, psutil.Error):
                server.stop("kill")
        shutil.rmtree(self.folder, ignore_errors=True)
