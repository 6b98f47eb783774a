"""Converter processes: children of the service that are started, watched, and started again when they end.

What arrives: a command and an environment.  What leaves: the children's log lines, written unchanged to the log of the
service, and a callback when a child has ended, so that its messages are recovered at once and not only when their
leases expire.  A child ends when its standard input closes, so none outlives a killed parent.

Children find their work in the database, and PostgreSQL notifies them of it.  Besides log lines, a child sends one
byte every `BEAT_SECONDS` (a heartbeat) while its reactor runs, or one line with the reason why it cannot start.  A
child that has begun to send heartbeats and then is silent for longer than its leases last hangs.  Its messages have
been recovered by then; it is killed and started again.

`twisted.runner.procmon` restarts processes, but fixes their protocol, so that there are no further pipes, and logs each
line of theirs anew: no heartbeat, no reason of a refused start, no end by a closed standard input, nobody learns of an
end.
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

from ipf.app.maps.check import decoded
from ipf.errors import Problem
from ipf.telemetry.heartbeat import BEAT, BEAT_FD, BEAT_SECONDS

log = Logger(namespace="ipf.app.processes")

SHORTEST_HEARTBEAT_TIMEOUT = 60.0  # seconds
# Ctrl-C reaches all processes of a terminal; the service ends its converters by closing their standard input.
_PROGRAM = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); from ipf.app.converter import main; main()"
START_TIMEOUT = 120.0  # seconds after which the service is ready also without its converters
_LONGEST_LINE = 256 * 1024


class Spawner(Protocol):
    """The methods of the reactor that are used."""

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
        """Call a function later."""

    def seconds(self) -> float:
        """The reactor's clock."""


class Child(ProcessProtocol):
    """One child process: passes on whole log lines, and reports its end once."""

    def __init__(
        self,
        name: str,
        write_lines: Callable[[bytes], None],
        report_end: Callable[[Child, str], None],
        seconds: Callable[[], float],
        report_start: Callable[[Child], None],
    ) -> None:
        self.name = name
        self._report_start = report_start
        self.last_heartbeat: float | None = None
        self._refusal = b""
        self._seconds = seconds
        self.ended: Deferred[None] = Deferred()
        self._write_lines = write_lines
        self._report_end = report_end
        self._rest = {1: b"", 2: b""}

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        """Pass on whole lines at once; a line of more than 256 KiB is cut."""
        if childFD == BEAT_FD and not data.startswith(BEAT):
            self._refusal += data
            return
        if childFD == BEAT_FD:
            is_first, self.last_heartbeat = self.last_heartbeat is None, self._seconds()
            if is_first:
                self._report_start(self)
            return
        lines, end, rest = (self._rest[childFD] + data).rpartition(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines, end, rest = lines + end + rest, b"\n", b""
        self._rest[childFD] = rest
        if end:
            self._write_lines(lines + end)

    @property
    def refusal(self) -> Problem | None:
        """What kept it from starting, when it has said so."""
        return decoded(self._refusal) if self._refusal else None

    def processEnded(self, reason: Failure) -> None:
        """The child has ended and its pipes are empty."""
        for rest in filter(None, self._rest.values()):
            self._write_lines(rest + b"\n")
        self.ended.callback(None)
        self._report_end(self, str(self.refusal or reason.getErrorMessage()))


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
        heartbeat_timeout: float = SHORTEST_HEARTBEAT_TIMEOUT,
    ) -> None:
        self._heartbeat_timeout = heartbeat_timeout
        self._next_check: IDelayedCall | None = None
        self._reactor = reactor
        self._environment = environment
        self._write_lines = write_lines
        self._lost = lost
        self._names = [f"{worker_name}:{number}" for number in range(1, count + 1)]
        self._restart_seconds = restart_seconds
        self._children: dict[str, Child] = {}
        self._restarts: dict[str, IDelayedCall] = {}
        self._stopping = False
        self._starting = set(self._names)
        self._started: Deferred[None] = Deferred()
        self._start_timeout: IDelayedCall | None = None

    @property
    def are_starting(self) -> bool:
        """Whether a child has neither begun to convert nor ended, within the time for it."""
        return bool(self._starting)

    async def started(self) -> None:
        """Wait until each child has begun to convert, or has ended once; at most `START_TIMEOUT`.

        Problem MAPPING or MALFORMED: a child has refused the maps of the start.
        """
        await self._started

    @property
    def running(self) -> int:
        """Number of children that run now."""
        return len(self._children)

    @property
    def wanted(self) -> int:
        """Number of children that should run."""
        return len(self._names)

    def start(self) -> None:
        """Start all children."""
        for name in self._names:
            self._spawn(name)
        self._next_check = self._reactor.callLater(BEAT_SECONDS, self._check_heartbeats)
        self._start_timeout = self._reactor.callLater(START_TIMEOUT, self._begin, *self._names)

    def _begin(self, *names: str) -> None:
        """These children count as started."""
        self._starting -= set(names)
        if not self._starting and not self._started.called:
            if self._start_timeout is not None and self._start_timeout.active():
                self._start_timeout.cancel()
            self._started.callback(None)

    async def stop(self, seconds: float) -> None:
        """Close the standard inputs of the children, so that they end; kill them after `seconds`."""
        self._stopping = True
        self._begin(*self._names)
        if self._next_check is not None:
            self._next_check.cancel()
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

    def _restart(self, name: str, reason: str) -> None:
        del self._restarts[name]
        log.error("converter process {name} ended: {reason}; it is started again", name=name, reason=reason)
        self._spawn(name)

    def _spawn(self, name: str) -> None:
        child = Child(name, self._write_lines, self._ended, self._reactor.seconds, lambda one: self._begin(one.name))
        self._children[name] = child
        arguments = [sys.executable, "-c", _PROGRAM]
        self._reactor.spawnProcess(
            child, sys.executable, arguments, self._environment(name), childFDs={0: "w", 1: "r", 2: "r", BEAT_FD: "r"}
        )

    def _check_heartbeats(self) -> None:
        """Kill the children that hang."""
        self._next_check = self._reactor.callLater(BEAT_SECONDS, self._check_heartbeats)
        now = self._reactor.seconds()
        for child in list(self._children.values()):
            silent = 0.0 if child.last_heartbeat is None else now - child.last_heartbeat
            if silent > self._heartbeat_timeout:
                text = "event=converter_hung name={name} silent_seconds={silent} the process hangs and is killed"
                log.error(text, event="converter_hung", name=child.name, silent=round(silent))
                self._kill([child])

    def _ended(self, child: Child, reason: str) -> None:
        self._children.pop(child.name, None)
        if child.refusal is not None and not self._started.called:
            self._started.errback(child.refusal)  # the start ends, and stops the others
            return
        self._begin(child.name)
        Deferred.fromCoroutine(self._recover(child.name))
        if not self._stopping:
            # Ctrl-C ends all processes, and this one may learn of it last: the restart is logged, not the end.
            restart = self._reactor.callLater(self._restart_seconds, self._restart, child.name, reason)
            self._restarts[child.name] = restart

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
