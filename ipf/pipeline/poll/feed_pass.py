"""One pass over a feed: fetches page by page, and stores each page with the state after it.

What arrives: the pages of a server.  What leaves: for each resource or item a row of the inbox, keyed by type, number
and version; the rows of a page and the state after it are one transaction.  Crash: the pass goes on with the page that
was not stored; rows that were stored are recognised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Protocol

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.pipeline.equal_failures import reason_of
from ipf.pipeline.poll.pages import Item, Page, read_page
from ipf.pipeline.poll.progress import after_page, answered, is_complete, restarted
from ipf.pipeline.poll.replies import MAX_DIAGNOSTICS, Limited, check, source_time, wait_seconds
from ipf.pipeline.poll.urls import first_page
from ipf.ports import Clock, Inbox, Outcome, Received, Rejected
from ipf.ports.messages.feeds import FeedLease, FeedState, FeedStore, Fetch, Reply
from ipf.ports.messages.sources import FHIR_REST, Feed, PolledSource
from ipf.ports.threads import RunInThread

log = Logger()

LEASE_SECONDS = 150.0  # longer than a request may take
_KEPT_OF_REJECT = 64 * 1024
_ENDED_PAGING = frozenset((400, 404, 410))


class PollMetrics(Protocol):
    """Metrics of polling.  `feed`: `profile/item/feed`."""

    def requested(self, feed: str, outcome: str) -> None:
        """A request ended: success, failure, or limited (the source asks to wait)."""

    def stored(self, source: PolledSource, count: int) -> None:
        """New rows were stored."""


@dataclass(frozen=True, slots=True)
class PollParts:
    """What polling works with.

    `worker`: name of this process.  `pause`: waits so many seconds.  `notify`: new rows are stored.  `ordering`:
    versions of one resource stay in order, unless it is `none`.
    """

    feeds: FeedStore
    inbox: Inbox
    worker: str
    now: Clock
    pause: Callable[[float], Awaitable[object]]
    new_correlation_id: Callable[[], str]
    run_in_thread: RunInThread
    notify: Callable[[], object]
    metrics: PollMetrics
    ordering: str = "patient"


class FeedPass:
    """A pass, from its state on.  `state`: after the last page that was stored."""

    def __init__(self, source: PolledSource, feed: Feed, lease: FeedLease, parts: PollParts, state: FeedState) -> None:
        self.state = state
        self._source = source
        self._feed = feed
        self._lease = lease
        self._parts = parts
        self._keys: dict[str, str] = {}
        self._total = 0

    async def read(self, fetch: Fetch, is_stopping: Callable[[], bool]) -> None:
        """Read to the end of the pass, or until the service stops, or another process has the lease.

        Problem UPSTREAM.
        """
        if self._feed.after_failure and self._lease.state.began is None:  # what is handed out from now on may be lost
            await self._keep(None)
        while not is_complete(self.state):
            if is_stopping():
                await self._keep(0.0)
                return
            if not await self._page(fetch):
                return
            if self._source.per_minute and not is_complete(self.state):
                await self._parts.pause(60.0 / self._source.per_minute)

    async def _keep(self, due_seconds: float | None) -> None:
        await self._parts.feeds.save(self._lease, (), self.state, LEASE_SECONDS, due_seconds)

    async def _page(self, fetch: Fetch) -> bool:
        """Fetch and store one page; False: another process has the feed now."""
        now = self._parts.now
        url, sent_at = self.state.next_page or first_page(self._source, self._feed, self.state, now()), now()
        reply = await self._reply(fetch, url)
        if reply.status in _ENDED_PAGING and self.state.next_page:
            log.warn("event=poll_restarted feed={feed} status={status}: the pass begins again", event="poll_restarted",
                     feed=self._lease.name, status=reply.status)  # fmt: skip
            self.state = restarted(self.state)
            return True
        check(reply)
        state = answered(self.state, source_time(reply, now() - sent_at))
        began = state.began or sent_at
        page: Page = await self._parts.run_in_thread(
            lambda: read_page(self._source, self._feed, url, reply.body, began)
        )
        for warning in page.warnings:
            log.warn("event=poll_warning feed={feed}: {reason}", event="poll_warning", feed=self._lease.name,
                     reason=warning[:MAX_DIAGNOSTICS])  # fmt: skip
        await self._refuse([one for one in page.items if one.refusal])
        taken = [one for one in page.items if not one.refusal]
        moved = self._has_moved(page, taken)
        following = after_page(state, self._feed, page.next_page, moved=moved, is_empty=not page.items)
        return await self._store(taken, following)

    def _has_moved(self, page: Page, taken: Sequence[Item]) -> bool:
        """Whether an item of this pass came again with another version, or items have left the result."""
        moved = any(self._keys.get(one.unit, one.key) != one.key for one in taken)
        self._keys.update((one.unit, one.key) for one in taken)
        shrank = page.total is not None and page.total < self._total
        self._total = page.total or 0
        return moved or shrank

    async def _store(self, taken: Sequence[Item], following: FeedState) -> bool:
        """Store a page.  An item under the key of another content gets a key of its own: no change is lost."""
        is_last = is_complete(following)
        due = self._source.interval if is_last else None
        rows = [self._row(item) for item in taken]
        try:
            outcomes = await self._parts.feeds.save(self._lease, rows, following, LEASE_SECONDS, due)
        except (StoreUnreachable, CancelledError):
            raise
        except Exception as error:
            if not taken:
                raise
            return await self._store_apart(taken, following, error)
        if outcomes is None:
            log.warn("event=poll_lease_lost feed={feed}", event="poll_lease_lost", feed=self._lease.name)
            return False
        if Outcome.CONFLICTING_DUPLICATE in outcomes:
            pairs = zip(taken, outcomes, strict=True)
            other = Outcome.CONFLICTING_DUPLICATE
            return await self._store([_with_digest(one) if found is other else one for one, found in pairs], following)
        self.state = following
        new = sum(one is Outcome.STORED for one in outcomes)
        if new:
            self._parts.notify()
            self._parts.metrics.stored(self._source, new)
        if is_last:
            log.info("event=polled feed={feed} last_page={items} new={stored}", event="polled", feed=self._lease.name,
                     items=len(rows), stored=new)  # fmt: skip
        return True

    async def _store_apart(self, taken: Sequence[Item], following: FeedState, error: Exception) -> bool:
        """Store the items of a page one by one, then the state after it; the item that is refused is set aside.

        First no item at all: when that fails too, the feed fails, and nothing is set aside.
        """
        if not await self._store((), self.state):
            return False
        if len(taken) == 1:
            log.failure("event=poll_item_refused feed={feed}", event="poll_item_refused", feed=self._lease.name)
            await self._refuse([replace(taken[0], refusal=f"it cannot be stored: {reason_of(error)}")])
        for one in taken if len(taken) > 1 else ():
            if not await self._store((one,), self.state):
                return False
        return await self._store((), following)

    def _row(self, item: Item) -> Received:
        source, parts = self._source, self._parts
        ordered = None if parts.ordering == "none" else ordering_key(source, item)
        kind = "application/fhir+json" if source.protocol == FHIR_REST else "application/json"
        return Received(
            parts.new_correlation_id(), parts.now(), source.source_system, item.key, item.message_type, item.raw,
            raw_content_type=kind, source_protocol=source.protocol, listener=source.listener, tenant=source.tenant,
            ordering_key=ordered,
        )  # fmt: skip

    async def _refuse(self, items: Sequence[Item]) -> None:
        """Items that cannot be taken are kept among the rejects."""
        source, parts = self._source, self._parts
        for item in items:
            log.warn("event=rejected listener={listener} reason={reason}", event="rejected", listener=source.listener,
                     reason=item.refusal)  # fmt: skip
            rejected = Rejected(
                parts.now(), parts.new_correlation_id(), source.listener, source.source_system, item.refusal,
                item.raw[:_KEPT_OF_REJECT], len(item.raw), source.tenant, True,
            )  # fmt: skip
            try:
                await parts.inbox.reject(rejected)
            except (StoreUnreachable, CancelledError):
                raise
            except Exception:
                log.failure("event=reject_not_stored listener={listener}", event="reject_not_stored",
                            listener=source.listener)  # fmt: skip

    async def _reply(self, fetch: Fetch, url: str) -> Reply:
        requested = self._parts.metrics.requested
        try:
            reply = await fetch.get(url)
        except Problem:
            requested(self._lease.name, "failure")
            raise
        limited = reply.status == 429 or (reply.status == 503 and "retry-after" in reply.headers)
        requested(self._lease.name, "limited" if limited else "success" if reply.status < 400 else "failure")
        if limited:
            text = f"the source answered {reply.status} and asks to wait"
            raise Limited(text, wait_seconds(reply.headers.get("retry-after", ""), self._parts.now()))
        return reply


def ordering_key(source: PolledSource, item: Item) -> int:
    """63-bit key of the versions of one resource; not of a patient, since a result may wait for its patient."""
    text = "\x1f".join((source.tenant, source.source_system, source.id, item.unit))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 1


def _with_digest(item: Item) -> Item:
    digest = blake2b(item.raw, digest_size=12).hexdigest()
    return replace(item, key=f"{item.key[:200]}~{digest}")
