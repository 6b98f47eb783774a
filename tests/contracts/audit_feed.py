"""The contract of `ports.audit.feed.AuditFeedStore`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.trial.unittest import TestCase

from ipf.ports.audit.feed import AuditFeedStore
from ipf.ports.audit.records import ADMIN, FHIR, Audit
from tests.contracts.audit import audit
from tests.contracts.clock import CLOCK

if TYPE_CHECKING:
    Suite = TestCase
else:
    Suite = object

BOTH = (FHIR, ADMIN)


class AuditFeedContract(Suite):
    """Joined with a case that sets `self.feed`, on `CLOCK`, and stores records."""

    feed: AuditFeedStore

    async def write(self, *audits: Audit) -> None:
        """Store records."""
        raise NotImplementedError

    async def take_up(self, limit: int) -> int:
        """Chain so many of them; their number."""
        raise NotImplementedError

    async def test_records_get_places_in_order(self) -> None:
        self.assertEqual((await self.take_up(10), await self.feed.after(0, BOTH, 10)), (0, []))
        await self.write(audit(1), audit(2, tenant="north"))
        await self.write(audit(3, surface=ADMIN))
        self.assertEqual(await self.feed.after(0, BOTH, 10), [])
        self.assertEqual([await self.take_up(2) for _ in range(3)], [2, 1, 0])
        await self.write(audit(0))  # an older time: its place is behind
        self.assertEqual(await self.take_up(10), 1)
        records = [audit(1), audit(2, tenant="north"), audit(3, surface=ADMIN), audit(0)]
        self.assertEqual(await self.feed.after(0, BOTH, 10), [*enumerate(records, 1)])
        self.assertEqual(await self.feed.after(1, BOTH, 2), [(2, records[1]), (3, records[2])])
        self.assertEqual(await self.feed.after(2, (FHIR,), 9), [(3, None), (4, records[3])])
        self.assertEqual(await self.feed.after(0, (ADMIN,), 2), [(1, None), (2, None)])
        self.assertEqual(await self.feed.after(4, BOTH, 9), [])

    async def test_one_process_holds_the_lease(self) -> None:
        self.assertEqual(await self.feed.hold("one", 30.0), 0)
        self.assertIsNone(await self.feed.hold("two", 30.0))
        self.assertFalse(await self.feed.advance("two", 5))
        self.assertTrue(await self.feed.advance("one", 3))
        self.assertTrue(await self.feed.advance("one", 2))  # never back
        self.assertEqual(await self.feed.hold("one", 0.0), 3)
        self.assertFalse(await self.feed.advance("one", 9))
        self.assertEqual(await self.feed.hold("two", 0.01), 3)
        CLOCK.advance(0.01)
        self.assertFalse(await self.feed.advance("two", 9))
        self.assertEqual(await self.feed.hold("one", 30.0), 3)
