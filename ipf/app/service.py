"""The Twisted service of `twistd ipf` and `twistd ipf-ui`: runs a start-up sequence, and stops in reverse order.

A start that fails logs the reason and ends the process with status 1.  On SIGTERM the listeners close, received
messages are stored and acknowledged, and conversions and deliveries in progress finish, each part within
`IPF_STOP_SECONDS`.  Work that does not finish remains in the database, and the next start continues it.  A SIGTERM
during the start ends the step in progress, then what was started stops in the same order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from twisted.application.service import IService, Service
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.logger import ILogObserver, Logger
from twisted.python.components import Componentized
from twisted.python.failure import Failure
from zope.interface import implementer

from ipf.app.runtime.process import use_monotonic_timers
from ipf.app.runtime.signals import stop_in_order
from ipf.errors import Problem
from ipf.telemetry.logs import LogWriter
from ipf.wire.client.host_names import use_host_names

log = Logger(namespace="ipf.app.service")

reactor: Any = _reactor  # its interfaces are mixed in at run time


Start = Callable[[Any, AsyncExitStack], Coroutine[Any, Any, None]]
"""A start-up sequence: opens everything with the reactor; what it opened is closed with the stack, in reverse order."""


@implementer(IService)
class Ipf(Service):
    """The service.  `start`: its start-up sequence; `warnings`: of reading the settings, to be logged."""

    name = "ipf"

    def __init__(self, start: Start, warnings: list[str], writer: LogWriter) -> None:
        self._start = start
        self._warnings = warnings
        self._writer = writer
        self._stack = AsyncExitStack()
        self._starting: Deferred[None] | None = None
        self._stopping = False

    def setServiceParent(self, parent: Any) -> None:
        """Replace the log observer of twistd by ours."""
        if isinstance(parent, Componentized):
            parent.setComponent(ILogObserver, self._writer)
        super().setServiceParent(parent)  # type: ignore[no-untyped-call]  # Twisted has no types here

    def startService(self) -> None:
        """Begin to start when the reactor runs; a failure ends the process."""
        use_monotonic_timers(reactor)
        use_host_names(reactor)
        super().startService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        reactor.callWhenRunning(self._begin)

    def stopService(self) -> Deferred[None]:
        """Stop; fires when everything is closed."""
        super().stopService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        return Deferred.fromCoroutine(self._stop())

    def _begin(self) -> None:
        stop_in_order(reactor)
        for warning in self._warnings:
            log.warn("{warning}", warning=warning)
        self._starting = Deferred.fromCoroutine(self._start(reactor, self._stack))
        self._starting.addErrback(self._start_failed)

    def _start_failed(self, failure: Failure) -> None:
        if self._stopping:  # whatever the step in progress made of it
            log.info("the start was ended by a signal")
            return
        if failure.check(Problem):
            log.critical("ipf cannot start: {reason}", reason=failure.getErrorMessage())
        else:
            log.failure("ipf cannot start", failure)
        # twistd exits with status 0 in any case, and systemd must see a failure.
        reactor.addSystemEventTrigger("after", "shutdown", os._exit, 1)
        reactor.callWhenRunning(reactor.stop)  # a start may fail in the turn in which the reactor begins to run

    async def _stop(self) -> None:
        self._stopping = True
        if self._starting is not None:
            self._starting.cancel()
            await self._starting  # until the step in progress has ended, and has registered what it opened
        try:
            await self._stack.aclose()
        except Exception:  # of the last part that failed; the stack has stopped all others
            log.failure("a part of the service did not stop in order")
        log.info("ipf has stopped")
