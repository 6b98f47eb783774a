"""Full-text search: the index, unindexed messages, totals, and deleted messages."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.ports import MessageFilter, Received, Settlement, Status
from ipf.ports.messages.inbox import EVERY_TENANT
from ipf.store.inbox import pages, text_index, text_search
from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.inbox.text_index import BATCH, PostgresMessageIndex, bounded
from ipf.store.inbox.text_search import tsquery
from ipf.store.postgres.quoting import literal
from tests import postgres

START = datetime(2026, 1, 1, tzinfo=UTC)


def adt(number: int, patient: str = "", name: str = "Hansen^Kari", **changes: str) -> Received:
    """A message of a patient, received `number` seconds after the start."""
    raw = (
        f"MSH|^~\\&|LAB|X|Y|Z|2026||ADT^A01|C{number}|P|2.5\r"
        f"PID|1||{patient or f'M-{number}'}^^^GEN&1.2&ISO^MR~N{number}||{name}\r"
    )
    made = Received(
        str(uuid4()), START + timedelta(seconds=number), "LAB", f"C{number}", "ADT_A01", raw.encode(), "utf-8",
        raw_content_type="x-application/hl7-v2+er7",
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


async def nothing() -> None:
    """A pause that does not wait."""


class SearchTest(TestCase):
    """On PostgreSQL."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "ipf")
        self.inbox = PostgresInbox(self.database)
        self.now = 0.0
        self.index = PostgresMessageIndex(self.database, lambda: self.now)

    async def indexed(self, batches: int = 100) -> int:
        """Index the due messages; returns their number."""
        count = 0
        for _ in range(4):
            self.now += 1
            while batches and (done := await self.index.index_next(nothing)):
                count, batches = count + done, batches - 1
        return count

    async def found(self, limit: int = 50, offset: int = 0, **wanted: object) -> tuple[int, list[str]]:
        page = await self.inbox.page(MessageFilter(**wanted), limit, offset)  # type: ignore[arg-type]
        return page.total, [row.source_id for row in page.rows]

    async def test_a_message_that_cannot_be_read_does_not_stop_the_index(self) -> None:
        """It is found by its columns."""
        original = text_index.patients_in

        def failing(text: Any) -> Any:
            if "N1" in str(text):
                raise ZeroDivisionError("Hansen")
            return original(text)

        self.patch(text_index, "patients_in", failing)
        await self.inbox.store([adt(number) for number in range(3)])
        self.assertEqual(await self.indexed(), 3)
        self.assertEqual(await self.found(text="hansen"), (2, ["C2", "C0"]))
        self.assertEqual((await self.found(source_system="LAB"))[0], 3)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    async def check(self) -> None:
        """The results do not depend on the number of indexed messages."""
        for wanted, ids in (
            ({"text": "hansen"}, ["C4", "C3", "C1", "C0"]),
            ({"text": "HANSEN kari"}, ["C4", "C1", "C0"]),
            ({"text": "Hansen^Kari"}, ["C4", "C1", "C0"]),
            ({"text": "han*"}, ["C4", "C3", "C1", "C0"]),
            ({"text": "hans"}, []),
            ({"text": "M-1"}, ["C1"]),
            ({"text": "m-1 hansen", "status": Status.RECEIVED}, ["C1"]),
            ({"text": "hansen", "status": Status.DEAD_LETTER}, []),
            ({"text": "hansen", "received_from": START + timedelta(seconds=3)}, ["C4", "C3"]),
            ({"text": "hansen", "received_to": START + timedelta(seconds=3)}, ["C1", "C0"]),
            ({"text": "hansen", "source_system": "EHR"}, ["C3"]),
            ({"text": "o'brien"}, ["C2"]),
            ({"text": "musli"}, ["C2"]),
            ({"text": "MÜSLI o'brien"}, ["C2"]),
            ({"text": "%"}, None),
            ({"text": "hansen", "tenant": "north"}, []),
            ({"patient": "m-1"}, ["C1"]),
            ({"patient": "GEN|M-1"}, ["C1"]),
            ({"patient": "OTHER|M-1"}, []),
            ({"patient": "n4"}, ["C4"]),
            ({"patient": "hansen"}, []),
            ({"source_system": "EHR"}, ["C3"]),
            ({"source_system": "LAB", "message_type": "ADT_A01"}, ["C4", "C2", "C1", "C0"]),
            ({"source_system": "LAB", "status": Status.DELIVERED}, []),
            ({}, ["C4", "C3", "C2", "C1", "C0"]),
        ):
            if ids is None:
                refused = await self.assertFailure(Deferred.fromCoroutine(self.found(**wanted)), Problem)
                self.assertIs(refused.category, Category.VALUE)
            else:
                self.assertEqual(await self.found(**wanted), (len(ids), ids), wanted)

    async def fill(self) -> None:
        await self.inbox.store(
            [
                adt(0),
                adt(1),
                adt(2, name="O'Brien^Müsli"),
                adt(3, name="Hansen^Per", source_system="EHR"),
                adt(4),
            ]
        )

    async def test_indexed_and_unindexed_messages_are_found_alike(self) -> None:
        """Nothing indexed, then batch after batch of two messages."""
        await self.fill()
        self.index = PostgresMessageIndex(self.database, lambda: self.now, batch=2)
        for expected in (0, 2, 2, 1, 0):
            if expected:
                self.assertEqual(await self.indexed(1), expected)
            await self.check()
        self.assertEqual((await self.indexed(), await self.index.lag()), (0, 0))

    async def test_a_batch_is_bounded(self) -> None:
        """By the number of messages."""
        await self.inbox.store([adt(number) for number in range(BATCH + 1)])
        self.assertEqual([await self.indexed(1), await self.indexed(1)], [BATCH, 1])
        self.assertEqual(await self.found(2, BATCH - 1, text="hansen"), (BATCH + 1, ["C1", "C0"]))
        totals = await self.database.many("SELECT source_system, message_type, count FROM message_totals")
        self.assertEqual(totals, [("LAB", "ADT_A01", BATCH + 1)])

    async def test_very_many_matches(self) -> None:
        """The same answers when no number of matches counts as few, whether they are frequent or not."""
        self.patch(pages, "_FEW", 0)
        await self.fill()
        await self.indexed()
        await self.inbox.store([adt(5, name="Olsen^Kari"), adt(6)])
        for many in (20_000, 3):
            self.patch(pages, "_MANY", many)
            self.assertEqual(await self.found(text="hansen"), (5, ["C6", "C4", "C3", "C1", "C0"]), many)
            self.assertEqual(await self.found(2, 2, text="hansen"), (5, ["C3", "C1"]), many)
            self.assertEqual(await self.found(source_system="LAB"), (6, ["C6", "C5", "C4", "C2", "C1", "C0"]))
            self.assertEqual(await self.found(source_system="LAB", status=Status.DELIVERED), (0, []))
            self.assertEqual((await self.found(1, text="hansen", status=Status.DELIVERED))[1], [])
        self.patch(pages, "_MANY", 20_000)
        page = await self.inbox.page(MessageFilter(text="hansen", status=Status.DELIVERED), 50, 0)
        self.assertEqual((page.total, page.is_exact), (0, True))

    async def test_removed_messages_leave_index_and_totals(self) -> None:
        """One deletion, and bulk deletion."""
        await self.fill()
        await self.indexed()
        (claim, *_) = await self.inbox.claim("w", 5)
        await self.inbox.settle([Settlement(claim.id, claim.fence, Status.DEAD_LETTER, 5, "it's 100% wrong")])
        self.assertEqual(await self.found(error="100% WRONG"), (1, ["C0"]))
        self.assertEqual(await self.found(error="_00"), (0, []))
        await self.inbox.delete(claim.id)
        self.assertEqual(await self.found(text="hansen"), (3, ["C4", "C3", "C1"]))
        self.assertEqual((await self.found())[0], 4)
        await self.database.many("DELETE FROM message_states; DELETE FROM message_bodies")
        self.assertEqual((await self.found(), await self.found(text="hansen")), ((0, []), (0, [])))
        self.assertEqual(await self.database.many("SELECT 1 FROM message_text"), [])
        await self.inbox.store([adt(9)])
        await self.indexed()
        self.assertEqual((await self.found(text="hansen")), (1, ["C9"]))
        self.assertEqual((await self.found(source_system="LAB"))[0], 1)

    async def test_an_id_that_commits_late_is_not_missed(self) -> None:
        """An open transaction with a lower id keeps the horizon back."""
        async with self.database.session() as slow:
            insert = (
                "INSERT INTO message_bodies (tenant, received_at, source_protocol, source_system, source_id,"
                " message_type, correlation_id, listener, charset, raw_content_type, raw_message)"
                " SELECT 'default', now(), 'HL7V2_MLLP', 'S', 'late', 'ADT_A01', gen_random_uuid(), '', 'utf-8', '',"
                " 'MSH|hansen' RETURNING id"
            )
            (row,) = await slow.many(insert)
            await slow.many(
                "INSERT INTO message_states (id, tenant, status, received_at, ready_at)"
                f" VALUES ({row[0]}, 'default', 'RECEIVED', now(), now())"
            )
            await self.inbox.store([adt(1)])
            self.assertEqual(await self.indexed(), 0)
            self.assertEqual(await self.found(text="hansen"), (1, ["C1"]))
            await slow.commit()
        self.assertEqual(await self.indexed(), 2)
        self.assertEqual((await self.found(text="hansen"))[0], 2)

    async def test_far_behind(self) -> None:
        """Exact filters stay right; a text search reports that there may be more."""
        self.patch(text_search, "TAIL", 2)
        self.patch(pages, "TAIL", 2)
        await self.fill()
        self.assertEqual(await self.found(source_system="LAB"), (4, ["C4", "C2", "C1", "C0"]))
        self.assertEqual((await self.found(source_system="LAB", status=Status.RECEIVED))[0], 4)
        page = await self.inbox.page(MessageFilter(text="hansen"), 50, 0)
        self.assertEqual((page.total, page.is_exact, page.index_lag), (2, False, 5))

    async def test_every_tenant(self) -> None:
        """Messages of several tenants are found by tenant, and all of them by `*`."""
        await self.inbox.store([adt(1), adt(2, tenant="north")])
        await self.indexed()
        self.assertEqual(await self.found(text="hansen"), (1, ["C1"]))
        self.assertEqual(await self.found(text="hansen", tenant="north"), (1, ["C2"]))
        self.assertEqual(await self.found(text="hansen", tenant=EVERY_TENANT), (2, ["C2", "C1"]))
        self.assertEqual((await self.found(tenant=EVERY_TENANT))[0], 2)

    async def test_one_process_at_a_time(self) -> None:
        """A second one does nothing."""
        await self.fill()
        async with self.database.session() as other:
            await other.many("SELECT 1 FROM message_index_state FOR UPDATE")
            self.assertEqual(await self.indexed(), 0)
        self.assertEqual(await self.indexed(), 5)

    async def test_very_many_words(self) -> None:
        """Every word is found, and so are prefixes."""
        words = [f"w{number:04}x" for number in range(400)]
        names = ["^".join(words[start : start + 60]) for start in range(0, 400, 50)]
        await self.inbox.store([adt(number, name=name) for number, name in enumerate(names)])
        await self.indexed()
        for number, word in enumerate(words):
            first, last = max(number - 59, 0) // 50 + (max(number - 59, 0) % 50 > 0), min(number // 50, 7)
            wanted = [f"C{each}" for each in range(last, first - 1, -1)]
            if number % 13 == 0 or number in (0, 399):
                self.assertEqual((await self.found(text=word))[1], wanted, word)
        self.assertEqual((await self.found(text="w*"))[0], 8)
        self.assertEqual((await self.found(text="w01*"))[1], ["C3", "C2", "C1"])
        self.assertEqual((await self.found(text="w9*")), (0, []))

    async def test_a_message_with_more_words_than_a_tsvector_holds(self) -> None:
        """As many words as fit are indexed, fields and patients first."""
        words = "|".join(f"{number:04}" + "\u0bb9" * 60 for number in range(2700))
        await self.inbox.store([adt(1, name=words), adt(2)])
        await self.indexed()
        self.assertEqual(await self.found(patient="GEN|M-1"), (1, ["C1"]))
        self.assertEqual((await self.found(text="0001*"))[1], ["C1"])
        self.assertEqual((await self.found(text="hansen"))[1], ["C2"])
        self.assertEqual(bounded(["ab", "\u00e9\u00e9", "c"], 6), ["ab", "\u00e9\u00e9"])

    async def test_a_long_identifier(self) -> None:
        """Folding makes it longer than a lexeme may be: it is cut in index and query."""
        identifier = "\ufdfa" * 60
        await self.inbox.store([adt(1, patient=identifier)])
        await self.indexed()
        self.assertEqual(await self.found(patient=f"GEN|{identifier}"), (1, ["C1"]))
        self.assertEqual(await self.found(patient=identifier), (1, ["C1"]))

    async def test_no_word_is_query_syntax(self) -> None:
        """Words of any characters match themselves; none is parsed as an operator."""
        hostile = (
            "a'b",
            "a\\",
            "\\'",
            "'",
            "a & b",
            "!a",
            "a:*",
            "a:b",
            "(a",
            "a | b",
            "<->",
            "a'':*",
            "\\\\",
            "\x01pab'",
        )
        for word in hostile:
            vector = f"array_to_tsvector(string_to_array({literal(word)}, E'\\x1f'))"
            for query, expected in ((tsquery([word]), True), (tsquery([word, word]), True), (tsquery(["a"]), False)):
                row = await self.database.one(f"SELECT {vector} @@ {literal(query)}::tsquery")
                self.assertEqual(row[0], expected, (word, query))

    async def test_identifiers_with_control_characters(self) -> None:
        """They are indexed and found as blanks."""
        await self.inbox.store([adt(1, patient="A\tB\x1fC\x00D"), adt(2)])
        await self.indexed()
        self.assertEqual(await self.found(patient="a b c d"), (1, ["C1"]))
        self.assertEqual((await self.found(text="hansen"))[0], 2)
