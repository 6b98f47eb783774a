"""Polled sources for operators: how far each feed has been read, what fails, and polling again.

`GET /admin/sources` lists the feeds of the vendor profiles in use, and those that were polled before.  `POST
/admin/sources/poll` polls at once; `POST /admin/sources/rewind` polls again from a time: what is stored already is
recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

from ipf.errors import Category, Problem
from ipf.ports import Answer, Json, Request
from ipf.ports.messages.feeds import FeedRow, FeedState, FeedStore
from ipf.ports.messages.sources import PolledSource
from ipf.wire.admin.messages import answer, json_body, timestamp
from ipf.wire.admin.route import Mounted, Role, Route, WhenMasked

Sources = Callable[[], Mapping[str, PolledSource]]
"""The source of each feed of the profiles in use, by the name of the feed."""


async def list_sources(feeds: FeedStore, sources: Sources) -> Answer:
    """`GET /admin/sources`."""
    known, rows = sources(), {row.name: row for row in await feeds.feeds()}
    items = [_item(name, known.get(name), rows.get(name)) for name in sorted({*known, *rows})]
    return answer(200, {"total": len(items), "items": items})


async def poll_now(feeds: FeedStore, request: Request) -> Answer:
    """`POST /admin/sources/poll` with `{"name": "profile/item/feed"}`: 202.  Problem NOT_FOUND."""
    name, _ = _body(request, {"name"})
    await feeds.make_due(name)
    return answer(202, {"name": name, "message": "the feed is polled within some seconds"})


async def rewind(feeds: FeedStore, request: Request) -> Answer:
    """`POST /admin/sources/rewind` with `name` and `since` (a time; null = from the beginning): 202."""
    name, body = _body(request, {"name", "since"})
    await feeds.rewind(name, _moment(body["since"]))
    return answer(202, {"name": name, "since": body["since"], "message": "the feed is polled from there"})


def _body(request: Request, expected: set[str]) -> tuple[str, Json]:
    body = json_body(request, None)
    if not isinstance(body, dict) or set(body) != expected or not isinstance(body["name"], str):
        raise Problem(Category.VALUE, f"the body must be an object with {' and '.join(sorted(expected))}")
    return body["name"], body


class PolledSources(NamedTuple):
    """What the operations use."""

    feeds: FeedStore
    sources: Sources


def routes(feeds: FeedStore, sources: Sources) -> Mounted[PolledSources]:
    """The paths below `/admin/sources`."""
    return Mounted(ROUTES, PolledSources(feeds, sources))


ROUTES: tuple[Route[PolledSources], ...] = (
    Route(
        "GET", "/sources", "sources", "Polled sources: how far each feed has been read",
        lambda of, _, __: list_sources(of.feeds, of.sources), "FeedList", masked=WhenMasked.NO,
    ),
    Route(
        "POST", "/sources/poll", "pollSource", "Poll a feed at once",
        lambda of, request, _: poll_now(of.feeds, request), "FeedChanged", Role.OPERATOR, WhenMasked.NO,
        body="PollRequest", status="202", refusals=["404"],
    ),
    Route(
        "POST", "/sources/rewind", "rewindSource", "Poll a feed again from a time",
        lambda of, request, _: rewind(of.feeds, request), "FeedChanged", Role.ADMIN, WhenMasked.NO,
        body="RewindRequest", status="202", refusals=["404"],
    ),
)  # fmt: skip


def _item(name: str, source: PolledSource | None, row: FeedRow | None) -> Json:
    state = row.state if row is not None else FeedState()
    return {
        "name": name,
        "in_use": source is not None,
        "source_protocol": source.protocol if source is not None else None,
        "source_system": source.source_system if source is not None else None,
        "tenant": source.tenant if source is not None else None,
        "interval_seconds": source.interval if source is not None else None,
        "read_until": timestamp(state.mark),
        "pass_began_at": timestamp(state.began),
        "pages": state.pages,
        "due_at": timestamp(row.due_at) if row is not None else None,
        "polled_at": timestamp(row.polled_at) if row is not None else None,
        "completed_at": timestamp(row.completed_at) if row is not None else None,
        "failures": row.failures if row is not None else 0,
        "last_error": row.last_error if row is not None else None,
        "fetched": row.fetched if row is not None else 0,
        "stored": row.stored if row is not None else 0,
    }


def _moment(given: object) -> datetime | None:
    if given is None:
        return None
    try:
        moment = datetime.fromisoformat(given) if isinstance(given, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise Problem(Category.VALUE, "since must be a time with its offset, as in 2026-11-01T00:00:00Z", "since")
    return moment
