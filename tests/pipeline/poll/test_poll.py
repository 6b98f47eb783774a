"""Polling: what becomes rows, what the source does wrong, crashes, and that no change is lost."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import StoreUnreachable
from ipf.fhir.model.json import dumps, loads
from ipf.pipeline.poll.feed_pass import PollParts
from ipf.pipeline.poll.poll import Poller
from ipf.ports.messages.feeds import FeedRow, Reply
from ipf.ports.messages.sources import Feed, PolledSource
from tests.fakes import MemoryInbox
from tests.fakes.feeds import MemoryFeeds
from tests.pipeline.poll.simulated import API, BASE, SOURCE, Queue, Source, at, outage, status
from tests.pipeline.receive.test_files import at_once


class Metrics:
    def __init__(self) -> None:
        self.outcomes: list[str] = []
        self.count = 0

    def requested(self, feed: str, outcome: str) -> None:
        self.outcomes.append(outcome)

    def stored(self, source: PolledSource, count: int) -> None:
        self.count += count


class PollCase(TestCase):
    def setUp(self) -> None:
        self.seconds = 0.0
        self.inbox = MemoryInbox(self.now)
        self.feeds = MemoryFeeds(self.inbox, self.now)
        self.source = Source(self.now)
        self.metrics, self.woken, self.pauses = Metrics(), 0, []  # type: ignore[var-annotated]
        self.poller = self.opened()

    def now(self) -> Any:
        return at(self.seconds)

    def opened(self) -> Poller:
        """A poller as a process has it after its start."""

        async def pause(seconds: float) -> None:
            self.pauses.append(seconds)

        def wake() -> None:
            self.woken += 1

        parts = PollParts(
            self.feeds, self.inbox, "host:1", self.now, pause, lambda: "c", at_once, wake, self.metrics,
        )  # fmt: skip
        return Poller(parts, lambda source: self.source)

    async def poll(self, source: PolledSource = SOURCE, after: float = 60.0) -> None:
        """Poll after so many seconds."""
        self.seconds += after
        await self.poller.poll(source)

    def keys(self) -> list[str]:
        return [row.message.source_id for row in self.inbox.rows.values()]

    async def row(self) -> FeedRow:
        (row,) = await self.feeds.feeds()
        return row


class RowTests(PollCase):
    async def test_a_resource_becomes_a_row(self) -> None:
        self.source.change("1")
        await self.poll()
        (row,) = self.inbox.rows.values()
        message = row.message
        self.assertEqual(
            (message.source_id, message.message_type, message.source_system, message.source_protocol, message.listener,
             message.raw_content_type, message.charset),
            ("Observation/1/1", "fhir-r4-observation", "EHR", "FHIR_REST", "poll:ehr/lab", "application/fhir+json",
             "utf-8"),
        )  # fmt: skip
        self.assertEqual(loads(message.raw)["valueInteger"], 1)
        self.assertEqual((self.woken, self.metrics.count, self.metrics.outcomes), (1, 1, ["success"]))

    async def test_the_first_poll_begins_where_the_profile_says(self) -> None:
        await self.poll(replace(SOURCE, since="2026-03-01T00:00:00+01:00"))
        await self.poll(replace(SOURCE, profile="other"))
        self.assertEqual(
            self.source.urls,
            [f"{BASE}/Observation?_lastUpdated=gt{when}"
             for when in ("2026-02-28T23%3A00%3A00.000Z", "1970-01-01T00%3A00%3A00.000Z")],
        )  # fmt: skip

    async def test_later_polls_reach_back(self) -> None:
        """To the source's time of the last complete pass, less the overlap."""
        self.source.skew = timedelta(hours=-2)
        await self.poll()
        await self.poll()
        self.assertIn("gt2026-03-04T10%3A00%3A54.000Z", self.source.urls[1])

    async def test_versions_and_repeats(self) -> None:
        self.source.change("1")
        await self.poll()
        await self.poll(after=1)
        self.assertEqual(self.keys(), ["Observation/1/1"])
        self.source.change("1")
        await self.poll(after=59)
        self.assertEqual(self.keys(), ["Observation/1/1", "Observation/1/2"])
        rows = list(self.inbox.rows.values())
        self.assertEqual(rows[0].message.ordering_key, rows[1].message.ordering_key)

    async def test_another_content_under_one_version(self) -> None:
        """Some servers do not count versions: each content is a message of its own."""
        self.source.change("1")
        await self.poll()
        self.source.between = lambda: None
        self.source.changed["1"] = self.source.time, 1
        self.source._answer = lambda *_: {  # type: ignore[method-assign]
            "resourceType": "Bundle",
            "entry": [{"resource": {"resourceType": "Observation", "id": "1", "meta": {"versionId": "1"}, "a": 2}}],
        }
        await self.poll()
        await self.poll()
        self.assertEqual(len(self.keys()), 2)
        self.assertRegex(self.keys()[1], r"^Observation/1/1~[0-9a-f]{24}$")

    async def test_what_cannot_be_taken_is_kept_apart(self) -> None:
        """A resource without an id; an outcome in the Bundle is only logged."""
        entries = [
            {"resource": {"resourceType": "Observation"}},
            {"resource": {"resourceType": "OperationOutcome", "issue": [{"diagnostics": "slow"}]}},
            {"resource": {"resourceType": "Observation", "id": "2"}},
            {"fullUrl": "urn:x"},
        ]
        body = dumps({"resourceType": "Bundle", "entry": entries})
        self.source.faults = [lambda url: Reply(200, {}, body)]
        await self.poll()
        self.assertEqual([one.reason for one in self.inbox.rejects], ["a resource needs resourceType and id"])
        self.assertRegex(self.keys()[0], "^Observation/2/[0-9a-f]{24}@2026-03-04T12:01:00")

    async def test_a_limit_of_requests(self) -> None:
        for number in range(7):
            self.source.change(str(number))
        await self.poll(replace(SOURCE, per_minute=30))
        self.assertEqual(self.pauses, [2.0, 2.0])


