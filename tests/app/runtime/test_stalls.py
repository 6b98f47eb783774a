"""Turns that hold the reactor are counted, and the log names the request."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from threading import Event, Thread, get_ident
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import LogEvent, globalLogPublisher
from twisted.trial.unittest import TestCase

from ipf.app.runtime import stalls
from ipf.app.runtime.stalls import Offender, StallWatch, route, running, start_watching_stalls
from ipf.ports import Request
from ipf.telemetry import metrics
from tests.waiting import PATIENCE, block_until

VALIDATE = Offender("POST /fhir/{type}/$validate", "ipf.fhir.validation:validate")


def request(method: str, path: str) -> Request:
    return Request(method, tuple(path.split("/")), (), {}, b"", "http://localhost/fhir", "0")


class Clocks:
    """Two clocks, set by hand."""

    def __init__(self) -> None:
        self.wall = self.processor = 0.0

    def advance(self, wall: float, processor: float) -> None:
        self.wall += wall
        self.processor += processor


class StallWatchTests(TestCase):
    def setUp(self) -> None:
        self.clocks = Clocks()
        self.stalls: list[tuple[float, Offender]] = []
        self.watch = StallWatch(
            lambda: self.clocks.wall,
            lambda: self.clocks.processor,
            lambda: VALIDATE,
            lambda seconds, offender: self.stalls.append((round(seconds, 6), offender)),
        )

    def turn(self, wall: float, processor: float, look: bool = True) -> None:
        self.clocks.advance(wall, processor)
        if look:
            self.watch.check()
        self.watch.turn()

    def test_processor_time_of_one_turn_counts(self) -> None:
        for wall, processor, expected in [
            (0.02, 0.02, []), (0.09, 0.09, []), (3.0, 0.01, []), (0.3, 0.25, [0.25]), (0.2, 1.5, [0.2]),
        ]:  # fmt: skip
            self.stalls.clear()
            self.turn(wall, processor)
            self.assertEqual(self.stalls, [(one, VALIDATE) for one in expected], (wall, processor))

    def test_nothing_is_known_when_no_one_could_look(self) -> None:
        self.turn(0.4, 0.4, look=False)
        self.assertEqual(self.stalls, [(0.4, Offender())])

    def test_what_was_seen_belongs_to_one_turn(self) -> None:
        self.turn(0.07, 0.07)
        self.turn(0.4, 0.4, look=False)
        self.assertEqual(self.stalls, [(0.4, Offender())])

    def test_it_looks_once_in_a_late_turn(self) -> None:
        self.assertFalse(self.watch.check())
        self.clocks.advance(0.06, 0)
        self.assertEqual([self.watch.check() for _ in range(3)], [True, False, False])


class Holding:
    """A thread in which a request is performed by code that counts as ours, until `ended` is set."""

    def __init__(self, asked: Request | None) -> None:
        self.began, self.ended = Event(), Event()
        module: dict[str, Any] = {"__name__": "ipf.rest.example"}
        exec("def perform(request, began, ended):\n    began.set()\n    ended.wait()\n", module)
        perform: Callable[..., None] = module["perform"]
        self.thread = Thread(target=perform, args=(asked, self.began, self.ended))
        self.thread.start()
        self.began.wait()

    def end(self) -> None:
        self.ended.set()
        self.thread.join()


class RunningTests(TestCase):
    def offender(self, asked: Request | None, is_reactor: bool) -> Offender:
        holding = Holding(asked)
        self.addCleanup(holding.end)
        frames = {thread: frame for thread, frame in sys._current_frames().items() if thread == holding.thread.ident}
        return running(frames, holding.thread.ident or 0 if is_reactor else get_ident())

    def test_the_request_and_the_place(self) -> None:
        for is_reactor in (True, False):
            found = self.offender(request("POST", "Patient/$validate"), is_reactor)
            self.assertEqual(found, Offender("POST /fhir/{type}/$validate", "ipf.rest.example:perform"))

    def test_work_without_a_request(self) -> None:
        self.assertEqual(self.offender(None, True), Offender("", "ipf.rest.example:perform"))

    def test_nothing_of_ours(self) -> None:
        self.assertEqual(running({}, get_ident()), Offender())

    def test_a_route_has_no_text_of_the_client(self) -> None:
        for path, expected in [
            ("Patient/smith-1/_history/3", "/fhir/{type}/{id}/_history/{id}"),
            ("Patient/$validate", "/fhir/{type}/$validate"),
            ("ValueSet/x/$expand", "/fhir/{type}/{id}/$expand"),
            ("Smith, Eve/$Eve Smith", "/fhir/{id}/{operation}"),
        ]:
            self.assertEqual(route(request("GET", path)), f"GET {expected}")


class WatchedReactorTests(TestCase):
    """The whole, on the reactor of this test; the clock of the processor is that of the wall."""

    async def test_a_stall_is_counted_and_logged(self) -> None:
        self.patch(stalls.time, "process_time", stalls.time.perf_counter)
        seen = Event()
        look = stalls.running

        def looked(*given: Any) -> Offender:
            found = look(*given)
            seen.set()
            return found

        self.patch(stalls, "running", looked)
        logged: list[LogEvent] = []
        told: Deferred[None] = Deferred()

        def observe(event: LogEvent) -> None:
            if event.get("event") == "reactor_stall" and event.get("seconds", 0) >= stalls.STALL_SECONDS:
                logged.append(event)
                if not told.called:
                    told.callback(None)

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        before = count()
        async with AsyncExitStack() as stack:
            start_watching_stalls("test", reactor, stack)
            await deferLater(reactor, 0)
            self.assertTrue(seen.wait(PATIENCE))  # the reactor stands still until the thread has looked
            until = stalls.time.perf_counter() + stalls.STALL_SECONDS
            block_until(lambda: stalls.time.perf_counter() >= until)
            await told.addTimeout(PATIENCE, reactor)
        self.assertGreaterEqual(count(), before + 1)
        self.assertEqual(logged[0]["route"], "none")


def count() -> float:
    """Stalls of the process `test` so far."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
        if sample.name == "ipf_reactor_stall_seconds_count" and sample.labels.get("process") == "test"
    )
