"""How far the feeds of polled sources have been read.

The store keeps a `FeedState` for each feed beside the inbox: a page of rows and the state after it are one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.messages.inbox import Outcome, Received


@dataclass(frozen=True, slots=True)
class FeedState:
    """How far a feed has been read.  All times are those of the source's clock.

    `mark`: every change before it is stored; None = nothing yet.  `began`: beginning of the pass that is not complete;
    None = the last one is.  `next_page`: URL of the page that follows; empty = the first.  `pages`: of this pass so
    far.  `moved`: items changed their place while this pass read, so that it may have missed one.  `candidate` and
    `tries`: beginning of the first of such passes, and their number.  `repeats`: this pass asks for what an unfinished
    one may have lost.
    """

    mark: datetime | None = None
    began: datetime | None = None
    next_page: str = ""
    pages: int = 0
    moved: bool = False
    candidate: datetime | None = None
    tries: int = 0
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class FeedLease:
    """The right to poll a feed, until it ends or another process has it.  `failures`: in a row."""

    name: str
    fence: int
    state: FeedState
    failures: int = 0


@dataclass(frozen=True, slots=True)
class FeedRow:
    """A feed as operators see it.  `fetched`: items so far; `stored`: those that were new."""

    name: str
    state: FeedState
    due_at: datetime
    failures: int = 0
    last_error: str | None = None
    polled_at: datetime | None = None
    completed_at: datetime | None = None
    fetched: int = 0
    stored: int = 0


class FeedStore(Protocol):
    """The states of feeds, beside the inbox.  Every method is one transaction.

    `name`: `profile/item/feed`.  A lease has a fencing token: after it has passed to another process, nothing of the
    first one changes the state.
    """

    async def begin(self, name: str, worker: str, lease_seconds: float) -> FeedLease | None:
        """Lease a feed that is due; None: it is not, or another process has it.  A new feed is due."""

    async def holders(self) -> Sequence[str]:
        """Names of the workers that have leases."""

    async def release(self, worker: str) -> None:
        """End the leases of a worker that has ended."""

    async def save(
        self,
        lease: FeedLease,
        rows: Sequence[Received],
        state: FeedState,
        lease_seconds: float,
        due_seconds: float | None,
    ) -> Sequence[Outcome] | None:
        """Store rows and the state after them, in one transaction; the outcomes of the rows.

        When a row has the key of another content (CONFLICTING_DUPLICATE), nothing is stored and nothing changes.
        `due_seconds` None: the pass goes on, and the lease with it; else the lease ends, and the feed is due then.
        None: the lease was lost; the rows are stored, and the state does not change.
        """

    async def fail(
        self, lease: FeedLease, state: FeedState, error: str, due_seconds: float, *, is_limit: bool = False
    ) -> None:
        """Record why a page was not stored, and end the lease.  `is_limit`: the source asks to wait; no failure."""

    async def feeds(self) -> Sequence[FeedRow]:
        """All feeds that were ever polled, by name."""

    async def rewind(self, name: str, mark: datetime | None) -> None:
        """Poll again from `mark` (None: from the beginning), at once.  Problem NOT_FOUND."""

    async def make_due(self, name: str) -> None:
        """Poll at once.  Problem NOT_FOUND."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a source; names of `headers` are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Fetch(Protocol):
    """Sends requests to one source, with its credentials."""

    async def get(self, url: str) -> Reply:
        """One GET.  Problem UPSTREAM: no answer, or no token."""
