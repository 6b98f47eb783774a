"""Keeps the embedded PostgreSQL running while the service runs: nobody else would start it again.

What arrives: the server of one data directory.  What leaves: that server, started again after it went away, and lines
that say so.  It goes away when the kernel kills it for want of memory, and when a full disk keeps it from recovering;
then it is tried again, less and less often, until there is space.  What was committed is there afterwards; senders are
answered `AE` meanwhile, and the service goes on by itself.

A server that was stopped in order (`pg_ctl stop`, `restart`) is left alone for `GRACE_SECONDS`, in which whoever did
that may start it.
"""

from __future__ import annotations

from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from ipf.errors import Problem

log = Logger()

LOOK_SECONDS = 1.0
GRACE_SECONDS = 5.0
LONGEST_WAIT_SECONDS = 30.0


class Server(Protocol):
    """What is needed of `EmbeddedPostgres`."""

    def running(self) -> bool:
        """Whether it runs now."""

    def left_in_order(self) -> bool:
        """Whether a server that does not run was stopped in order."""

    async def start_up(self) -> None:
        """Start it; Problem when that fails."""


class PostgresSupervisor:
    """Looks after `server` from `start` to `stop`."""

    def __init__(self, server: Server, clock: IReactorTime) -> None:
        self._server = server
        self._clock = clock
        self._loop = LoopingCall(lambda: Deferred.fromCoroutine(self._guarded()))
        self._loop.clock = clock
        self._ended: Deferred[LoopingCall] | None = None
        self._gone_since: float | None = None
        self._next = 0.0
        self._wait = LOOK_SECONDS

    def start(self) -> None:
        """Begin to look."""
        self._ended = self._loop.start(LOOK_SECONDS, now=False)

    async def stop(self) -> None:
        """Look no more; a start that is being tried is waited for."""
        if self._loop.running:
            self._loop.stop()
        if self._ended is not None:
            await self._ended

    async def look(self) -> None:
        """See whether it runs, and start it when it is time to."""
        if self._server.running():
            self._gone_since = None
            return
        now = self._clock.seconds()
        if self._gone_since is None:
            self._gone_since, self._wait = now, LOOK_SECONDS
            self._next = now + (GRACE_SECONDS if self._server.left_in_order() else LOOK_SECONDS)
            log.error("event=postgres_gone the embedded PostgreSQL has ended; it is started", event="postgres_gone")
        if now >= self._next:
            await self._start()

    async def _guarded(self) -> None:
        try:
            await self.look()
        except Exception:
            log.failure("looking after the embedded PostgreSQL failed")

    async def _start(self) -> None:
        try:
            await self._server.start_up()
        except Problem as problem:
            self._next = self._clock.seconds() + self._wait
            log.error(
                "event=postgres_not_started reason={reason} next_try_seconds={seconds}",
                event="postgres_not_started",
                reason=problem.text,
                seconds=self._wait,
            )
            self._wait = min(self._wait * 2, LONGEST_WAIT_SECONDS)
        else:
            log.info("event=postgres_started the embedded PostgreSQL runs again", event="postgres_started")
