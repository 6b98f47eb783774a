"""A Bundle of thousands of entries does not block the reactor."""

from __future__ import annotations

import gc
import json
import time
from dataclasses import replace

from twisted.internet import reactor
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import dumps, loads
from ipf.ports import Handler, Request
from ipf.rest.router import handler
from ipf.rest.write.integrity import Integrity
from ipf.rest.write.large_bundle import STREAMED_BYTES
from ipf.store.resources.resources import PostgresFhirStore
from tests import postgres
from tests.rest.world import BASE, CORRELATION_ID, World
from tests.rest.write.test_large_bundle import entry, request

GROUP = "campaigns"

ENTRIES = 5_000
SHARE = 5  # the longest turn is less than such a part of the whole, on any machine; it is about a thirtieth
TICK = 0.005


class Stalls:
    """The longest time without a reactor turn while this process computed, and its total processor time, in seconds.

    Time that other processes took from it does not count, so their relation is the same on a busy machine.
    """

    def __init__(self) -> None:
        self.longest = self.total = 0.0
        self._last = time.perf_counter(), time.process_time()
        self._call = LoopingCall(self._tick)
        self._call.start(TICK)

    def _tick(self) -> None:
        now = time.perf_counter(), time.process_time()
        spent = min(now[0] - self._last[0], now[1] - self._last[1])
        self.longest, self.total = max(self.longest, spent), self.total + spent
        self._last = now

    def stop(self) -> None:
        """No more."""
        self._call.stop()


class ReactorTests(TestCase):
    async def test_reactor_is_not_blocked(self) -> None:
        """A transaction of thousands of conditional creates on PostgreSQL, and again when all of them exist."""
        self.assertTrue(hasattr(reactor, "getThreadPool"))
        gc.collect()
        gc.freeze()  # a collection of what other tests left would hold up the reactor
        self.addCleanup(gc.unfreeze)
        database = await postgres.database(self, "fhir")
        world = World(PostgresFhirStore(database, deferToThread), database=database)
        integrity = Integrity(world.store, world.referrers)
        handle = handler(replace(world.repository, run_in_thread=deferToThread, integrity=integrity))
        asked = request("transaction", [entry(number) for number in range(ENTRIES)])
        self.assertGreater(len(asked.body), STREAMED_BYTES)
        for expected in ("201 Created", "200 OK"):
            stalls = Stalls()
            answer = await handle(asked)
            stalls.stop()
            self.assertEqual(answer.status, 200, answer.body[:500])
            statuses = [one["response"]["status"] for one in json.loads(answer.body)["entry"]]
            self.assertEqual(statuses, [expected] * ENTRIES)
            self.assertLess(SHARE * stalls.longest, stalls.total)
        await self._one_large_resource(handle)
        found = await world.send("GET", "Patient?_summary=count")
        self.assertEqual(loads(found.body)["total"], ENTRIES)

    async def _one_large_resource(self, handle: Handler) -> None:
        """A resource of some megabytes is stored, and read as XML."""
        held = [{"resource": entry(number)["resource"]} for number in range(ENTRIES)]
        body = dumps({"resourceType": "Bundle", "type": "collection", "entry": held})
        stalls = Stalls()
        made = await handle(Request("POST", ("Bundle",), (), {}, body, BASE, CORRELATION_ID))
        self.assertEqual(made.status, 201, made.body[:500])
        read = Request("GET", ("Bundle", loads(made.body)["id"]), (), {}, b"", BASE, CORRELATION_ID)
        shown = await handle(replace(read, headers={"accept": "application/fhir+xml"}))
        stalls.stop()
        self.assertEqual((shown.status, shown.content_type), (200, "application/fhir+xml;charset=utf-8"))
        self.assertGreater(len(shown.body), len(body))
        self.assertLess(2 * stalls.longest, stalls.total, "some of it is one long text for C and the database")
