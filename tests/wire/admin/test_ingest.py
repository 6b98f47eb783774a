"""A message is sent over the admin API: the acknowledgement, and the row of what was stored."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ipf.errors import Problem, StoreUnreachable
from ipf.pipeline.receive.group_commit import GroupCommit
from ipf.pipeline.receive.receive import MllpListener, Receiver
from ipf.ports import Request
from ipf.wire.admin.inbox import ingest
from tests.fakes import MemoryInbox

NOW = datetime(2026, 3, 4, tzinfo=UTC)
TEXT = b"MSH|^~\\&|APP|F|||2026||ADT^A01^ADT_A01|M1|P|2.5\nPID|1||P1\n"


class IngestTests(TestCase):
    def setUp(self) -> None:
        self.inbox = MemoryInbox()
        clock = self.clock = Clock()
        commit = GroupCommit(self.inbox, clock)
        identity = "6f1e1b5e-0c38-4b3c-9c51-0242ac120002"
        self.receiver = Receiver(self.inbox, commit, clock, now=lambda: NOW, new_correlation_id=lambda: identity)

    async def receive(self, raw: bytes, tenant: str, peer: str) -> bytes | None:
        return await self.receiver.receive(raw, MllpListener("admin", tenant=tenant), peer)

    async def send(self, body: bytes, *query: tuple[str, str]) -> Any:
        request = Request("POST", (), query, {}, body, "", "c", address="10.0.0.9")
        sent = Deferred.fromCoroutine(ingest.send(self.receive, self.inbox, request))
        self.clock.pump([0.0] * 5)
        found = await sent
        self.assertEqual(found.status, 200)
        return json.loads(found.body)

    async def test_a_message_is_stored_and_acknowledged(self) -> None:
        found = await self.send(TEXT, ("tenant", "north"))
        self.assertEqual((found["code"], found["text"]), ("AA", ""))
        self.assertIn("MSA|AA|M1", found["acknowledgement"])
        (one,) = found["messages"]
        self.assertEqual((one["source_id"], one["code"], one["message"]["tenant"]), ("M1", "AA", "north"))
        (stored,) = self.inbox.rows.values()
        self.assertEqual(stored.message.raw, TEXT.replace(b"\n", b"\r"))
        self.assertEqual(stored.message.listener, "admin")

    async def test_a_repeat_has_the_row_of_before(self) -> None:
        first, again = await self.send(TEXT), await self.send(TEXT.replace(b"\n", b"\r\n"))
        self.assertEqual(again["code"], "AA")
        self.assertEqual(again["messages"][0]["message"]["id"], first["messages"][0]["message"]["id"])
        self.assertEqual(len(self.inbox.rows), 1)

    async def test_what_is_refused_has_no_row(self) -> None:
        found = await self.send(b"this is no HL7")
        self.assertEqual((found["code"], found["messages"][0]["message"]), ("AR", None))
        self.assertTrue(found["text"])
        self.assertEqual(len(self.inbox.rejects), 1)
        self.inbox.broken = StoreUnreachable()
        found = await self.send(TEXT)
        self.assertEqual((found["code"], found["messages"][0]["message"]), ("AE", None))
        self.flushLoggedErrors()

    async def test_a_batch(self) -> None:
        second = TEXT.replace(b"M1", b"M2")
        found = await self.send(
            b"BHS|^~\\&|APP|||||||| B1\n" + TEXT + second.replace(b"ADT^A01^ADT_A01", b"") + b"BTS|2\n"
        )
        codes = [(one["source_id"], one["code"], one["message"] is None) for one in found["messages"]]
        self.assertEqual((found["code"], codes), ("AR", [("M1", "AA", False), ("M2", "AR", True)]))
        found = await self.send(b"BHS|^~\\&\n" + second)
        self.assertEqual((found["code"], found["text"], found["messages"]), ("AR", "BHS has no BTS: it is cut off", []))
        self.assertEqual(len(self.inbox.rows), 1)

    async def test_requests_that_are_no_message(self) -> None:
        for body, query in ((b"", ()), (b"\r\n", ()), (TEXT, (("tenant", "*"),)), (TEXT, (("tenant", "a\nb"),))):
            with self.assertRaises(Problem):
                await self.send(body, *query)
        self.assertEqual((len(self.inbox.rows), len(self.inbox.rejects)), (0, 0))
