"""Forwarding of received messages to the destinations of `IPF_FORWARD_FILE`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from ipf.app.runtime.periodic import run_periodically
from ipf.app.runtime.process import is_dead, worker_name
from ipf.app.runtime.stores import OpenedStores
from ipf.config.forwarding import read_destinations
from ipf.config.settings import Settings
from ipf.errors import Problem, StoreUnreachable
from ipf.pipeline.forward.content import check
from ipf.pipeline.forward.forward import Connection, Forwarder
from ipf.ports import Json
from ipf.ports.messages.forwards import Destination
from ipf.store.inbox.forwards import PostgresForwards
from ipf.telemetry import forward_metrics

log = Logger(namespace="ipf.app.forwarding")

TICK_SECONDS = 1.0
LATE_ATTEMPTS = 3
"""So many failed attempts of the first message make the health component report a destination."""


class Forwarding:
    """Runs a Forwarder for each destination whose lease this process has."""

    def __init__(
        self,
        store: PostgresForwards,
        destinations: tuple[Destination, ...],
        connect: Callable[[Destination], Connection],
        pause: Callable[[float], Awaitable[object]],
        seconds: Callable[[], float],
    ) -> None:
        self.store = store
        self.destinations = destinations
        self._forwarders = [
            Forwarder(one, store, connect(one), f"{worker_name()}:{one.name}", pause, seconds, forward_metrics)
            for one in destinations
        ]
        self._running: dict[str, Deferred[None]] = {}
        self._has_begun = False

    def start(self, reactor: Any, stack: AsyncExitStack) -> None:
        """Send received messages on, from now on."""
        if self.destinations:
            stack.push_async_callback(self.stop)
            run_periodically(TICK_SECONDS, self.tick, "forwarding", reactor, stack)

    async def tick(self) -> None:
        """Begin with each destination that is not being sent to.  At first: leases of killed processes end."""
        if not self._has_begun:
            for worker in await self.store.holders():
                if is_dead(worker):
                    await self.store.release(worker)
            self._has_begun = True
        for forwarder in self._forwarders:
            name = forwarder.destination.name
            if name not in self._running:
                running = Deferred.fromCoroutine(self._run(forwarder))
                if not running.called:
                    self._running[name] = running

    async def _run(self, forwarder: Forwarder) -> None:
        name = forwarder.destination.name
        try:
            await forwarder.run()
        except StoreUnreachable:
            pass  # the store logs it
        except Exception:
            log.failure("forwarding to {name} failed", name=name)
        finally:
            self._running.pop(name, None)

    async def stop(self) -> None:
        """Wait for the messages that are being sent."""
        for forwarder in self._forwarders:
            forwarder.stopping = True
        for running in tuple(self._running.values()):
            await running
        for forwarder in self._forwarders:
            await forwarder.connection.close()

    async def health(self) -> Json:
        """Health details.  RuntimeError names the destinations whose first message fails."""
        names = {one.name for one in self.destinations}
        rows = [row for row in await self.store.destinations() if row.name in names]
        late = [
            f"{row.name}: {row.last_error} ({row.pending} wait)" for row in rows if row.head_attempts >= LATE_ATTEMPTS
        ]
        if late:
            raise RuntimeError("; ".join(late))
        return {row.name: {"pending": row.pending, "dead_letters": row.dead} for row in rows}


def forward_destinations(settings: Settings) -> tuple[Destination, ...]:
    """The destinations of the settings.  Problem VALUE names file, destination, key and rule."""
    if settings.forward_file is None:
        return ()
    destinations = tuple(Destination(**values) for values in read_destinations(Path(settings.forward_file)))
    for destination in destinations:
        try:
            check(destination)
        except Problem as problem:
            raise Problem(problem.category, str(problem), f"{settings.forward_file}: {destination.name}") from problem
    return destinations


def open_forwarding(settings: Settings, stores: OpenedStores, reactor: Any) -> Forwarding:
    """The destinations of the settings; messages are sent on once `start` is called."""
    from ipf.wire.client.mllp_client import MllpClient

    pause: Callable[[float], Awaitable[object]] = partial(deferLater, reactor)
    store = PostgresForwards(stores.inbox_database, reactor.seconds)
    return Forwarding(store, forward_destinations(settings), partial(MllpClient, reactor), pause, reactor.seconds)
