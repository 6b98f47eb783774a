"""The contract of `ports.messages.feeds.FeedStore`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.ports import Inbox, MessageFilter, Outcome
from ipf.ports.messages.feeds import FeedLease, FeedState, FeedStore
from tests.contracts.clock import CLOCK
from tests.contracts.inbox import received

NAME = "ehr/lab/results"
MARK = datetime(2026, 3, 4, 5, 6, 7, 123456, tzinfo=UTC)
STATE = FeedState(MARK, MARK + timedelta(minutes=1), "https://ehr.test/page?a='2'", 3, True, MARK, 4, repeats=True)
STORED, DUPLICATE, CONFLICTING = Outcome.STORED, Outcome.DUPLICATE, Outcome.CONFLICTING_DUPLICATE


class FeedsContract(TestCase):
    """Tests for a subclass that sets `self.feeds` and `self.inbox`, on `CLOCK`."""

    feeds: FeedStore
    inbox: Inbox

    async def begun(self, name: str = NAME) -> FeedLease:
        lease = await self.feeds.begin(name, "host:1", 60)
        assert lease is not None
        return lease

    async def stored(self) -> int:
        return (await self.inbox.page(MessageFilter(), 100, 0)).total

    async def test_a_new_feed_is_due_and_one_has_it(self) -> None:
        lease = await self.begun()
        self.assertEqual((lease.name, lease.state, lease.failures), (NAME, FeedState(), 0))
        self.assertIsNone(await self.feeds.begin(NAME, "host:1", 60))
        self.assertIsNotNone(await self.feeds.begin("ehr/lab/other", "host:2", 60))

    async def test_rows_and_state_are_one_transaction(self) -> None:
        lease = await self.begun()
        first, again = received("a"), received("a")
        saved = await self.feeds.save(lease, [first, again, received("b")], STATE, 60, None)
        self.assertEqual(saved, [STORED, DUPLICATE, STORED])
        self.assertIsNone(await self.feeds.begin(NAME, "host:1", 60), "the pass goes on")
        self.assertEqual(await self.feeds.save(lease, [received("c")], FeedState(MARK), 60, 30), [STORED])
        (row,) = await self.feeds.feeds()
        self.assertEqual((row.state, row.fetched, row.stored), (FeedState(MARK), 4, 3))
        self.assertIsNotNone(row.completed_at)
        self.assertIsNone(await self.feeds.begin(NAME, "host:1", 60), "it is not due")
        CLOCK.advance(31)
        self.assertEqual((await self.begun()).state, FeedState(MARK))

    async def test_another_content_under_a_key(self) -> None:
        """Nothing of the page is stored, and the state stays."""
        lease = await self.begun()
        await self.feeds.save(lease, [received("a")], FeedState(), 60, None)
        saved = await self.feeds.save(lease, [received("b"), received("a", raw=b"MSH|other")], STATE, 60, 0)
        self.assertEqual(saved, [STORED, CONFLICTING])
        self.assertEqual(await self.stored(), 1)
        (row,) = await self.feeds.feeds()
        self.assertEqual((row.state, row.stored), (FeedState(), 1))
        self.assertEqual(await self.feeds.save(lease, [received("b")], STATE, 60, None), [STORED])

    async def test_a_lost_lease_changes_no_state(self) -> None:
        lost = await self.begun()
        CLOCK.advance(61)
        lease = await self.begun()
        self.assertIsNone(await self.feeds.save(lost, [received("a")], STATE, 60, 0))
        await self.feeds.fail(lost, STATE, "too late", 0)
        self.assertEqual(await self.stored(), 1)
        (row,) = await self.feeds.feeds()
        self.assertEqual((row.state, row.failures, row.last_error), (FeedState(), 0, None))
        self.assertIsNotNone(await self.feeds.save(lease, (), STATE, 60, None))

    async def test_leases_of_a_worker_that_has_ended(self) -> None:
        lost = await self.begun()
        await self.feeds.begin("ehr/lab/other", "host:2", 60)
        self.assertEqual(sorted(await self.feeds.holders()), ["host:1", "host:2"])
        await self.feeds.release("host:1")
        self.assertEqual(await self.feeds.holders(), ["host:2"])
        self.assertIsNone(await self.feeds.save(lost, (), STATE, 60, 0))
        self.assertEqual((await self.begun()).state, FeedState())

    async def test_failures_are_counted_until_a_page_is_stored(self) -> None:
        for count in (0, 1):
            lease = await self.begun()
            self.assertEqual(lease.failures, count)
            await self.feeds.fail(lease, STATE, "it's closed", 5)
            self.assertIsNone(await self.feeds.begin(NAME, "host:1", 60))
            CLOCK.advance(6)
        (row,) = await self.feeds.feeds()
        self.assertEqual((row.state, row.failures, row.last_error), (STATE, 2, "it's closed"))
        await self.feeds.fail(await self.begun(), STATE, "wait", 5, is_limit=True)
        CLOCK.advance(6)
        (row,) = await self.feeds.feeds()
        self.assertEqual((row.failures, row.last_error), (2, "wait"))
        await self.feeds.save(await self.begun(), (), STATE, 60, None)
        (row,) = await self.feeds.feeds()
        self.assertEqual((row.failures, row.last_error), (0, None))

    async def test_an_operator_polls_again(self) -> None:
        lease = await self.begun()
        await self.feeds.save(lease, (), STATE, 60, 1000)
        await self.feeds.make_due(NAME)
        lease = await self.begun()
        await self.feeds.rewind(NAME, MARK)
        self.assertIsNone(await self.feeds.save(lease, (), STATE, 60, 0), "its pass does not count")
        self.assertEqual((await self.begun()).state, FeedState(MARK))
        await self.feeds.rewind(NAME, None)
        self.assertEqual((await self.begun()).state, FeedState())

    async def test_an_unknown_feed(self) -> None:
        for work in (self.feeds.rewind("no/such/feed", None), self.feeds.make_due("no/such/feed")):
            problem = await self.assertFailure(Deferred.fromCoroutine(work), Problem)
            self.assertEqual(problem.category, Category.NOT_FOUND)
