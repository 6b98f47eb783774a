"""The engines and consoles of the browser tests: one engine for all tests that do not need one of their own.

The modules of the family `console` run in one process, one after the other.  Their classes share an engine, with
consoles in front of it; each class puts into the engine what it needs, with ids and senders of its own.  A class that
stops its engine, counts what it holds, or fills it, has one of its own, which ends when the next class begins.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tests.console.process import ConsoleProcess
from tests.service_process import ServiceProcess

SETTINGS = {
    "IPF_PERMANENT_ERRORS": "dead_letter",  # what no retry mends is a dead letter at once
    "IPF_BACKOFF_BASE_MS": "300000",
    "SUBSCRIPTION_SERVICE_DELIVERY_MAX_ATTEMPTS": "1",
}
SECRET = "a-secret-that-signs-notifications"
SHARED = SETTINGS | {"IPF_EXPECTED_INTERVALS": "QUIET=1s", "SUBSCRIPTION_SERVICE_SIGNING_SECRET": SECRET}
"""Of the engine that classes share."""


class Stage:
    """One engine, and the consoles in front of it, by name.  What fails to start is stopped again."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ipf-console-"))
        self.folder.chmod(0o755)
        self._stops: list[Callable[[], object]] = [partial(shutil.rmtree, self.folder, ignore_errors=True)]
        self.engine = ServiceProcess(self.folder, **settings)
        self._consoles: dict[str, ConsoleProcess] = {}
        try:
            self.engine.start()
            self.add_stop(self.engine.stop)
            self.engine.wait_ready()
        except BaseException:
            self.stop()
            raise

    def console(self, name: str, make: Callable[[Stage], ConsoleProcess]) -> ConsoleProcess:
        """The console of this name, made and started when it is first asked for."""
        if name not in self._consoles:
            console = make(self)
            self.add_stop(console.stop)
            console.start()
            self._consoles[name] = console
        return self._consoles[name]

    def add_stop(self, stop: Callable[[], object]) -> None:
        """Something to stop at the end, before everything that was added earlier."""
        self._stops.append(stop)

    def stop(self) -> None:
        """Stop all of it."""
        while self._stops:
            self._stops.pop()()


_shared: list[Stage] = []
_own: list[tuple[type, Stage]] = []


def shared() -> Stage:
    """The one of all classes that need none of their own; it runs until the process ends."""
    if not _shared:
        _shared.append(Stage(SHARED))
    return _shared[0]


def own(case: type, settings: Mapping[str, str]) -> Stage:
    """The one of this class alone; that of the class before is stopped."""
    if not _own or _own[0][0] is not case:
        end_own()
        _own.append((case, Stage(settings)))
    return _own[0][1]


def end_own() -> None:
    """Stop the one that a class has alone."""
    while _own:
        _own.pop()[1].stop()


def _end() -> None:
    end_own()
    while _shared:
        _shared.pop().stop()


atexit.register(_end)
