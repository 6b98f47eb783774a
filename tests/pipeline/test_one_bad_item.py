"""One item that fails in a way that nobody foresaw, at each step of its way: the next one is taken, for each source.

Folders, frames and conversions have theirs in `receive/test_files.py`, `receive/test_receive.py` and
`convert/test_one_bad_message.py`; jobs of operators in `tests/store/inbox/test_message_admin.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase

from ipf.errors import Problem
from ipf.hl7.answers import AckAnswer
from ipf.pipeline.deliver.deliver import Deliver
from ipf.pipeline.equal_failures import MOST, EqualFailures
from ipf.pipeline.forward import forward
from ipf.pipeline.forward.forward import UNFORESEEN_ATTEMPTS
from ipf.pipeline.maintenance.export import Export
from ipf.pipeline.poll import pages
from ipf.ports import Delivered, DeliveryEnd, Event, Json, Lease, Notification, Terms
from ipf.ports.audit.feed import FedRecord
from ipf.ports.messages.forwards import Forwarded
from ipf.ports.messages.sources import Feed, PolledSource
from ipf.rest.background import job_runner
from tests.pipeline.deliver.test_deliver import DeliverFixture
from tests.pipeline.forward import test_forward
from tests.pipeline.forward.test_forward import DEAD, SENT
from tests.pipeline.maintenance import test_audit_feed
from tests.pipeline.maintenance.test_audit_feed import render
from tests.pipeline.poll.simulated import API, SOURCE, Queue
from tests.pipeline.poll.test_poll import PollCase
from tests.rest.world import OnMemory, patient

PERSON = "Hansen"


class EqualFailuresTests(SynchronousTestCase):
    def test_equal_ones_in_succession(self) -> None:
        failures = EqualFailures()
        for reason in ("a", "b", "a", *["b"] * (MOST - 1)):
            failures.failed(reason)
            self.assertIsNone(failures.problem)
        failures.failed("b")
        self.assertEqual(failures.problem, f"{MOST} items in succession failed: b")
        failures.worked()
        self.assertIsNone(failures.problem)


class PollTests(PollCase):
    """FHIR servers and REST APIs."""

    async def _after_a_bad_item(self, source: PolledSource, good: list[str]) -> None:
        await self.poll(source)
        self.assertEqual([key.split("/")[1] for key in self.keys()], good)
        (rejected,) = self.inbox.rejects
        self.assertIn("unexpected ZeroDivisionError", rejected.reason)
        self.assertNotIn(PERSON, rejected.reason)
        self.assertEqual((await self.row()).failures, 0)

    async def test_an_item_that_cannot_be_read(self) -> None:
        for name, source in (("_resource", SOURCE), ("_record", API)):
            self.setUp()
            self.source = Queue(self.now) if source is API else self.source
            for number in ("1", "2", "3"):
                self.source.change(number)
            original = getattr(pages, name)

            def failing(*given: Any, original: Any = original) -> Any:
                if "2" in (given[-2].get("id"), given[-2].get("patientid")):
                    raise ZeroDivisionError(PERSON)
                return original(*given)

            self.patch(pages, name, failing)
            await self._after_a_bad_item(source, ["1", "3"])

    async def test_an_item_that_cannot_be_stored(self) -> None:
        for number in ("1", "2", "3", "4", "5"):
            self.source.change(number)
        save = self.feeds.save

        async def failing(lease: Any, rows: Sequence[Any], *more: Any) -> Any:
            if any("Observation/2/" in one.source_id for one in rows):
                raise ZeroDivisionError(PERSON)
            return await save(lease, rows, *more)

        self.patch(self.feeds, "save", failing)
        await self._after_a_bad_item(SOURCE, ["1", "3", "4", "5"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    async def test_an_item_that_cannot_be_stored_nor_kept(self) -> None:
        for number in ("1", "2", "3"):
            self.source.change(number)
        save, reject = self.feeds.save, self.inbox.reject

        async def failing(lease: Any, rows: Sequence[Any], *more: Any) -> Any:
            if any("Observation/2/" in one.source_id for one in rows):
                raise ZeroDivisionError(PERSON)
            return await save(lease, rows, *more)

        async def refusing(rejected: Any) -> None:
            raise ValueError(PERSON)

        self.patch(self.feeds, "save", failing)
        self.patch(self.inbox, "reject", refusing)
        await self.poll()
        self.assertEqual(len(self.keys()), 2)
        self.assertTrue(callable(reject) and self.flushLoggedErrors(ZeroDivisionError, ValueError))

    async def test_a_store_that_refuses_everything_sets_nothing_aside(self) -> None:
        """Then it is the source: nothing moves, and after three failures it is DOWN."""
        self.source.change("1")

        async def failing(*given: Any) -> Any:
            raise ZeroDivisionError(PERSON)

        save = self.feeds.save
        self.patch(self.feeds, "save", failing)
        for number in range(3):
            await self.poll(after=1000.0)
            self.assertEqual((await self.row()).failures, number + 1)
        self.assertEqual((self.inbox.rejects, (await self.row()).last_error), ([], "unexpected ZeroDivisionError"))
        self.flushLoggedErrors(ZeroDivisionError)
        self.patch(self.feeds, "save", save)
        await self.poll(after=1000.0)
        self.assertEqual(len(self.keys()), 1)

    async def test_a_feed_that_fails_does_not_stop_the_next_of_its_source(self) -> None:
        bad = Feed("bad", "Patient?_lastUpdated=gt{{lastRun}}")
        self.source.change("1")
        fetch = self.source.get

        async def failing(url: str) -> Any:
            if "Patient" in url:
                raise ZeroDivisionError(PERSON)
            return await fetch(url)

        self.patch(self.source, "get", failing)
        await self.poll(replace(SOURCE, feeds=(bad, *SOURCE.feeds)))
        self.assertEqual(len(self.keys()), 1)
        failed = {one.name: one.failures for one in await self.feeds.feeds()}
        self.assertEqual(failed, {"ehr/lab/bad": 1, "ehr/lab/results": 0})
        self.flushLoggedErrors(ZeroDivisionError)


class ForwardTests(TestCase):
    """Forwarding."""

    setUp, now, opened = (getattr(test_forward.ForwardTests, name) for name in ("setUp", "now", "opened"))
    forwarded, pause = test_forward.ForwardTests.forwarded, test_forward.ForwardTests.pause
    run_for, receive = test_forward.ForwardTests.run_for, test_forward.ForwardTests.receive
    states = test_forward.ForwardTests.states

    async def _sent(self, bad: str = DEAD) -> None:
        await self.run_for(1)
        await self.receive("a", "bad", "c")
        await self.run_for(100)
        self.assertEqual(dict(await self.states()), {"a": SENT, "bad": bad, "c": SENT})
        self.assertTrue(self.flushLoggedErrors(ZeroDivisionError))
        row = (await self.store.messages("lab", None, 100, 0))[1]
        self.assertNotIn(PERSON, str(row))

    async def test_a_message_that_cannot_be_changed(self) -> None:
        """It is tried again some times, meanwhile health reports it; then it is a dead letter."""
        original = forward.changed

        def failing(destination: Any, raw: bytes, charset: str) -> bytes:
            if b"bad" in raw:
                raise ZeroDivisionError(PERSON)
            return original(destination, raw, charset)

        self.patch(forward, "changed", failing)
        await self._sent()
        self.assertEqual(self.outcomes.count("failed"), UNFORESEEN_ATTEMPTS - 1)

    async def test_a_message_that_cannot_be_sent(self) -> None:
        send = self.peer.send

        async def failing(message: bytes, control_id: str) -> AckAnswer:
            if control_id == "bad":
                raise ZeroDivisionError(PERSON)
            return await send(message, control_id)

        self.peer.send = failing  # type: ignore[method-assign]
        await self._sent()

    async def test_an_end_that_cannot_be_written(self) -> None:
        """The answer of the receiver is left out; the message is not sent again."""
        settle = self.store.settle

        async def failing(name: str, fence: int, end: Forwarded, seconds: float) -> bool:
            if end.text == "text AA" and len(self.peer.sent) == 2:
                raise ZeroDivisionError(PERSON)
            return await settle(name, fence, end, seconds)

        self.patch(self.store, "settle", failing)
        await self._sent(SENT)
        self.assertEqual(self.peer.sent, ["a", "bad", "c"])

    async def test_a_message_whose_condition_fails(self) -> None:
        def failing(destination: Any, message: Any) -> bool:
            if b"bad" in message.head:
                raise ZeroDivisionError(PERSON)
            return True

        self.patch(forward, "matches", failing)
        await self.run_for(1)
        await self.receive("a", "bad", "c")
        await self.run_for(100)
        self.assertEqual(self.peer.sent, ["a", "bad", "c"])


class AuditFeedTests(TestCase):
    """The audit feed."""

    setUp, make = test_audit_feed.FeedTests.setUp, test_audit_feed.FeedTests.make
    write, drain = test_audit_feed.FeedTests.write, test_audit_feed.FeedTests.drain
    checkpoint = test_audit_feed.FeedTests.checkpoint

    async def test_a_record_that_cannot_be_rendered(self) -> None:
        bad = {3}

        def failing(records: Sequence[FedRecord]) -> bytes:
            if any(one.position in bad for one in records):
                raise ZeroDivisionError(PERSON)
            return render(records)

        self.patch(self.feed, "_render", failing)
        self.write(6)
        await self.drain()
        await self.checkpoint()
        self.assertEqual((self.receiver.heard, self.store.position), ([[1, 2, 4, 5, 6]], 6))
        self.assertTrue((await self.feed.health())["sender"])
        bad.update(range(7, 7 + MOST))
        self.write(MOST)
        await self.drain()
        with self.assertRaisesRegex(RuntimeError, f"{MOST} items in succession failed: unexpected ZeroDivisionError"):
            await self.feed.health()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1 + MOST)
        self.write(1)
        await self.drain()
        await self.feed.health()

    async def test_a_stream_that_fails_is_told(self) -> None:
        """It was silent: health was UP, and nothing was sent."""

        async def failing() -> Any:
            raise ZeroDivisionError(PERSON)

        self.patch(self.feed, "_open_stream", failing)
        self.write(1)
        await self.drain()
        with self.assertRaisesRegex(RuntimeError, "unexpected ZeroDivisionError"):
            await self.feed.health()
        self.flushLoggedErrors(ZeroDivisionError)


class DeliveryTests(DeliverFixture, SynchronousTestCase):
    """Notifications, over every channel."""

    clock: Clock

    def _delivered(self, logged: int) -> None:
        """`bad` ends in `error` after its attempts; `good` gets its events meanwhile."""
        self.queue.add("bad", 2)
        good = self.queue.add("good", 2)
        stage: Deliver = self.start()
        self.clock.advance(0)
        self.assertEqual(good.delivered, 2)
        for _ in range(10):
            self.clock.advance(30)
        self.assertEqual([one[1:3] for one in self.statuses], [("bad", "error")])
        self.assertNotIn(PERSON, str(self.statuses))
        self.assertGreaterEqual(len(self.flushLoggedErrors(ZeroDivisionError)), logged)
        self.assertFalse(stage._runs)

    def test_terms_that_cannot_be_read(self) -> None:
        terms = self.compose.terms

        def failing(subscription: Json) -> Terms:
            if subscription["id"] == "bad":
                raise ZeroDivisionError(PERSON)
            return terms(subscription)

        self.compose.terms = failing
        self._delivered(1)

    def test_a_notification_that_cannot_be_composed(self) -> None:
        compose = self.compose.events

        async def failing(lease: Lease, events: Sequence[Event]) -> Notification:
            if lease.subscription_id == "bad":
                raise ZeroDivisionError(PERSON)
            return await compose(lease, events)

        self.compose.events = failing
        self._delivered(3)

    def test_a_channel_that_fails(self) -> None:
        send = self.far.send

        async def failing(notification: Notification) -> Delivered:
            if b"bad" in (notification.body or b""):
                raise ZeroDivisionError(PERSON)
            return await send(notification)

        self.far.send = failing
        self._delivered(3)

    def test_a_ledger_that_cannot_be_written(self) -> None:
        """The cursor moves all the same: the subscriber does not get the same events for ever."""
        settle = self.queue.settle

        async def failing(lease: Lease, end: DeliveryEnd) -> Any:
            if lease.subscription_id == "bad" and end.attempts:
                raise ZeroDivisionError(PERSON)
            return await settle(lease, end)

        self.queue.settle = failing
        bad, good = self.queue.add("bad", 2), self.queue.add("good", 2)
        self.start()
        for _ in range(10):
            self.clock.advance(30)
        self.assertEqual((bad.delivered, good.delivered), (2, 2))
        self.assertEqual(sorted(self.far.sent), ["bad1", "bad2", "good1", "good2"])
        self.flushLoggedErrors(ZeroDivisionError)


class WorkAfterTheAnswerTests(OnMemory):
    """Jobs and exports of FHIR clients."""

    async def test_jobs(self) -> None:
        """One that cannot be read, and one whose end cannot be written."""
        urls = []
        for url in ("Patient?name=bad", "Patient?name=unwritable", "Patient?name=good"):
            answer = await self.world.send("GET", url, prefer="respond-async")
            urls.append(dict(answer.headers)["Content-Location"].rpartition("/fhir/")[2])
        jobs: Any = self.world.jobs
        write = jobs.write

        async def failing(job: Any, file: Any = None) -> bool:
            if "unwritable" in job.asked and b"could not be written" not in job.answer:
                raise ZeroDivisionError(PERSON)
            return bool(await write(job, file))

        self.patch(jobs, "write", failing)
        lease = jobs.lease

        async def broken(seconds: float) -> Any:
            job = await lease(seconds)
            return job if job is None or "bad" not in job.asked else replace(job, asked="{")

        self.patch(jobs, "lease", broken)
        runner = job_runner(self.world.repository)
        for _ in range(6):
            await runner.step()
        bodies = [(await self.world.send("GET", url)).body.decode() for url in urls]
        self.assertIn("cannot be read", bodies[0])
        self.assertIn("could not be written", bodies[1])
        self.assertIn('"status":"200 OK"', bodies[2])
        self.flushLoggedErrors(ZeroDivisionError, Problem)

    async def test_exports(self) -> None:
        await self.world.send("POST", "Patient", patient("1"))
        headers = {"prefer": "respond-async"}
        urls = [
            dict((await self.world.send("GET", url, **headers)).headers)["Content-Location"].rpartition("/fhir/")[2]
            for url in ("$export?_type=Patient", "Patient/$export")
        ]
        exports: Any = self.world.exports
        page = exports.page

        async def failing(job: Any, limit: int) -> Any:
            if job.level == "system":
                raise ZeroDivisionError(PERSON)
            return await page(job, limit)

        self.patch(exports, "page", failing)
        stage = Export(exports, self.world.store)
        while await stage.step():
            pass
        first, second = [await self.world.send("GET", url) for url in urls]
        self.assertEqual((first.status, second.status), (500, 200))
        self.assertIn(b"unexpected ZeroDivisionError", first.body)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
