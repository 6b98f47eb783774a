"""`twistd` with a timer inside that measures how long the reactor does nothing else.

A timer fires every 5 ms of a reactor that turns.  The timer counts the *processor time of the process* that passes
between two of its turns, not the time on the wall: what other programs of a loaded machine take is not counted, and a
process that waits for a database uses none.  Processor time of the process rather than of the reactor's thread, since
C code in another thread may hold the interpreter lock, and the reactor waits for that as well.  Pure Python in another
thread gives the lock back every 5 ms, so the timer fires and little is counted.

A second thread notes the stack of the reactor's thread when a turn takes long, so that a test can say what blocked.
`MeasuredProcess.longest` asks for the longest turn since it was asked last.
"""

from __future__ import annotations

import faulthandler
import json
import os
import socket
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.protocol import Factory, Protocol

from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE, free_port

INTERVAL = 0.005
SUSPICIOUS = 0.04  # seconds of one turn after which the stack is noted


@dataclass(slots=True)
class Longest:
    """The longest turn: seconds of processor time, and what ran."""

    seconds: float = 0.0
    stack: str = ""


@dataclass(slots=True)
class ReactorTimer:
    """Measures turns of the reactor in which it is started."""

    reactor: Any
    longest: Longest = field(default_factory=Longest)
    _turn_began: float = 0.0
    _stack: str = ""
    _stopped: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Begin in the thread of the reactor."""
        self._turn_began = time.process_time()
        threading.Thread(target=self._watch, args=(threading.get_ident(),), daemon=True).start()
        self._fire()

    def stop(self) -> None:
        """No stack is noted any more."""
        self._stopped.set()

    def measure(self) -> None:
        """A turn ends here."""
        now = time.process_time()
        seconds, self._turn_began = now - self._turn_began, now
        if seconds > self.longest.seconds:
            self.longest = Longest(seconds, self._stack)
        self._stack = ""

    def take(self) -> Longest:
        """The longest turn since it was taken last."""
        self.measure()
        found, self.longest = self.longest, Longest()
        return found

    def _fire(self) -> None:
        self.measure()
        self.reactor.callLater(INTERVAL, self._fire)

    def _watch(self, thread: int) -> None:
        while not self._stopped.wait(0.01):
            if time.process_time() - self._turn_began > SUSPICIOUS:
                self._stack = _stack_of(thread)


def _stack_of(thread: int) -> str:
    """The stack of a thread, innermost call first.

    By faulthandler, because Python 3.11 may crash when frame objects of another thread are read while it runs.
    """
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        stacks = file.read().decode(errors="replace")
    return next((one for one in stacks.split("\n\n") if f"0x{thread:016x}" in one), "")


class _Answer(Protocol):
    def __init__(self, timer: ReactorTimer) -> None:
        self._timer = timer

    def connectionMade(self) -> None:
        """Twisted: somebody asks."""
        found = self._timer.take()
        assert self.transport is not None
        self.transport.write(json.dumps([found.seconds, found.stack]).encode())
        self.transport.loseConnection()


class MeasuredProcess(ServiceProcess):
    """The real service with a timer inside."""

    def start(self) -> None:
        """Start it without waiting until it is ready."""
        self.timer_port = free_port()
        self.environment["REACTOR_TIMER_PORT"] = str(self.timer_port)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.twistd = self.folder / "twistd"
        self.twistd.write_text(f"#!{sys.executable}\nfrom tests.flows.reactor_timer import main\nmain()\n")
        self.twistd.chmod(0o700)
        super().start()

    def longest(self) -> Longest:
        """The longest turn since the last call; blocks until the reactor turns."""
        with socket.create_connection(("127.0.0.1", self.timer_port), timeout=PATIENCE) as connection:
            content = b""
            while more := connection.recv(65536):
                content += more
        return Longest(*json.loads(content))


def main() -> None:
    """Run twistd with the timer."""
    from twisted.internet import reactor
    from twisted.scripts import twistd

    timer, own = ReactorTimer(reactor), reactor  # type: Any, Any
    own.callWhenRunning(timer.start)
    factory = Factory()
    factory.buildProtocol = lambda _: _Answer(timer)  # type: ignore[method-assign]
    own.listenTCP(int(os.environ["REACTOR_TIMER_PORT"]), factory, interface="127.0.0.1")
    twistd.run()
