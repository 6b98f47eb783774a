"""The URLs of the pages of a feed: placeholders, and the next page as the source names it.

A next page must be on the host of the base URL: the request carries the token of the source.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit, urlunsplit
from zoneinfo import ZoneInfo

from ipf.errors import Category, Problem
from ipf.ports.messages.feeds import FeedState
from ipf.ports.messages.sources import Feed, PolledSource

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_PLACEHOLDER = re.compile(r"\{\{\s*(lastRun|now)\s*\}\}")
_AHEAD = timedelta(hours=1)  # `{{now}}`: the clock of the source may be ahead
_PORTS = {"http": 80, "https": 443}


def first_page(source: PolledSource, feed: Feed, state: FeedState, now: datetime) -> str:
    """The URL of the first page of a pass."""
    query = feed.query
    if state.repeats:
        query = f"{query}{'&' if '?' in query else '?'}{feed.after_failure}"
    times = {"lastRun": last_run(source, state), "now": now + _AHEAD}
    filled = _PLACEHOLDER.sub(lambda found: quote(_written(source, times[found[1]]), safe=""), query)
    url = f"{source.base_url}/{filled}"
    if feed.offset_parameter:
        url = with_parameter(url, feed.offset_parameter, "0")
    return url


def last_run(source: PolledSource, state: FeedState) -> datetime:
    """Where a poll begins: the mark, less the overlap."""
    if state.mark is not None:
        return max(state.mark - timedelta(seconds=source.overlap), _BEGINNING)
    return datetime.fromisoformat(source.since) if source.since else _BEGINNING


def next_of(source: PolledSource, current: str, given: str) -> str:
    """The absolute URL of the next page; `given`: as the source says it.  Problem UPSTREAM."""
    url = urljoin(current, given)
    if _host(url) != _host(source.base_url):
        raise Problem(Category.UPSTREAM, "the next page is on another host than baseUrl; it is not asked for")
    if url == current:
        raise Problem(Category.UPSTREAM, "the source names a page as its own next page")
    return url


def with_parameter(url: str, name: str, value: str) -> str:
    """The URL with this parameter, in place of any other value."""
    parts = urlsplit(url)
    kept = [one for one in parse_qsl(parts.query, keep_blank_values=True) if one[0] != name]
    return urlunsplit(parts._replace(query=urlencode([*kept, (name, value)])))


def _written(source: PolledSource, moment: datetime) -> str:
    local = moment.astimezone(ZoneInfo(source.time_zone or "UTC"))
    if source.time_format:
        return local.strftime(source.time_format)
    text = local.isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _host(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return "", None, None
