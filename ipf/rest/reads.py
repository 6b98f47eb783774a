"""Reads of resources that a standby of the database answers, and when the primary does.

A request is answered as a whole by one side.  The standby answers reads, searches, histories and `$everything` while it
is known to be no staler than the setting says, and has what the caller has written.  All other requests, and those
within a Bundle, are for the primary.  So are:

- callers for whom the content of resources decides what they see (patient and narrowed scopes, labels, Consents): no
  decision on access is taken from what may be stale;
- requests that say `Cache-Control: no-cache`;
- what the standby does not have, or cannot answer: the primary is asked again, so that nothing fails because of it;
- pages that follow a page of the primary, which may show what the standby does not have yet.

A caller is the client and subject of its token, without a token its address.  A response to a write names the position
of the log in `X-IPF-LSN`; a request with that header, in any process, sees everything until there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace

from ipf.errors import Category, Problem
from ipf.ports import Answer, FhirStore, Request
from ipf.ports.fhir.history import Histories
from ipf.ports.replica import Position, Replica
from ipf.rest.write.repository import Repository
from ipf.security.access import may_hide

HEADER = "X-IPF-LSN"
REASONS = ("unreachable", "unrelated", "stale", "session", "access", "asked", "page", "repeated")
"""Why the primary answered.  `repeated`: the standby could not."""
REPLICA = "replica"

_MOST_SESSIONS = 10_000
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_REPEATED = frozenset({Category.NOT_FOUND, Category.GONE, Category.UNAVAILABLE, Category.CONFLICT, Category.INTERNAL})
"""What the primary may answer otherwise.  CONFLICT: replay cancelled the query."""
_NEWEST = frozenset({"no-cache", "no-store", "max-age=0"})

Who = tuple[str, str, str]
Perform = Callable[[Request, Repository], Awaitable[Answer]]


class Sessions:
    """The position of each caller's last write.  The last one that was forgotten holds for all others."""

    def __init__(self, most: int = _MOST_SESSIONS) -> None:
        self._most = most
        self._written: OrderedDict[Who, Position] = OrderedDict()
        self._of_others: Position | None = None

    def wrote(self, who: Who, position: Position | None) -> None:
        """A write of this caller ended when the log was at this position."""
        if position is None:
            return
        self._written[who] = position
        self._written.move_to_end(who)
        if len(self._written) > self._most:
            self._of_others = _later(self._of_others, self._written.popitem(last=False)[1])

    def least(self, who: Who) -> Position | None:
        """What a read of this caller must see; None: anything will do."""
        return self._written.get(who) or self._of_others


class ReplicaReads:
    """Performs each request on the right side.  `store`, `histories`: those that read from the standby.

    `count`: takes `REPLICA` or one of `REASONS` for each read.
    """

    def __init__(self, replica: Replica, store: FhirStore, histories: Histories, count: Callable[[str], None]) -> None:
        self._replica = replica
        self._store = store
        self._histories = histories
        self._count = count
        self._sessions = Sessions()

    async def perform(self, request: Request, repository: Repository, perform: Perform, tolerates: bool) -> Answer:
        """The answer of `perform`.  `tolerates`: the request is a read that may be stale.  Raises what it raises."""
        if tolerates:
            return await self._read(request, repository, perform)
        if request.method in _WRITES:
            return await self._write(request, repository, perform)
        return await perform(request, repository)

    async def _write(self, request: Request, repository: Repository, perform: Perform) -> Answer:
        """A request that may write, also when it fails."""
        try:
            answer = await perform(request, repository)
        finally:
            written = self._replica.written
            self._sessions.wrote(_who(request), written)
        return answer if written is None else replace(answer, headers=[*answer.headers, (HEADER, written.text)])

    async def _read(self, request: Request, repository: Repository, perform: Perform) -> Answer:
        reason = self._refusal(request)
        if not reason:
            answer = await self._from_replica(request, repository, perform)
            if answer is not None:
                self._count(REPLICA)
                return answer
            reason = "repeated"
        self._count(reason)
        return await perform(request, repository)

    def _refusal(self, request: Request) -> str:
        """Why the standby may not answer; "" when it may.  Problem VALUE for a header that is no position."""
        least = _later(self._sessions.least(_who(request)), _sent(request))
        if _wants_newest(request):
            return "asked"
        if may_hide(request.caller):
            return "access"
        if _follows(request) not in (None, self._replica.name):
            return "page"
        return self._replica.refusal(least)

    async def _from_replica(self, request: Request, repository: Repository, perform: Perform) -> Answer | None:
        """The answer of the standby; None when the primary has to be asked."""
        server, mark = self._replica.server, f"{self._replica.name}."
        there = replace(repository, store=self._store, histories=self._histories, page_mark=mark)
        try:
            answer = await perform(request, there)
        except Problem as problem:
            if problem.category not in _REPEATED:
                raise
            return None
        if self._replica.server != server:  # a part may be from another one
            return None
        return None if answer.status != 304 and _is_conditional(request) else answer


def _who(request: Request) -> Who:
    caller = request.caller
    if caller.subject or caller.client:
        return caller.issuer, caller.client, caller.subject
    return "", "", request.address


def _later(one: Position | None, other: Position | None) -> Position | None:
    return other if one is None else one if other is None else max(one, other)


def _sent(request: Request) -> Position | None:
    """The position that the client sends back."""
    text = request.headers.get(HEADER.lower())
    if text is None:
        return None
    found = Position.parse(text)
    if found is None:
        raise Problem(Category.VALUE, f"{HEADER} must be as a response gave it, such as 1:0/3000148", HEADER)
    return found


def _wants_newest(request: Request) -> bool:
    header = request.headers.get("cache-control")
    return header is not None and not _NEWEST.isdisjoint(part.strip().lower() for part in header.split(","))


def _is_conditional(request: Request) -> bool:
    """Whether the client names a version or a time that it knows: a stale answer might be older."""
    return "if-none-match" in request.headers or "if-modified-since" in request.headers


def _follows(request: Request) -> str | None:
    """The side of the page before: the name of the standby, or "" for the primary; None for a first page."""
    if b"_cursor" in request.body:
        return ""
    for name, value in request.query:
        if name == "_cursor":
            return value.partition(".")[0] if "." in value else ""
        if name in ("_before", "_after"):  # of a history, without a mark
            return ""
    return None
