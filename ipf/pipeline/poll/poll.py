"""Polls the feeds of a source that are due, one after another, and waits after a failure.

What arrives: a source.  What leaves: rows of the inbox (`feed_pass`).  One process at a time has the lease of a feed.

A server that cannot be reached, refuses, or limits the rate is asked again after `Retry-After`, else after 5 seconds,
twice as long after each further failure, at most 15 minutes.  Nothing is skipped meanwhile.  So is a feed with which
something fails that nobody foresaw; the others of its source are polled.

Source: docs/how-to/poll-a-server.md; interface specification "Vendor profile".
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.pipeline.equal_failures import reason_of
from ipf.pipeline.poll.feed_pass import LEASE_SECONDS, FeedPass, PollParts
from ipf.pipeline.poll.progress import started
from ipf.pipeline.poll.replies import Limited
from ipf.ports.messages.feeds import FeedLease, FeedState, Fetch
from ipf.ports.messages.sources import Feed, PolledSource

log = Logger()

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5.0, 900.0


class Poller:
    """Polls sources.  `fetch`: the client of a source, or a Problem that its credentials are not set."""

    def __init__(self, parts: PollParts, fetch: Callable[[PolledSource], Fetch]) -> None:
        self._parts = parts
        self._fetch = fetch
        self._stopping = False

    def stop(self) -> None:
        """End after the page that is being read."""
        self._stopping = True

    async def poll(self, source: PolledSource) -> None:
        """Poll the feeds of a source that are due, one after another."""
        for feed in source.feeds:
            if self._stopping:
                return
            lease = await self._parts.feeds.begin(feed_name(source, feed), self._parts.worker, LEASE_SECONDS)
            if lease is not None:
                await self._poll_feed(source, feed, lease)

    async def _poll_feed(self, source: PolledSource, feed: Feed, lease: FeedLease) -> None:
        reading: FeedPass | None = None
        try:
            reading = FeedPass(source, feed, lease, self._parts, started(lease.state, feed, self._parts.now()))
            await reading.read(self._fetch(source), lambda: self._stopping)
        except (StoreUnreachable, CancelledError):
            raise
        except Exception as error:
            problem = error if isinstance(error, Problem) else Problem(Category.INTERNAL, reason_of(error))
            if problem is not error:
                log.failure("event=poll_failed feed={feed}", event="poll_failed", feed=lease.name)
            await self._failed(lease, lease.state if reading is None else reading.state, problem)

    async def _failed(self, lease: FeedLease, state: FeedState, problem: Problem) -> None:
        backoff = min(FIRST_RETRY_SECONDS * 2 ** min(lease.failures, 20), LONGEST_RETRY_SECONDS)
        asked = problem.seconds if isinstance(problem, Limited) else None
        due = backoff if asked is None else asked
        log.warn("event=poll_failed feed={feed} retry_seconds={due}: {reason}", event="poll_failed", feed=lease.name,
                 due=round(due, 1), reason=str(problem))  # fmt: skip
        is_limit = isinstance(problem, Limited)
        await self._parts.feeds.fail(lease, state, str(problem), due, is_limit=is_limit)


def feed_name(source: PolledSource, feed: Feed) -> str:
    """The name of a feed in the store, in metrics and for operators."""
    return f"{source.profile}/{source.id}/{feed.id}"
