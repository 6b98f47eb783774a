"""Converter processes: children of the one service, started, watched, and started again when they die.

What arrives: a command and an environment.  What leaves: the children's log lines, written to our own log stream as
they came; a callback when a child is gone, so that what it held is recovered at once, not after the stale time.
A child ends when its standard input closes, so none outlives a killed parent.

Children find their work in the database and are woken by its notifiers: nothing but log lines crosses the pipes, and
a byte
every `BEAT_SECONDS`, by which a child says that its reactor turns.  One that began to say so and then is silent for
longer than its leases last hangs (a map without end, a stopped process): it has lost its messages already and would
never convert another, so it is killed, and started again as after any other death.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.interfaces import IDelayedCall, IProcessTransport
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from ipf.telemetry.heartbeat import BEAT_FD, BEAT_SECONDS

log = Logger(namespace="ipf.processes")

SHORTEST_PATIENCE_SECONDS = 60.0
_LONGEST_LINE = 256 * 1024


class Spawner(Protocol):
    """What is needed of the reactor."""

    def spawnProcess(
        self,
        processProtocol: ProcessProtocol,
        executable: str,
        args: list[str],
        env: Mapping[str, str],
        *,
        childFDs: dict[int, str],
    ) -> IProcessTransport:
        """Start a child."""

    def callLater(self, delay: float, callable: Callable[..., object], *args: object) -> IDelayedCall:
        """Call later."""

    def seconds(self) -> float:
        """What time it is."""


class Child(ProcessProtocol):
    """One child: its lines go out whole, its end is told once."""

    def __init__(
        self,
        name: str,
        write_lines: Callable[[bytes], None],
        gone: Callable[[Child, str], None],
        seconds: Callable[[], float],
    ) -> None:
        self.name = name
        self.beat_at: float | None = None
        self._seconds = seconds
        self.ended: Deferred[None] = Deferred()
        self._write_lines = write_lines
        self._gone = gone
        self._rest = {1: b"", 2: b""}

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        """Pass on what came as far as lines are whole, at once; an endless one is cut."""
        if childFD == BEAT_FD:
            self.beat_at = self._seconds()
            return
        lines, end, rest = (self._rest[childFD] + data).rpartition(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines, end, rest = lines + end + rest, b"\n", b""
        self._rest[childFD] = rest
        if end:
            self._write_lines(lines + end)

    def processEnded(self, reason: Failure) -> None:
        """The child is gone and its pipes are empty."""
        for rest in filter(None, self._rest.values()):
            self._write_lines(rest + b"\n")
        self.ended.callback(None)
        self._gone(self, reason.getErrorMessage())


class ConverterProcesses:
    """Keeps `count` children running until `stop`."""

    def __init__(
        self,
        reactor: Spawner,
        count: int,
        environment: Callable[[str], Mapping[str, str]],
        *,
        write_lines: Callable[[bytes], None],
        lost: Callable[[str], Awaitable[None]],
        worker_name: str,
        restart_seconds: float = 1.0,
        patience_seconds: float = SHORTEST_PATIENCE_SECONDS,
    ) -> None:
        self._patience_seconds = patience_seconds
        self._look_again: IDelayedCall | None = None
        self._reactor = reactor
        self._environment = environment
        self._write_lines = write_lines
        self._lost = lost
        self._names = [f"{worker_name}:{number}" for number in range(1, count + 1)]
        self._restart_seconds = restart_seconds
        self._children: dict[str, Child] = {}
        self._restarts: dict[str, IDelayedCall] = {}
        self._stopping = False

    @property
    def running(self) -> int:
        """How many children are alive now."""
        return len(self._children)

    @property
    def wanted(self) -> int:
        """How many there should be."""
        return len(self._names)

    def start(self) -> None:
        """Start all children."""
        for name in self._names:
            self._spawn(name)
        self._look_again = self._reactor.callLater(BEAT_SECONDS, self._look)

    async def stop(self, seconds: float) -> None:
        """Close their standard inputs, which asks them to end; after `seconds` they are killed."""
        self._stopping = True
        if self._look_again is not None:
            self._look_again.cancel()
        for call in self._restarts.values():
            call.cancel()
        children = list(self._children.values())
        for child in children:
            _transport(child).closeChildFD(0)
        killer = self._reactor.callLater(seconds, self._kill, children)
        for child in children:
            await child.ended
        if killer.active():
            killer.cancel()

    def _spawn(self, name: str) -> None:
        self._restarts.pop(name, None)
        child = Child(name, self._write_lines, self._ended, self._reactor.seconds)
        self._children[name] = child
        arguments = [sys.executable, "-m", "ipf.app.converter"]
        self._reactor.spawnProcess(
            child, sys.executable, arguments, self._environment(name), childFDs={0: "w", 1: "r", 2: "r", BEAT_FD: "r"}
        )

    def _look(self) -> None:
        """Kill those that hang."""
        self._look_again = self._reactor.callLater(BEAT_SECONDS, self._look)
        now = self._reactor.seconds()
        for child in list(self._children.values()):
            silent = 0.0 if child.beat_at is None else now - child.beat_at
            if silent > self._patience_seconds:
                text = "event=converter_hung name={name} silent_seconds={silent} the process hangs and is killed"
                log.error(text, event="converter_hung", name=child.name, silent=round(silent))
                self._kill([child])

    def _ended(self, child: Child, reason: str) -> None:
        self._children.pop(child.name, None)
        Deferred.fromCoroutine(self._recover(child.name))
        if not self._stopping:
            log.error("converter process {name} ended: {reason}; it is started again", name=child.name, reason=reason)
            self._restarts[child.name] = self._reactor.callLater(self._restart_seconds, self._spawn, child.name)

    async def _recover(self, name: str) -> None:
        try:
            await self._lost(name)
        except Exception:
            log.failure("rows of a lost converter process are left to stale recovery")

    def _kill(self, children: list[Child]) -> None:
        for child in children:
            try:
                _transport(child).signalProcess("KILL")
            except ProcessExitedAlready:
                pass


def _transport(child: Child) -> IProcessTransport:
    transport = child.transport
    assert transport is not None
    return transport
