"""The stores of messages, for `tests/contracts/programs.py`: inbox, forwards and feeds on one database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

from ipf.ports import Backoff, Claimed, Inbox, MessageFilter, Received, Settlement, Status
from ipf.ports.messages.feeds import FeedLease, FeedState, FeedStore
from ipf.ports.messages.forwards import Candidate, Forwarded, ForwardStatus, ForwardStore
from ipf.ports.messages.inbox import EVERY_TENANT
from tests.contracts.clock import CLOCK
from tests.contracts.programs import World

BACKOFF = Backoff(2000, 2.0, 5000, 3)
EVERY = MessageFilter(tenant=EVERY_TENANT)
ENDS = (Status.DELIVERED, Status.DELIVERED, Status.FAILED, Status.FAILED, Status.DEAD_LETTER, Status.RECEIVED)
WORKERS, NAMES = ("w1", "w2"), ("lab", "archive")


def batch(draw: Random) -> list[Received]:
    """Some messages; few names, so that they repeat."""
    return [_message(draw) for _ in range(draw.choice((1, 1, 2, 4)))]


def _message(draw: Random) -> Received:
    return Received(
        str(UUID(int=draw.getrandbits(120))), CLOCK(), draw.choice(("LAB", "ADT")), draw.choice("ABCDEF"),
        "ADT_A01", draw.choice((b"MSH|1", b"MSH|1", b"MSH|2")), ordering_key=draw.choice((None, 1, 2)),
        tenant=draw.choice(("default", "default", "north")),
    )  # fmt: skip


def of_laboratory(message: Candidate) -> bool:
    """What the destination `lab` gets."""
    return message.source_system == "LAB"


class MessageWorld(World):
    """`ready`: waits until stored messages may be forwarded."""

    steps = (
        *("store", "claim", "settle") * 4, "renew", "release_except", "recover_stale", "recover_worker", "retry",
        "delete", "get", "page", "begin", "begin", "fill", "fill", "forward", "forward", "forward", "extend",
        "release_forwards", "retry_forwards", "skip", "pause", "poll", "poll", "save", "save", "fail_poll", "rewind",
        "make_due", "release_feeds",
    )  # fmt: skip

    def __init__(
        self, inbox: Inbox, forwards: ForwardStore, feeds: FeedStore, ready: Callable[[], Awaitable[None]],
        close: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        super().__init__()
        self.inbox, self.forwards, self.feeds, self._ready, self._close = inbox, forwards, feeds, ready, close
        self.claims: list[Claimed] = []
        self.fences: dict[str, int] = {}
        self.polls: dict[str, FeedLease] = {}

    async def close(self) -> None:
        await self._close()

    async def visible(self) -> Any:
        entries = [await self.forwards.messages(name, None, 50, 0) for name in NAMES]
        page = await self.inbox.page(EVERY, 50, 0)
        counts = (await self.inbox.counts(), await self.inbox.unfinished(), await self.inbox.holders())
        return (
            page.total, sorted(page.rows, key=lambda row: row.id), *counts, await self.forwards.destinations(), entries,
            sorted(await self.forwards.holders()), await self.feeds.feeds(), sorted(await self.feeds.holders()),
        )  # fmt: skip

    def _id(self, draw: Random) -> int:
        return draw.choice([*self.seen, 10**9])

    # -- the inbox

    async def store(self, draw: Random) -> Any:
        return await self.inbox.store(batch(draw))

    async def claim(self, draw: Random) -> Any:
        found = await self.inbox.claim(draw.choice(WORKERS), draw.choice((1, 2, 5)))
        self.claims += found
        return found

    async def settle(self, draw: Random) -> Any:
        recent = self.claims[-6:]
        chosen = draw.sample(recent, min(len(recent), draw.choice((1, 1, 2, 3))))
        ends = [self._end(draw, claim) for claim in {claim.id: claim for claim in chosen}.values()]
        return await self.inbox.settle(ends)

    def _end(self, draw: Random, claim: Claimed) -> Settlement:
        status, attempts = draw.choice(ENDS), claim.attempt_count + 1
        due = CLOCK() + timedelta(seconds=draw.choice((0, 5, 60))) if status is Status.FAILED else None
        return Settlement(
            claim.id, claim.fence, status, attempts, "no map" if due else None, due,
            permanent=draw.random() < 0.3 and status in (Status.FAILED, Status.DEAD_LETTER),
            was_passed=draw.random() < 0.2,
        )  # fmt: skip

    async def renew(self, draw: Random) -> Any:
        await self.inbox.renew(draw.sample(self.claims, min(len(self.claims), 2)))

    async def release_except(self, draw: Random) -> Any:
        held = [claim.id for claim in self.claims if draw.random() < 0.5]
        return await self.inbox.release_except(draw.choice(WORKERS), held)

    async def recover_stale(self, draw: Random) -> Any:
        found = await self.inbox.recover_stale(draw.choice((1, 60, 3600)), BACKOFF)
        return sorted(found, key=lambda one: one.id)

    async def recover_worker(self, draw: Random) -> Any:
        found = await self.inbox.recover_worker(draw.choice(WORKERS), BACKOFF)
        return sorted(found, key=lambda one: one.id)

    async def retry(self, draw: Random) -> Any:
        return await self.inbox.retry(self._id(draw))

    async def delete(self, draw: Random) -> Any:
        await self.inbox.delete(self._id(draw))

    async def get(self, draw: Random) -> Any:
        return await self.inbox.get(self._id(draw))

    async def page(self, draw: Random) -> Any:
        wanted = MessageFilter(
            draw.choice((None, *Status)), source_system=draw.choice((None, "LAB")),
            permanent=draw.choice((None, None, True)),
        )  # fmt: skip
        return await self.inbox.page(wanted, draw.choice((1, 50)), draw.choice((0, 1)))

    # -- forwards

    async def begin(self, draw: Random) -> Any:
        name, since = draw.choice(NAMES), draw.choice((None, CLOCK() - timedelta(seconds=30)))
        fence = await self.forwards.begin(name, draw.choice(WORKERS), 60, since)
        if fence is not None:
            self.fences[name] = fence
        return fence

    def _held(self, draw: Random) -> tuple[str, int]:
        name = draw.choice(NAMES)
        return name, self.fences.get(name, 0) - draw.choice((0, 0, 0, 1))

    async def extend(self, draw: Random) -> Any:
        return await self.forwards.renew(*self._held(draw), 60)

    async def fill(self, draw: Random) -> Any:
        await self._ready()
        name, fence = self._held(draw)
        matches = of_laboratory if name == "lab" else lambda message: True
        return await self.forwards.fill(name, fence, matches, draw.choice((2, 50)))

    async def forward(self, draw: Random) -> Any:
        name, fence = self._held(draw)
        found = await self.forwards.next(name)
        if found is None:
            return None
        status = draw.choice((ForwardStatus.SENT, *ForwardStatus))
        end = Forwarded(found.message_id, status, "AE", "refused", draw.choice((0, 30)))
        return found, await self.forwards.settle(name, fence, end, 60)

    async def release_forwards(self, draw: Random) -> Any:
        await self.forwards.release(draw.choice(WORKERS))

    async def retry_forwards(self, draw: Random) -> Any:
        return await self.forwards.retry(draw.choice(NAMES), draw.choice((None, self._id(draw))))

    async def skip(self, draw: Random) -> Any:
        await self.forwards.skip(draw.choice(NAMES), self._id(draw))

    async def pause(self, draw: Random) -> Any:
        await self.forwards.pause(draw.choice(NAMES), paused=draw.random() < 0.4)

    # -- feeds

    async def poll(self, draw: Random) -> Any:
        lease = await self.feeds.begin(draw.choice(NAMES), draw.choice(WORKERS), 60)
        if lease is not None:
            self.polls[lease.name] = lease
        return lease

    def _poll(self, draw: Random) -> FeedLease:
        name = draw.choice(NAMES)
        return self.polls.get(name, FeedLease(name, 0, FeedState(), 0))

    def _state(self, draw: Random) -> FeedState:
        return FeedState(CLOCK(), CLOCK() if draw.random() < 0.5 else None, "https://ehr/2", draw.randrange(3))

    async def save(self, draw: Random) -> Any:
        due = draw.choice((None, 0, 30))
        return await self.feeds.save(self._poll(draw), batch(draw), self._state(draw), 60, due)

    async def fail_poll(self, draw: Random) -> Any:
        await self.feeds.fail(self._poll(draw), self._state(draw), "closed", 5, is_limit=draw.random() < 0.5)

    async def rewind(self, draw: Random) -> Any:
        await self.feeds.rewind(draw.choice(NAMES), CLOCK())

    async def make_due(self, draw: Random) -> Any:
        await self.feeds.make_due(draw.choice(NAMES))

    async def release_feeds(self, draw: Random) -> Any:
        await self.feeds.release(draw.choice(WORKERS))
