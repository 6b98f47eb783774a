"""Bundles of thousands of entries: parsed entry by entry, without blocking the reactor."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from ipf.errors import Problem
from ipf.fhir.model.json import dumps, loads
from ipf.ports import Json, Request
from ipf.rest.router import handler
from ipf.rest.write.large_bundle import STREAMED_BYTES, clear_gradually, split_entries
from tests.rest.world import BASE, CORRELATION_ID, OnMemory, issues

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


def entry(number: int, size: int = 100) -> Json:
    """A conditional create of a Patient with a text of this size."""
    resource = {
        "resourceType": "Patient",
        "identifier": [{"system": "urn:large", "value": f"{number}"}],
        "name": [{"family": f"Family{number}", "given": ["A", "B"]}],
        "birthDate": "1970-01-01",
        "address": [{"line": [f"{number} Street"], "city": "City", "text": "x" * size}],
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
        gc.freeze()  # what other tests left is not counted
        self.addCleanup(gc.unfreeze)
        gc.disable()
        self.addCleanup(gc.enable)
        alive = []
        for start in range(0, 240, 80):
            asked = request("transaction", [entry(number, 7000) for number in range(start, start + 80)])
            self.assertGreater(len(asked.body), STREAMED_BYTES)
            answer = await handler(self.world.repository)(asked)
            self.assertEqual(answer.status, 200, answer.body[:300])
            refused = await handler(self.world.repository)(request("transaction", [entry(start), {"request": {}}]))
            self.assertEqual(refused.status, 400)
            del asked, answer, refused
            alive.append(sum(str(type(one).__module__).startswith("ipf.rest.") for one in gc.get_objects()))
        self.assertLess(alive[2] - alive[0], 50, alive)
