"""The contract of `ports.UnreadFields`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.ports import Inbox, UnreadCount, UnreadFields, UnreadFilter
from ipf.ports.messages.inbox import EVERY_TENANT
from ipf.ports.messages.unread_fields import MOST_PATHS, OTHER_PATHS
from tests.contracts.inbox import received


def count(path: str = "PV1-40", number: int = 1, message_id: int = 1, **more: Any) -> UnreadCount:
    """A count of the sender LAB."""
    known = {"tenant": "default", "source_system": "LAB", "message_type": "ADT_A01", "kind": "unread", "reason": ""}
    return UnreadCount(**known | more, path=path, occurrences=number, message_id=message_id)


class UnreadFieldsContract(TestCase):
    """Tests for a subclass that sets `self.inbox` and `self.unread` in `setUp`."""

    inbox: Inbox
    unread: UnreadFields

    async def _listed(self, limit: int = 50, offset: int = 0, **wanted: Any) -> list[Any]:
        total, rows = await self.unread.fields(UnreadFilter(**wanted), limit, offset)
        if limit == 50 and not offset and total <= 50:
            self.assertEqual(total, len(rows))
        return [(row.path, row.kind, row.occurrences) for row in rows]

    async def test_counts_add_up(self) -> None:
        """One row for each sender, type, path and kind, declared ones last; the newest message is the sample."""
        await self.inbox.store([received("A"), received("B")])
        await self.unread.add([])
        await self.unread.add([count()])
        declared = count("PID-1", 4, kind="declared", reason="set ID (a.fml:1)")
        await self.unread.add([count("PV1-40", 2, 2), count("ZPI"), declared])
        self.assertEqual(
            await self._listed(), [("PV1-40", "unread", 3), ("ZPI", "unread", 1), ("PID-1", "declared", 4)]
        )
        _, rows = await self.unread.fields(UnreadFilter(path="PV1-40"), 1, 0)
        self.assertEqual((rows[0].message_id, rows[0].source_system, rows[0].message_type), (2, "LAB", "ADT_A01"))
        self.assertLessEqual(rows[0].first_seen, rows[0].last_seen)
        _, rows = await self.unread.fields(UnreadFilter(kind="declared"), 1, 0)
        self.assertEqual(rows[0].reason, "set ID (a.fml:1)")
        await self.unread.add([count("PID-1", kind="declared", reason="another reason", message_id=2)])
        _, rows = await self.unread.fields(UnreadFilter(kind="declared"), 1, 0)
        self.assertEqual((rows[0].reason, rows[0].occurrences), ("another reason", 5))

    async def test_a_message_that_is_gone(self) -> None:
        """The row stays without a sample."""
        await self.unread.add([count(message_id=99)])
        _, rows = await self.unread.fields(UnreadFilter(), 5, 0)
        self.assertEqual((rows[0].occurrences, rows[0].message_id), (1, None))

    async def test_filters_and_pages(self) -> None:
        """Filters are exact and combine; a page has the most frequent rows first."""
        await self.unread.add(
            [count("A-1", 3), count("A-2", 2, source_system="OTHER"), count("A-3", message_type="ORU_R01"),
             count("A-4", kind="dropped"), count("A-5", tenant="north")]
        )  # fmt: skip
        for wanted, paths in (
            ({}, "A-1 A-2 A-3 A-4"),
            ({"source_system": "LAB"}, "A-1 A-3 A-4"),
            ({"source_system": "LAB", "message_type": "ORU_R01"}, "A-3"),
            ({"kind": "dropped"}, "A-4"),
            ({"path": "A-2"}, "A-2"),
            ({"tenant": "north"}, "A-5"),
            ({"path": "A-5"}, ""),
        ):
            self.assertEqual(sorted(one[0] for one in await self._listed(**wanted)), paths.split())
        self.assertEqual(len(await self._listed(tenant=EVERY_TENANT)), 5)
        self.assertEqual([one[0] for one in await self._listed(2, 1)], ["A-2", "A-4"])

    async def test_forget(self) -> None:
        """One row, or all of a sender; it comes back with the next message."""
        await self.unread.add([count("A-1"), count("A-2"), count("A-3", source_system="OTHER")])
        _, rows = await self.unread.fields(UnreadFilter(path="A-1"), 5, 0)
        await self.unread.forget(rows[0].id)
        problem = await self.assertFailure(Deferred.fromCoroutine(self.unread.forget(rows[0].id)), Problem)
        self.assertIs(problem.category, Category.NOT_FOUND)
        await self.unread.add([count("A-1")])
        self.assertEqual(len(await self._listed()), 3)
        self.assertEqual(await self.unread.forget_all(UnreadFilter(source_system="LAB", tenant="north")), 0)
        self.assertEqual(await self.unread.forget_all(UnreadFilter(source_system="LAB")), 2)
        self.assertEqual(await self._listed(), [("A-3", "unread", 1)])

    async def test_a_sender_with_random_paths(self) -> None:
        """It gets at most so many rows, and one for all others; other senders are not affected."""
        await self.unread.add([count(f"Z{number}") for number in range(MOST_PATHS - 1)])
        await self.unread.add([count("A-1"), count("A-2"), count("A-3", 2, 7), count("A-1", source_system="OTHER")])
        await self.unread.add([count("Z7", 5), count("A-4"), count("A-2")])
        wanted = UnreadFilter(source_system="LAB")
        self.assertEqual((await self.unread.fields(wanted, 1, 0))[0], MOST_PATHS + 1)
        self.assertEqual(await self._listed(path="Z7"), [("Z7", "unread", 6)])
        self.assertEqual(await self._listed(source_system="LAB", path="A-1"), [("A-1", "unread", 1)])
        self.assertEqual(await self._listed(message_type=OTHER_PATHS), [(OTHER_PATHS, "unread", 5)])
        self.assertEqual(await self._listed(source_system="OTHER"), [("A-1", "unread", 1)])

    async def test_names_of_any_characters(self) -> None:
        """Names come from messages."""
        names = count("it's \\ Å", source_system="", message_type="A\\B")
        await self.unread.add([names])
        await self.unread.add([names, names])
        self.assertEqual(await self._listed(source_system="", message_type="A\\B"), [("it's \\ Å", "unread", 3)])
