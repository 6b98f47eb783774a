"""Bundles of thousands of entries: parsed entry by entry, without blocking the reactor."""

from __future__ import annotations

import gc
import json
import time
from dataclasses import replace
from typing import Any

from twisted.internet import reactor
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase

from ipf.errors import Problem
from ipf.fhir.model.json import dumps, loads
from ipf.ports import Handler, Json, Request
from ipf.rest.router import handler
from ipf.rest.write.integrity import Integrity
from ipf.rest.write.large_bundle import STREAMED_BYTES, clear_gradually, split_entries
from ipf.store.resources.resources import PostgresFhirStore
from tests import postgres
from tests.rest.world import BASE, CORRELATION_ID, OnMemory, World, issues

ENTRIES = 5_000
SHARE = 5  # the longest turn is less than such a part of the whole, on any machine; it is about a thirtieth
TICK = 0.005
WRITTEN = [
    '{"resourceType":"Bundle","type":"batch","entry":[{"a":1},{"b":[2,"]"]}]}',
    ' {\n "entry" : [ {"a": 1.50} , {"b":"}]," } ] , "type" : "batch" }\n',
    '{"type":"batch","entry":[1,"x",null,[[]]],"id":"after"}',
    '{"\\u0065ntry":[{"a":"\\u00e9\\ud83d\\ude00"}],"é":"x"}',
]
READ_WHOLE = [
    "", "[]", "{}", "null", "\ufeff{}",
    '{"entry":[]}', '{"entry":{}}', '{"entry":[1,]}', '{"entry":[1 2]}', '{"entry":[1]',
    '{"entry":[1]} x', '{"entry":[1],"entry":[2]}', '{"a":1,"a":2,"entry":[1]}', '{"entry" [1]}', '{entry:[1]}',
    '{"type":"batch"}', '{"type":{"entry":[1]}}', '{"entry":[' + "[" * 100_000, '{"a":NaN,"entry":[1]}',
]  # fmt: skip


class SplitEntriesTests(SynchronousTestCase):
    def test_equals_parsing_as_a_whole(self) -> None:
        """The entries one by one, and the Bundle around them."""
        for text in WRITTEN:
            found = split_entries(text.encode())
            assert found is not None, text
            outer, entries = found
            self.assertEqual((outer | {"entry": list(entries)}), loads(text))
            self.assertEqual(len(entries), len(loads(text)["entry"]))

    def test_invalid_bundles_are_left_to_the_parser(self) -> None:
        """Other resources and invalid JSON are left to the ordinary parser."""
        for text in READ_WHOLE:
            self.assertIsNone(split_entries(text.encode()), text[:60])
        self.assertIsNone(split_entries(b'{"entry":["\xff"]}'))

    def test_what_is_wrong_in_an_entry_names_it(self) -> None:
        """Where a value ends is found by its brackets; what is between them is read with the entry."""
        rows = [
            ('{"a":x}', "not JSON"),
            ('{"a":1,"a":2}', "appears twice"),
            ("[" + "[]," * 500_000 + "1]", "more than"),
        ]
        for hostile, reason in rows:
            found = split_entries(f'{{"entry":[{{}},{hostile}]}}'.encode())
            assert found is not None, hostile[:60]
            problem = self.assertRaises(Problem, list, found[1])
            self.assertEqual((problem.place, reason in problem.text), ("Bundle.entry[1]", True), hostile[:60])

    def test_clear_gradually(self) -> None:
        """Nothing is left."""
        one: list[int] = [1, 2]
        two = {"a": 1, "b": 2}
        clear_gradually(one, two)
        self.assertEqual((one, two), ([], {}))


def entry(number: int) -> Json:
    """A conditional create of a Patient."""
    resource = {
        "resourceType": "Patient",
        "identifier": [{"system": "urn:large", "value": f"{number}"}],
        "name": [{"family": f"Family{number}", "given": ["A", "B"]}],
        "birthDate": "1970-01-01",
        "address": [{"line": [f"{number} Street"], "city": "City", "text": "x" * 100}],
        "contact": [{"name": {"text": "contact"}, "telecom": [{"system": "phone", "value": "1", "rank": 1}]}],
    }
    asked = {"method": "POST", "url": "Patient", "ifNoneExist": f"identifier=urn:large|{number}"}
    return {"fullUrl": f"urn:uuid:{number:032}", "resource": resource, "request": asked}


def request(kind: str, entries: list[Any]) -> Request:
    """A Bundle of them."""
    body = dumps({"resourceType": "Bundle", "type": kind, "entry": entries})
    return Request("POST", (), (), {"prefer": "return=minimal"}, body, BASE, CORRELATION_ID)


class LargeBundleTests(OnMemory):
    async def test_what_is_wrong_with_an_entry(self) -> None:
        """An invalid entry has a location, and invalid JSON fails the Bundle, as in a small one."""
        filler = [entry(number) for number in range(STREAMED_BYTES // 500)]
        for wrong, status, place in (
            ({**entry(0), "request": {}}, 400, f"Bundle.entry[{len(filler)}].request"),
            ({**entry(0), "resource": {"resourceType": "Patient", "nme": 1}}, 400,
             f"Bundle.entry[{len(filler)}].resource (Patient.nme)"),
        ):  # fmt: skip
            asked = request("transaction", [*filler, wrong])
            self.assertGreater(len(asked.body), STREAMED_BYTES)
            answer = await handler(self.world.repository)(asked)
            self.assertEqual((answer.status, issues(answer)[0][2]), (status, place), answer.body[:300])
        twice = asked.body.replace(b'"nme":1', b'"id":"a","id":"b"')
        answer = await handler(self.world.repository)(replace(asked, body=twice))
        self.assertEqual(answer.status, 400)
        self.assertIn(b"appears twice", answer.body)
        answer = await handler(replace(self.world.repository, max_bundle_entries=100))(asked)
        self.assertEqual(answer.status, 413)
        self.assertEqual((await self.world.send("GET", "Patient?_summary=count")).body.count(b'"total":0'), 1)

    async def test_nothing_of_the_write_path_outlives_its_transaction(self) -> None:
        """No list, cache, cycle or traceback keeps entries and plans: as many after the third as after the first.

        Without a collection in between, so that cycles count too.
        """
        gc.collect()
        self.addCleanup(gc.enable)
        alive = []
        for start in range(0, 750, 250):
            asked = request("transaction", [entry(number) for number in range(start, start + 250)])
            answer = await handler(self.world.repository)(asked)
            self.assertEqual(answer.status, 200, answer.body[:300])
            refused = await handler(self.world.repository)(request("transaction", [entry(start), {"request": {}}]))
            self.assertEqual(refused.status, 400)
            del asked, answer, refused
            gc.disable()  # a large transaction turns it on again
            alive.append(sum(str(type(one).__module__).startswith("ipf.rest.") for one in gc.get_objects()))
        self.assertLess(alive[2] - alive[0], 50, alive)


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