class FaultTests(PollCase):
    async def test_failures_and_when_it_is_tried_again(self) -> None:
        text = "the source answered 500"
        for fault, reason, seconds in (
            (outage, "no response from the source: connection refused", 5),
            (status(500), text, 10),
            (status(429, retry_after="77"), "the source answered 429 and asks to wait", 77),
            (status(503, retry_after="Wed, 04 Mar 2026 23:00:00 GMT"), "answered 503 and asks to wait", None),
            (status(429), "the source answered 429 and asks to wait", 20),
            (lambda url: Reply(200, {}, b"<html>"), "the answer is no JSON", 20),
            (lambda url: Reply(200, {}, b"{}"), "the answer is no Bundle", 40),
            (lambda url: Reply(400, {}, b'{"issue":[{"diagnostics":"no such parameter"}]}'),
             "the source answered 400: no such parameter", 80),
            (status(302), "the source answered 302", 160),
        ):  # fmt: skip
            self.source.faults = [fault]  # type: ignore[list-item]
            await self.poll(after=1e6)
            row = await self.row()
            self.assertIn(reason, str(row.last_error))
            wait = (row.due_at - self.now()).total_seconds()
            self.assertEqual(wait, seconds if seconds is not None else max(0, wait), reason)
        self.source.change("1")
        await self.poll(after=901)
        self.assertEqual((self.keys(), (await self.row()).failures), (["Observation/1/1"], 0))

    async def test_a_pass_goes_on_with_the_page_that_failed(self) -> None:
        for number in range(7):
            self.source.change(str(number))
        self.source.faults = [lambda url: None, outage]
        await self.poll()
        self.assertEqual(len(self.keys()), 3)
        self.poller = self.opened()
        await self.poll(after=6)
        self.assertEqual(len(self.keys()), 7)
        self.assertEqual(len(self.source.urls), 4)

    async def test_a_source_that_forgot_its_pages(self) -> None:
        """404 for the next page: the pass begins again, what is stored is recognised."""
        for number in range(4):
            self.source.change(str(number))
        for code in (400, 404, 410):
            self.source.faults = [lambda url: None, status(code)]
            await self.poll(replace(SOURCE, profile=f"p{code}"))
            self.assertEqual(len([key for key in self.keys() if key.endswith("/1")]), 4)

    async def test_next_pages_stay_on_the_host(self) -> None:
        for given, reason in (
            ("https://evil.test/page", "another host"),
            ("http://ehr.test/fhir?page=2", "another host"),
            ("https://ehr.test:444/fhir?page=2", "another host"),
            ("?_lastUpdated=gt1970-01-01T00%3A00%3A00.000Z", "its own next page"),
        ):
            body = dumps({"resourceType": "Bundle", "link": [{"relation": "next", "url": given}]})
            self.source.faults = [lambda url, body=body: Reply(200, {}, body)]  # type: ignore[misc]
            await self.poll(after=1000)
            self.assertIn(reason, str((await self.row()).last_error), given)
        self.assertEqual({url.partition("?")[0] for url in self.source.urls}, {f"{BASE}/Observation"})

    async def test_the_store_cannot_be_reached(self) -> None:
        """Nothing is marked as read."""
        self.source.change("1")
        self.inbox.broken = StoreUnreachable()
        polling = self.poll()
        with self.assertRaises(StoreUnreachable):
            await polling
        self.inbox.broken = None
        await self.poll(after=200)
        self.assertEqual(self.keys(), ["Observation/1/1"])

    async def test_another_process_has_the_feed(self) -> None:
        self.source.change("1")
        await self.feeds.begin("ehr/lab/results", "host:2", 1000)
        await self.poll()
        self.assertEqual(self.source.urls, [])

    async def test_stopping_keeps_the_place(self) -> None:
        for number in range(7):
            self.source.change(str(number))
        self.source.between = lambda: self.poller.stop()
        await self.poll()
        self.assertEqual(len(self.source.urls), 1)
        self.source.between = lambda: None
        self.poller = self.opened()
        await self.poll(after=0)
        self.assertEqual((len(self.keys()), len(self.source.urls)), (7, 3))


