"""When a server can write, as another client of it sees: the clock that the service's recovery is compared with.

A thread for each server opens a fresh connection every 20 ms and commits a row, on the host that also runs the service.
What holds up the machine holds up these attempts too, so their durations say how late a fast client could be.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import psycopg2
from psycopg2.extensions import POLL_OK, POLL_READ

TABLE = "CREATE TABLE IF NOT EXISTS writable (at timestamptz DEFAULT now())"
_WRITE = "INSERT INTO writable DEFAULT VALUES"
_EVERY = 0.02
_PATIENCE = 1.0
"""Seconds after which an attempt counts as failed: the server hangs, or its commit waits for a standby."""


@dataclass
class Writable:
    """`attempts`: times at which a successful attempt began and ended, of any server, in order of their ends.

    `tries`: all that ended, failed ones included.
    """

    tries: int = 0
    attempts: list[tuple[float, float]] = field(default_factory=list)
    _ending: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self, *dsns: str) -> None:
        """Begin to try the servers with these connection strings."""
        self._threads = [threading.Thread(target=self._try, args=(dsn,), daemon=True) for dsn in dsns]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all attempts."""
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def since(self, moment: float) -> float | None:
        """When the first attempt that began after `moment` ended; None when there is none yet."""
        return next((end for began, end in self.attempts if began >= moment), None)

    def commits(self, begin: float, end: float) -> int:
        """How many attempts succeeded within these times."""
        return sum(begin < ended <= end for _, ended in self.attempts)

    def slowest(self, begin: float, end: float) -> float:
        """The longest attempt and the longest pause between two successes within these times."""
        ends = [begin, *(ended for _, ended in self.attempts if begin <= ended <= end), end]
        gaps = [after - before for before, after in itertools.pairwise(ends)]
        durations = [ended - began for began, ended in self.attempts if begin <= began and ended <= end]
        return max(*durations, *gaps)

    def _try(self, dsn: str) -> None:
        while not self._ending.wait(_EVERY):
            began = time.monotonic()
            with contextlib.suppress(psycopg2.Error, OSError, ValueError):  # a socket that libpq closed is no file
                _write(dsn, began + _PATIENCE)
                self.attempts.append((began, time.monotonic()))
            self.tries += 1


def _write(dsn: str, deadline: float) -> None:
    connection = psycopg2.connect(dsn, async_=1)
    try:
        _complete(connection, deadline)
        cursor = connection.cursor()  # the connection holds it only weakly
        cursor.execute(_WRITE)
        _complete(connection, deadline)
    finally:
        connection.close()


def _complete(connection: Any, deadline: float) -> None:
    """Let libpq go on until the server has answered; TimeoutError at `deadline`."""
    while (state := connection.poll()) != POLL_OK:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        readers, writers = ([connection], []) if state == POLL_READ else ([], [connection])
        select.select(readers, writers, [], left)
