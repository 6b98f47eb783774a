"""Stalls: turns of the reactor that hold it for 100 ms and more, with the request and the place in the code.

A timer of the reactor notes each turn.  When the next turn is late, a piece of work held the reactor, or a thread held
Python's interpreter lock.  Processor time of this process counts, not time for which the machine ran something else.
A thread looks at the stacks as soon as a turn is late.  Code in C that keeps the interpreter lock keeps this thread out
as well: it then looks in the moment when the lock is released, in which the same work is still on the stack.

A stall is observed in `ipf_reactor_stall_seconds` and logged as `event=reactor_stall`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from threading import Event, Thread, get_ident
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from ipf.ports import Request
from ipf.telemetry import stall_metrics
from ipf.wire.http.routes import template

log = Logger(namespace="ipf.app.stalls")

TURN_SECONDS = 0.02
LATE_SECONDS = 0.05
"""A turn that is so late is looked at."""
STALL_SECONDS = 0.1
_OURS = "ipf."
_MAX_FRAMES = 200


@dataclass(frozen=True, slots=True)
class Offender:
    """What ran: the route of its request ("" for none), and its place in the code."""

    route: str = ""
    place: str = ""


class StallWatch:
    """Notes the turns of the reactor.

    `wall`, `processor`: clocks, in seconds.  `look`: what runs now.  `report`: takes the seconds of a stall and its
    offender.
    """

    def __init__(
        self,
        wall: Callable[[], float],
        processor: Callable[[], float],
        look: Callable[[], Offender],
        report: Callable[[float, Offender], None],
    ) -> None:
        self._wall, self._processor, self._look, self._report = wall, processor, look, report
        self._last = wall(), processor()
        self._seen: Offender | None = None

    def turn(self) -> None:
        """The reactor turns: called by its timer."""
        now, last = (self._wall(), self._processor()), self._last
        seen, self._seen, self._last = self._seen, None, now
        spent = min(now[0] - last[0], now[1] - last[1])
        if spent >= STALL_SECONDS:
            self._report(spent, seen or Offender())

    def check(self) -> bool:
        """Look at what runs when the turn is late, once: called by a thread.  Whether it looked."""
        if self._seen is not None or self._wall() - self._last[0] < LATE_SECONDS:
            return False
        self._seen = self._look()
        return True


def start_watching_stalls(process: str, reactor: Any, stack: AsyncExitStack) -> None:
    """Watch the reactor from now on.  Call it in the thread of the reactor."""
    stall_metrics.announce(process)
    own, ended = get_ident(), Event()

    def report(seconds: float, offender: Offender) -> None:
        stall_metrics.stalled(process, seconds)
        text = "event=reactor_stall seconds={seconds} route={route} place={place}"
        log.warn(
            text,
            event="reactor_stall",
            seconds=round(seconds, 3),
            route=offender.route or "none",
            place=offender.place or "unknown",
        )

    watch = StallWatch(time.perf_counter, time.process_time, lambda: running(sys._current_frames(), own), report)

    def look() -> None:
        while not ended.wait(LATE_SECONDS / 2):
            watch.check()

    turns = LoopingCall(watch.turn)
    turns.clock = reactor
    turns.start(TURN_SECONDS)
    Thread(target=look, name="stalls", daemon=True).start()
    stack.callback(turns.stop)
    stack.callback(ended.set)


def running(frames: Mapping[int, FrameType], reactor_thread: int) -> Offender:
    """What runs in the thread of the reactor; of other threads, if the reactor only waits.  `frames`: by thread."""
    own = frames.get(reactor_thread)
    found = None if own is None else _offender(own)
    if found is not None:
        return found
    others = [_offender(one) for thread, one in frames.items() if thread not in (reactor_thread, get_ident())]
    return max(filter(None, others), key=lambda one: bool(one.route), default=Offender())


def _offender(innermost: FrameType) -> Offender | None:
    """The request and the place of one thread; None if no code of ours runs in it."""
    ours = [one for one in _stack(innermost) if str(one.f_globals.get("__name__", "")).startswith(_OURS)]
    if not ours:
        return None
    place = f"{ours[0].f_globals['__name__']}:{ours[0].f_code.co_qualname}"
    requests = (value for one in ours for value in list(one.f_locals.values()) if isinstance(value, Request))
    request = next(requests, None)
    return Offender("" if request is None else route(request), place)


def _stack(innermost: FrameType) -> Iterator[FrameType]:
    frame: FrameType | None = innermost
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def route(request: Request) -> str:
    """The method and path of a request; ids and other text of the client are left out."""
    path = request.route or template([*urlsplit(request.base_url).path.split("/"), *request.path])
    return f"{request.method[:10]} {path}"
