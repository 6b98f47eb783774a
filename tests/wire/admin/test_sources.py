"""`/admin/sources`: what is shown, polled and refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.ports import Request
from ipf.ports.messages.feeds import FeedState
from ipf.wire.admin.systems.sources import list_sources, poll_now, rewind
from tests.fakes import MemoryInbox
from tests.fakes.feeds import MemoryFeeds
from tests.pipeline.poll.simulated import SOURCE
from tests.wire.admin.operators import check

NAME, OLD = "ehr/lab/results", "gone/lab/results"
MARK = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def request(body: object) -> Request:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request("POST", ("sources",), (), {}, raw, "", "c")


class SourcesTests(TestCase):
    async def setUp(self) -> None:
        self.ahead = timedelta()
        self.feeds = MemoryFeeds(MemoryInbox(), lambda: MARK + self.ahead)
        lease = await self.feeds.begin(OLD, "host:1", 60)
        assert lease is not None
        await self.feeds.save(lease, (), FeedState(MARK), 60, 300)

    async def listed(self) -> dict[str, Any]:
        answer = await list_sources(self.feeds, lambda: {NAME: SOURCE})
        body = json.loads(answer.body)
        check("GET", "/admin/sources", answer.status, body)
        return {item["name"]: item for item in body["items"]}

    async def test_feeds_in_use_and_others(self) -> None:
        found = await self.listed()
        self.assertEqual(list(found), [NAME, OLD])
        shown = {name: found[NAME][name] for name in ("in_use", "source_system", "interval_seconds", "due_at")}
        self.assertEqual(shown, {"in_use": True, "source_system": "EHR", "interval_seconds": 60.0, "due_at": None})
        self.assertEqual((found[OLD]["in_use"], found[OLD]["read_until"]), (False, "2026-03-04T05:06:07.000000Z"))

    async def test_polled_at_once_and_again(self) -> None:
        self.assertIsNone(await self.feeds.begin(OLD, "host:1", 60))
        answer = await poll_now(self.feeds, request({"name": OLD}))
        check("POST", "/admin/sources/poll", answer.status, json.loads(answer.body))
        self.assertEqual(answer.status, 202)
        self.assertIsNotNone(await self.feeds.begin(OLD, "host:1", 60))
        for since, mark in (("2026-01-01T00:00:00+01:00", "2025-12-31T23:00:00.000000Z"), (None, None)):
            answer = await rewind(self.feeds, request({"name": OLD, "since": since}))
            check("POST", "/admin/sources/rewind", answer.status, json.loads(answer.body))
            self.assertEqual((answer.status, (await self.listed())[OLD]["read_until"]), (202, mark))

    async def test_refusals(self) -> None:
        for work, category in (
            (poll_now(self.feeds, request({"name": "a/b/c"})), Category.NOT_FOUND),
            (poll_now(self.feeds, request({"name": 7})), Category.VALUE),
            (poll_now(self.feeds, request(b"")), Category.VALUE),
            (poll_now(self.feeds, request(b"{")), Category.MALFORMED),
            (rewind(self.feeds, request({"name": OLD})), Category.VALUE),
            (rewind(self.feeds, request({"name": OLD, "since": "yesterday"})), Category.VALUE),
            (rewind(self.feeds, request({"name": OLD, "since": "2026-01-01T00:00:00"})), Category.VALUE),
        ):
            problem = await self.assertFailure(Deferred.fromCoroutine(work), Problem)
            self.assertEqual(problem.category, category)
