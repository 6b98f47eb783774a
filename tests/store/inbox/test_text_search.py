"""Search inside messages: the index, the tail that is not in it yet, totals, and messages that are removed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.ports import MessageFilter, Received, Settlement, Status
from ipf.ports.inbox import EVERY_TENANT
from ipf.store.inbox import pages as inbox_pages
from ipf.store.inbox import text_search as message_find
from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.inbox.text_index import PostgresMessageIndex
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
        self.index = PostgresMessageIndex(self.database, lambda: self.now, tail_bytes=0)

    async def indexed(self, batches: int = 100) -> int:
        """Index what is due; how many messages that were."""
        count = 0
        for _ in range(4):
            self.now += 1
            while batches and (done := await self.index.work(nothing)):
                count, batches = count + done, batches - 1
        return count

    async def found(self, limit: int = 50, offset: int = 0, **wanted: object) -> tuple[int, list[str]]:
        page = await self.inbox.page(MessageFilter(**wanted), limit, offset)  # type: ignore[arg-type]
        return page.total, [row.source_id for row in page.rows]

    async def check(self) -> None:
        """The same answers, whatever is indexed."""
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

    async def test_the_tail_and_the_index_answer_alike(self) -> None:
        """Nothing indexed, then part after part of at most 300 bytes, each looked for in."""
        await self.fill()
        await self.check()
        self.index = PostgresMessageIndex(self.database, lambda: self.now, tail_bytes=300)
        parts = [await self.indexed(1) for _ in range(4)]
        self.assertEqual((parts[0], parts[-1]), (3, 0), "the last messages weigh little, and are left alone")
        await self.check()
        self.index = PostgresMessageIndex(self.database, lambda: self.now, tail_bytes=0)
        self.assertEqual(sum(parts) + await self.indexed(), 5)
        await self.check()
        self.assertEqual(await self.index.lag(), 0)
        self.assertEqual((await self.found(text="musli"))[1], ["C2"])
        self.assertGreater(len(await self.database.many("SELECT part FROM message_parts")), 1)

    async def test_a_chunk_that_is_not_full_waits(self) -> None:
        """Until its last id has come, when it is indexed as one part."""
        self.index = PostgresMessageIndex(self.database, lambda: self.now)
        await self.database.many("SELECT setval(pg_get_serial_sequence('message_bodies', 'id'), 1021)")
        await self.inbox.store([adt(0)])
        self.assertEqual(await self.indexed(), 0)
        await self.inbox.store([adt(1), adt(2)])
        self.assertEqual(await self.indexed(), 2)
        self.assertEqual((await self.index.lag(), await self.found(text="hansen")), (1, (3, ["C2", "C1", "C0"])))
        self.assertEqual([tuple(row) for row in await self.database.many("SELECT part FROM message_parts")], [(1022,)])

    async def test_batches_add_to_a_chunk(self) -> None:
        """One message at a time, over the border of a chunk and beyond 63 in one."""
        await self.database.many("SELECT setval(pg_get_serial_sequence('message_bodies', 'id'), 980)")
        for number in range(0, 120, 10):
            await self.inbox.store([adt(each) for each in range(number, number + 10)])
            self.assertEqual(await self.indexed(), 10)
        self.assertEqual((await self.found(text="hansen"))[0], 120)
        self.assertEqual((await self.found(2, 118, text="hansen"))[1], ["C1", "C0"])
        rows = await self.database.many("SELECT sum(n) FROM message_chunks")
        self.assertEqual(int(rows[0][0]), 120)

    async def test_what_finds_very_many_walks_the_list(self) -> None:
        """The same answers with nothing counted as few."""
        self.patch(inbox_pages, "_FEW", 0)
        self.patch(inbox_pages, "_SHORTEST_STEP", 2)
        self.patch(inbox_pages, "_LONGEST_STEP", 2)
        await self.fill()
        await self.indexed()
        self.assertEqual(await self.found(text="hansen"), (4, ["C4", "C3", "C1", "C0"]))
        self.assertEqual(await self.found(2, 2, text="hansen"), (4, ["C1", "C0"]))
        self.assertEqual(await self.found(source_system="LAB"), (4, ["C4", "C2", "C1", "C0"]))
        self.assertEqual(await self.found(source_system="LAB", status=Status.DELIVERED), (0, []))
        page = await self.inbox.page(MessageFilter(text="hansen", status=Status.DELIVERED), 50, 0)
        self.assertEqual((page.total, page.is_exact), (0, True))

    async def test_removed_messages_leave_index_and_totals(self) -> None:
        """Delete, and many at once; words of empty chunks are removed later."""
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
        self.assertEqual(await self.index.tidy(), 0)
        await self.database.many("SELECT setval(pg_get_serial_sequence('message_bodies', 'id'), 2000)")
        await self.inbox.store([adt(9)])
        await self.indexed()
        self.assertEqual(await self.index.tidy(), 1)
        self.assertEqual((await self.found(text="hansen")), (1, ["C9"]))
        for table in ("message_parts", "message_fields", "message_word_blocks"):
            left = await self.database.many(f"SELECT DISTINCT part / 1024 FROM {table}")
            self.assertEqual([row[0] for row in left], [1])

    async def test_an_id_that_commits_late_is_not_missed(self) -> None:
        """A transaction that drew its id before others committed theirs holds the horizon."""
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
        """Exact filters stay right; a search says that there may be more."""
        self.patch(message_find, "TAIL", 2)
        self.patch(inbox_pages, "TAIL", 2)
        await self.fill()
        self.assertEqual(await self.found(source_system="LAB"), (4, ["C4", "C2", "C1", "C0"]))
        self.assertEqual((await self.found(source_system="LAB", status=Status.RECEIVED))[0], 4)
        page = await self.inbox.page(MessageFilter(text="hansen"), 50, 0)
        self.assertEqual((page.total, page.is_exact, page.index_lag), (2, False, 5))

    async def test_every_tenant(self) -> None:
        """Messages of several tenants in one chunk are told apart, and counted together."""
        await self.inbox.store([adt(1), adt(2, tenant="north")])
        await self.indexed()
        self.assertEqual(await self.found(text="hansen"), (1, ["C1"]))
        self.assertEqual(await self.found(text="hansen", tenant="north"), (1, ["C2"]))
        self.assertEqual(await self.found(text="hansen", tenant=EVERY_TENANT), (2, ["C2", "C1"]))
        self.assertEqual((await self.found(tenant=EVERY_TENANT))[0], 2)

    async def test_one_process_at_a_time(self) -> None:
        """Another passes by."""
        await self.fill()
        async with self.database.session() as other:
            await other.many("SELECT 1 FROM message_index_state FOR UPDATE")
            self.assertEqual(await self.indexed(), 0)
        self.assertEqual(await self.indexed(), 5)

    async def test_too_many_beginnings(self) -> None:
        """Refused, with the reason."""
        self.patch(message_find, "MOST_BEGINNINGS", 2)
        await self.fill()
        await self.indexed()
        refused = await self.assertFailure(Deferred.fromCoroutine(self.found(text="c*")), Problem)
        self.assertIs(refused.category, Category.COSTLY)

    async def test_very_many_words_in_one_chunk(self) -> None:
        """Many blocks; every word is found, and so are beginnings that go over the ends of blocks."""
        words = [f"w{number:04}x" for number in range(400)]
        names = ["^".join(words[start : start + 60]) for start in range(0, 400, 50)]
        await self.inbox.store([adt(number, name=name) for number, name in enumerate(names)])
        await self.indexed()
        self.assertGreater(len(await self.database.many("SELECT 1 FROM message_word_blocks")), 3)
        for number, word in enumerate(words):
            first, last = max(number - 59, 0) // 50 + (max(number - 59, 0) % 50 > 0), min(number // 50, 7)
            wanted = [f"C{each}" for each in range(last, first - 1, -1)]
            if number % 13 == 0 or number in (0, 399):
                self.assertEqual((await self.found(text=word))[1], wanted, word)
        self.assertEqual((await self.found(text="w*"))[0], 8)
        self.assertEqual((await self.found(text="w01*"))[1], ["C3", "C2", "C1"])
        self.assertEqual((await self.found(text="w9*")), (0, []))

    async def test_identifiers_with_control_characters(self) -> None:
        """They are indexed and found as blanks; nothing is held up."""
        await self.inbox.store([adt(1, patient="A\tB\x1fC\x00D"), adt(2)])
        await self.indexed()
        self.assertEqual(await self.found(patient="a b c d"), (1, ["C1"]))
        self.assertEqual((await self.found(text="hansen"))[0], 2)
