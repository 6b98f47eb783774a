"""Polling of the sources that the vendor profiles name."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from ipf.app.maps.profiles import VendorProfiles
from ipf.app.runtime.periodic import run_periodically
from ipf.app.runtime.process import is_dead, now, run_in_thread, worker_name
from ipf.app.runtime.stores import OpenedStores
from ipf.config.settings import Settings
from ipf.errors import StoreUnreachable
from ipf.pipeline.poll.feed_pass import PollParts
from ipf.pipeline.poll.poll import Poller
from ipf.ports import Json
from ipf.ports.messages.feeds import Fetch
from ipf.ports.messages.sources import PolledSource
from ipf.store.inbox.feeds import PostgresFeeds
from ipf.telemetry import metrics, poll_metrics
from ipf.telemetry.correlation import new_correlation_id

log = Logger(namespace="ipf.app.polling")

TICK_SECONDS = 0.5
LOOK_SECONDS = 5.0
"""How often the store is asked which feeds are due; an operator may have made one due."""
FAILURES_OF_AN_OUTAGE = 3
"""So many failures in a row make the health component report a feed."""


class Polling:
    """Polls each source in its own turn, so that a slow one delays no other."""

    def __init__(
        self,
        poller: Poller,
        sources: Callable[[], tuple[PolledSource, ...]],
        feeds: PostgresFeeds,
        seconds: Callable[[], float],
    ) -> None:
        self.feeds = feeds
        self._poller = poller
        self._sources = sources
        self._running: dict[str, Deferred[None]] = {}
        self._asked: dict[str, float] = {}
        self._has_begun = False
        self._seconds = seconds

    @property
    def names(self) -> dict[str, PolledSource]:
        """The feeds of the profiles in use: `profile/item/feed`."""
        return {f"{one.profile}/{one.id}/{feed.id}": one for one in self._sources() for feed in one.feeds}

    def start(self, reactor: Any, stack: AsyncExitStack) -> None:
        """Poll from now on."""
        stack.push_async_callback(self.stop)
        run_periodically(TICK_SECONDS, self.tick, "polling", reactor, stack)

    async def tick(self) -> None:
        """Begin with each source that is not being polled.  At first: leases of processes that were killed end."""
        if not self._has_begun:
            for worker in await self.feeds.holders():
                if is_dead(worker):
                    await self.feeds.release(worker)
            self._has_begun = True
        for source in self._sources():
            if self._is_time(source):
                running = Deferred.fromCoroutine(self._poll(source))
                if not running.called:
                    self._running[source.listener] = running

    def _is_time(self, source: PolledSource) -> bool:
        """Whether to look in the store which feeds are due."""
        now, name = self._seconds(), source.listener
        if name in self._running or now < self._asked.get(name, 0.0) + min(source.interval, LOOK_SECONDS):
            return False
        self._asked[name] = now
        return True

    async def _poll(self, source: PolledSource) -> None:
        try:
            await self._poller.poll(source)
        except StoreUnreachable:
            pass  # the store logs it
        except Exception:
            log.failure("the source {name} could not be polled", name=source.listener)
        finally:
            self._running.pop(source.listener, None)

    async def stop(self) -> None:
        """Wait for the pages that are being read."""
        self._poller.stop()
        for running in tuple(self._running.values()):
            await running

    async def health(self) -> Json:
        """Health details.  RuntimeError names the feeds that fail."""
        known = self.names
        rows = [row for row in await self.feeds.feeds() if row.name in known]
        failing = [f"{row.name}: {row.last_error}" for row in rows if row.failures >= FAILURES_OF_AN_OUTAGE]
        if failing:
            raise RuntimeError("; ".join(failing))
        return {"feeds": sorted(known)}


class _Clients:
    """The client of each source, made anew when its profile changes."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._made: dict[PolledSource, Any] = {}

    def of(self, source: PolledSource) -> Fetch:
        """The client.  Problem UPSTREAM: its credentials are not set."""
        from ipf.wire.client.source_client import SourceClient  # here: an HTTP client and TLS take 15 MiB

        if source not in self._made:
            self._made[source] = SourceClient(source, os.environ, self._reactor)
        found: Fetch = self._made[source]
        return found

    async def close(self) -> None:
        """Close the unused connections."""
        for client in self._made.values():
            await client.close()


class _Metrics:
    """`PollMetrics` on the registry of the process."""

    def requested(self, feed: str, outcome: str) -> None:
        """See `PollMetrics.requested`."""
        poll_metrics.requested(feed, outcome)

    def stored(self, source: PolledSource, count: int) -> None:
        """See `PollMetrics.stored`."""
        metrics.message_received(source.source_system, source_protocol=source.protocol, count=count)


def open_polling(
    settings: Settings,
    stores: OpenedStores,
    profiles: VendorProfiles,
    reactor: Any,
    stack: AsyncExitStack,
) -> Polling:
    """The sources of the profiles in use; they are polled once `start` is called."""
    clients = _Clients(reactor)
    pause: Callable[[float], Awaitable[object]] = partial(deferLater, reactor)
    feeds = PostgresFeeds(stores.inbox_database, stores.inbox)
    parts = PollParts(
        feeds, stores.inbox, worker_name(), now, pause, new_correlation_id, run_in_thread,
        lambda: stores.notifier.notify("inbox"), _Metrics(), settings.ordering,
    )  # fmt: skip

    def sources() -> tuple[PolledSource, ...]:
        return tuple(profiles.polled())

    stack.push_async_callback(clients.close)
    return Polling(Poller(parts, clients.of), sources, feeds, reactor.seconds)
