"""A converter process: claims messages, maps them, and writes FHIR resources.

The service starts `python -m ipf.app.converter` `IPF_WORKER_PROCESSES` times, with its own environment.  The process
ends when its standard input closes, so it never outlives its parent, or on SIGTERM or SIGINT, which a terminal sends to
every process of the service.  It then finishes the batch in progress and returns the messages that it has claimed and
not begun.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from twisted.internet import stdio
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol
from twisted.internet.task import LoopingCall
from twisted.logger import Logger, globalLogBeginner
from twisted.python.failure import Failure

from ipf.app.maps.check import encoded
from ipf.app.maps.installation import open_accepted_maps
from ipf.app.runtime.databases import DatabaseUrls
from ipf.app.runtime.free_memory import start_returning_memory
from ipf.app.runtime.garbage import collect_rarely
from ipf.app.runtime.process import CONVERTER_NAME, use_monotonic_timers, worker_name
from ipf.app.runtime.stores import open_stores
from ipf.app.stages.conversion import start_conversion_stage
from ipf.app.stages.topic_failures import start_topic_failures
from ipf.config.environment import InvalidSetting, read
from ipf.config.settings import Settings
from ipf.errors import Problem
from ipf.pipeline.convert.batches import DEDICATED_PROCESS
from ipf.telemetry.heartbeat import BEAT_SECONDS, beat, report
from ipf.telemetry.logs import LogWriter, level_named

log = Logger(namespace="ipf.app.converter")


class _StandardInput(Protocol):
    """Carries no data; `closed` fires when the parent closes it or ends."""

    def __init__(self) -> None:
        self.closed: Deferred[None] = Deferred()

    def connectionLost(self, reason: Any = None) -> None:
        """The parent closed it, or has ended."""
        if not self.closed.called:
            self.closed.callback(None)


async def run_process(reactor: Any, settings: Settings, name: str) -> None:
    """Convert until the parent ends.  `name`: the worker that holds the leases."""
    standard_input = _StandardInput()
    stdio.StandardIO(standard_input, reactor=reactor)
    for number in (signal.SIGTERM, signal.SIGINT):  # Twisted's handlers would drop the batch in progress
        signal.signal(number, lambda number, frame: reactor.callFromThread(standard_input.connectionLost))
    assert settings.db_url and settings.fhir_db_url
    urls = DatabaseUrls(settings.db_url, settings.fhir_db_url)
    async with AsyncExitStack() as stack:
        stores = await open_stores(settings, urls, "converter", DEDICATED_PROCESS.concurrency + 2, reactor, stack)
        try:
            installation = await open_accepted_maps(settings, stores, reactor, stack)
        except Problem as problem:
            report(encoded(problem))  # the parent logs it
            return
        start_conversion_stage(settings, stores, installation, name, DEDICATED_PROCESS, reactor, stack)
        start_topic_failures(settings, stores, reactor, stack, withdraws=False)
        collect_rarely()
        start_returning_memory(reactor, stack)
        if CONVERTER_NAME in os.environ:
            LoopingCall(beat).start(BEAT_SECONDS)
        await standard_input.closed


def install_reactor(settings: Settings) -> Any:
    """Import the reactor, without TLS where the process makes no HTTPS requests.

    With the reactor Twisted imports OpenSSL when it is there, which takes 11 MiB.  PostgreSQL's client has its own TLS.
    """
    needs_tls = settings.mapping_url is not None or settings.fhir_url is not None
    if not needs_tls:
        sys.modules["OpenSSL"] = None  # type: ignore[assignment]  # makes the import fail
    from twisted.internet import reactor

    if not needs_tls:
        del sys.modules["OpenSSL"]
    return reactor


def main() -> None:
    """Entry point of a converter process."""
    try:
        settings, _ = read(os.environ)
    except InvalidSetting as invalid:
        sys.exit(f"ipf: {invalid}")
    reactor = install_reactor(settings)
    use_monotonic_timers(reactor)
    later = partial(reactor.callLater, 0)
    human = settings.log_format == "human"
    writer = LogWriter(sys.stdout.buffer, level_named(settings.log_level), human, later)
    globalLogBeginner.beginLoggingTo([writer], redirectStandardIO=False)
    os.nice(settings.converter_nice)

    def failed(failure: Failure) -> None:
        log.failure("the converter process ends", failure)

    def begin() -> None:
        name = os.environ.get(CONVERTER_NAME) or worker_name()
        running = Deferred.fromCoroutine(run_process(reactor, settings, name))
        running.addErrback(failed).addBoth(lambda _: reactor.stop())

    reactor.callWhenRunning(begin)
    reactor.run()


if __name__ == "__main__":
    main()