class DriftTests(PollCase):
    async def test_an_item_that_moved_to_another_page(self) -> None:
        """While pages are read one item changes, and another one moves up behind the reader: the next poll finds it."""
        for number in range(6):
            self.seconds += 1
            self.source.change(str(number))

        def once() -> None:
            self.source.between = lambda: None
            self.source.change("0")

        self.source.between = once
        await self.poll()
        missed = {f"Observation/{number}/1" for number in range(6)} - set(self.keys())
        self.assertEqual(missed, {"Observation/3/1"})
        self.assertIsNone((await self.row()).state.mark)
        await self.poll()
        self.assertIn("Observation/3/1", self.keys())
        self.assertIsNotNone((await self.row()).state.mark)

    async def test_an_item_that_left_the_result(self) -> None:
        """The total becomes smaller."""
        pages = [{"resourceType": "Bundle", "total": 2, "link": [{"relation": "next", "url": "?p=2"}]},
                 {"resourceType": "Bundle", "total": 1}]  # fmt: skip
        bodies = iter([dumps(page) for page in pages])
        self.source.faults = [lambda url: Reply(200, {}, next(bodies))] * 2
        await self.poll()
        self.assertEqual(((await self.row()).state.mark, (await self.row()).state.tries), (None, 1))

    async def test_a_source_that_never_rests(self) -> None:
        """The mark moves at the eighth pass, to the beginning of the first of them."""
        self.source.page_size = 1
        for _ in range(8):
            self.assertIsNone((await self.row()).state.mark if self.metrics.outcomes else None)
            self.source.change("0")
            self.source.change("1")
            changes = iter("0")
            self.source.between = lambda changes=changes: [self.source.change(one) for one in changes]  # type: ignore[misc]
            await self.poll()
        self.assertEqual((await self.row()).state.mark, at(59))

    async def test_several_pages_at_rest(self) -> None:
        for number in range(7):
            self.source.change(str(number))
        await self.poll()
        self.assertEqual((await self.row()).state.mark, at(59))


class RandomTests(PollCase):
    """Changes, faults, crashes and rates at random: at the end every last version is stored, each once."""

    async def test_a_fhir_server(self) -> None:
        for seed in range(40):
            self.setUp()
            await self.run_with(random.Random(seed), SOURCE, seed)
            versions = {f"Observation/{number}/{count}" for number, (_, count) in self.source.changed.items()}
            self.assertEqual(versions - set(self.keys()), set(), f"seed {seed}")
            self.assertEqual(len(self.keys()), len(set(self.keys())))

    async def test_a_source_that_hands_out_once(self) -> None:
        """Every version, since each is handed out; an answer that was lost on its way is asked for again."""
        for seed in range(40):
            self.setUp()
            self.source = Queue(self.now)
            await self.run_with(random.Random(seed), API, seed)
            found = [loads(row.message.raw) for row in self.inbox.rows.values()]
            stored = {(one["patientid"], one["version"]) for one in found}
            made = {(str(number), n + 1) for number, (_, count) in self.source.changed.items() for n in range(count)}
            self.assertEqual(made - stored, set(), f"seed {seed}")

    async def run_with(self, chance: random.Random, source: PolledSource, seed: int) -> None:
        self.source.skew = timedelta(seconds=chance.choice((0, -300, 300)))
        self.source.page_size = chance.choice((1, 2, 5))

        def change() -> None:
            for _ in range(chance.choice((0, 0, 0, 1, 2))):
                self.seconds += chance.random()
                self.source.change(str(chance.randrange(12)))

        def lost(url: str) -> Reply | None:
            """The source answers, and the answer is lost."""
            if isinstance(self.source, Queue):
                page = self.source.waiting[: self.source.page_size]
                self.source.handed_out += [(self.source.time, *one) for one in page]
                self.source.waiting = self.source.waiting[self.source.page_size :]
            return outage(url)

        self.source.between = change
        for _ in range(60):
            change()
            fault = chance.choice((None, None, None, outage, lost, status(429, retry_after="20"), status(500)))
            self.source.faults = [*[lambda url: None] * chance.randrange(3), fault] if fault else []
            if chance.random() < 0.2:  # a crash between two pages: the lease ends, the process begins again
                self.poller = self.opened()
                self.seconds += 200
            await self.poll(source, after=chance.choice((1, 20, 61, 200)))
        self.source.between, self.source.faults = lambda: None, []
        for _ in range(4):
            await self.poll(source, after=1000)


class FeedTests(PollCase):
    async def test_feeds_in_turn(self) -> None:
        """One that fails does not keep the next one waiting."""
        feeds = tuple(Feed(name, f"Observation?code={name}&_lastUpdated=gt{{{{lastRun}}}}") for name in "ab")
        self.source.change("1")
        self.source.faults = [status(400)]
        await self.poll(replace(SOURCE, feeds=feeds))
        self.assertEqual([row.failures for row in await self.feeds.feeds()], [1, 0])
        self.assertEqual(self.keys(), ["Observation/1/1"])
