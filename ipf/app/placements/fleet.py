"""The placements of a process while it runs: opened in the background, each on its own, and again after a change.

A placement that cannot be opened is tried again, after one second and then more, up to `_LONGEST_PAUSE`; nothing waits
for it.  When the file changes (SIGHUP), a placement with other settings is closed and opened again: what was stored
before stays in its databases, and its senders and clients repeat what is refused meanwhile.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredList, DeferredLock
from twisted.internet.task import deferLater
from twisted.logger import Logger

from ipf.app.listeners.access import Access
from ipf.app.maps.profiles import OpenListener
from ipf.app.placements.directory import Directory, Placement
from ipf.app.placements.health import any_works, check
from ipf.app.placements.opening import Opened, Shared, open_placement
from ipf.app.placements.receiving import refusing_receiver
from ipf.app.roles.process import Process
from ipf.config.placements import CLOSED, PlacementSettings
from ipf.errors import Problem
from ipf.mapping.library.installation import MAPPING_CHANNEL
from ipf.telemetry import placement_metrics
from ipf.telemetry.logs import event_line
from ipf.wire.admin.actuator import Component

log = Logger(namespace="ipf.app.placements")

_LONGEST_PAUSE = 15.0  # seconds
FIRST_SECONDS = 30.0
"""So long a start waits for placements that can be opened."""


class _Life:
    """One placement, from `start` until `stop`."""

    def __init__(self, shared: Shared, placement: Placement) -> None:
        self.placement = placement
        self.opened: Opened | None = None
        self.tried: Deferred[None] = Deferred()
        self._shared = shared
        self._stack = AsyncExitStack()
        self._running: Deferred[None] | None = None
        self._stopping = False

    def start(self) -> None:
        """Open it, now and until that succeeds."""
        placement_metrics.is_up(self.placement.name, False)
        if self.placement.settings.state == CLOSED:
            self.placement.reason = "it is closed"
            self._note_tried()
        else:
            self._running = Deferred.fromCoroutine(self._open())

    async def stop(self) -> None:
        """Refuse its requests from now on, and close it."""
        self._stopping, self.placement.serving = True, None
        self.placement.reason = "it is being closed"
        if self._running is not None:
            self._running.cancel()
            await self._running
        placement_metrics.is_up(self.placement.name, False)
        await self._close()

    async def reload(self) -> None:
        """Load changed maps."""
        if self.opened is None:
            return
        try:
            await self.opened.pair.mapping.reload()
            self.opened.pair.stores.notifier.notify(MAPPING_CHANNEL)
        except Problem as problem:
            log.error("event=mapping_not_loaded {reason}", reason=str(problem))

    async def _open(self) -> None:
        pause = 1.0
        while not self._stopping:
            try:
                opened = await open_placement(self._shared, self.placement, self._stack)
                self._begin(opened)
                if opened.converters is not None:
                    await opened.converters.started()
                self._note_tried()
                return
            except Exception as error:  # CancelledError as well: then it stops
                await self._close()
                if self._stopping:
                    return
                self._note_failure(error)
            try:
                await deferLater(self._shared.process.reactor, pause)
            except CancelledError:
                return
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _begin(self, opened: Opened) -> None:
        placement, state = self.placement, self.placement.settings.state
        self.opened, placement.serving, placement.reason = opened, opened.serving, ""
        placement_metrics.is_up(placement.name, True)
        log.info(event_line("placement_open", placement=placement.name, state=state))

    def _note_failure(self, error: Exception) -> None:
        name, reason = self.placement.name, str(error) or type(error).__name__
        if self.placement.reason != reason:  # the same reason is logged once
            if isinstance(error, Problem):
                log.error(event_line("placement_unavailable", placement=name, reason=reason))
            else:
                log.failure("event=placement_unavailable placement={placement}", placement=name)
        self.placement.reason = reason
        self._note_tried()

    def _note_tried(self) -> None:
        if not self.tried.called:
            self.tried.callback(None)

    async def _close(self) -> None:
        stack, self._stack, self.opened, self.placement.serving = self._stack, AsyncExitStack(), None, None
        try:
            await stack.aclose()
        except Exception:
            log.failure("a part of the placement {name} did not stop in order", name=self.placement.name)


class Fleet:
    """The placements of a process.  `directory`: what the listeners use."""

    def __init__(self, process: Process, access: Access, settings: tuple[PlacementSettings, ...]) -> None:
        self._process = process
        self._lock = DeferredLock()
        self._count = len(settings)
        self.directory = Directory(self._placement(one) for one in settings)
        self._shared = Shared(process, access, self.directory)
        self._lives = {one.name: self._life(one) for one in self.directory.all}
        process.health.add("placements", Component(partial(any_works, self.directory)))

    async def start(self, open_listener: OpenListener | None) -> None:
        """Open all of them.  Returns when each has been tried once, at the latest after `FIRST_SECONDS`.

        `open_listener`: opens a port that a vendor profile names; None: this process does not receive.
        """
        self._shared.open_listener = open_listener
        for life in self._lives.values():
            life.start()
        tried: Deferred[Any] = DeferredList([life.tried for life in self._lives.values()], consumeErrors=True)
        tried.addTimeout(FIRST_SECONDS, self._process.reactor, onTimeoutCancel=lambda *_: None)
        await tried

    async def stop(self) -> None:
        """Close all of them at once."""
        await DeferredList([Deferred.fromCoroutine(life.stop()) for life in self._lives.values()])

    async def reload(self) -> None:
        """Load the changed maps of each."""
        await DeferredList([Deferred.fromCoroutine(life.reload()) for life in self._lives.values()])

    async def change(self, settings: tuple[PlacementSettings, ...]) -> None:
        """Serve these placements.  Those that stay the same are not touched."""
        await self._lock.acquire()
        try:
            await self._change(settings)
        finally:
            self._lock.release()

    async def _change(self, settings: tuple[PlacementSettings, ...]) -> None:
        self._count = len(settings)
        before = self._lives
        same = {one.name for one in settings if one.name in before and before[one.name].placement.settings == one}
        placements = [before[one.name].placement if one.name in same else self._placement(one) for one in settings]
        self.directory.replace(placements)
        self._lives = {
            one.name: before[one.name] if one.name in same else self._life(one) for one in self.directory.all
        }
        for name in before.keys() - self._lives.keys():
            self._process.health.remove(_component(name))
        changing = [name for name in before if name not in same]
        stopped = [Deferred.fromCoroutine(self._replace(before[name], self._lives.get(name))) for name in changing]
        for name in self._lives.keys() - before.keys():
            self._lives[name].start()
        await DeferredList(stopped)

    async def _replace(self, before: _Life, after: _Life | None) -> None:
        await before.stop()
        if after is not None:
            after.start()

    def _placement(self, settings: PlacementSettings) -> Placement:
        most = max(1, self._process.limits.http // max(1, self._count))
        unusable: list[Placement] = []
        refusing = refusing_receiver(lambda: unusable[0].unusable, self._process.reactor)
        unusable.append(Placement(settings, refusing, most))
        return unusable[0]

    def _life(self, placement: Placement) -> _Life:
        self._process.health.add(_component(placement.name), Component(partial(check, placement), required=False))
        return _Life(self._shared, placement)


def _component(name: str) -> str:
    return f"placement:{name}"
