"""Keeps the embedded PostgreSQL running while the service runs.

A server that went away is started again: after the kernel killed it for lack of memory, and after a full disk stopped
its recovery; then it is tried again at growing intervals until there is space.  Committed rows survive.  Senders are
answered `AE` meanwhile.

A server that was stopped in order (`pg_ctl stop`, `restart`) is left alone for `GRACE_SECONDS`, so that its operator
may start it.
"""

from __future__ import annotations

from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from ipf.errors import Problem

log = Logger()

CHECK_SECONDS = 1.0
GRACE_SECONDS = 5.0
LONGEST_WAIT_SECONDS = 30.0


class Server(Protocol):
    """The part of `EmbeddedPostgres` that is used here."""

    def running(self) -> bool:
        """Whether the server runs now."""

    def stopped_in_order(self) -> bool:
        """Whether a server that does not run was stopped in order."""

    async def start_up(self) -> None:
        """Start the server; Problem when that fails."""


class PostgresSupervisor:
    """Supervises `server` from `start` to `stop`."""

    def __init__(self, server: Server, clock: IReactorTime) -> None:
        self._server = server
        self._clock = clock
        self._loop = LoopingCall(lambda: Deferred.fromCoroutine(self._guarded()))
        self._loop.clock = clock
        self._ended: Deferred[LoopingCall] | None = None
        self._gone_since: float | None = None
        self._next = 0.0
        self._wait = CHECK_SECONDS

    def start(self) -> None:
        """Begin to check."""
        self._ended = self._loop.start(CHECK_SECONDS, now=False)

    async def stop(self) -> None:
        """Stop checking, after a start that is under way has ended."""
        if self._loop.running:
            self._loop.stop()
        if self._ended is not None:
            await self._ended

    async def check(self) -> None:
        """Check whether the server runs, and start it when it is due."""
        if self._server.running():
            self._gone_since = None
            return
        now = self._clock.seconds()
        if self._gone_since is None:
            self._gone_since, self._wait = now, CHECK_SECONDS
            self._next = now + (GRACE_SECONDS if self._server.stopped_in_order() else CHECK_SECONDS)
            log.error(
                "event=postgres_gone the embedded PostgreSQL has ended; it will be started", event="postgres_gone"
            )
        if now >= self._next:
            await self._start()

    async def _guarded(self) -> None:
        try:
            await self.check()
        except Exception:
            log.failure("supervising the embedded PostgreSQL failed")

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
