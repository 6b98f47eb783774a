"""Parameters and page tokens of the history interactions.

Source: https://hl7.org/fhir/R4/http.html#history
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from ipf.errors import Category, Problem
from ipf.fhir.model.dates import date_range, microseconds, moment
from ipf.ports import Request
from ipf.ports.history import HistoryCursor
from ipf.rest.http.exchange import selection
from ipf.rest.write.repository import Repository

_MAX_DIGITS = 9  # digits: far beyond any version or page


@dataclass(frozen=True, slots=True)
class HistoryParameters:
    """`_count` (limited), `_since` and the page token; `text`: the first two for links."""

    limit: int
    since: datetime | None
    after: str | None
    text: str


def history_parameters(request: Request, repository: Repository, token: str) -> HistoryParameters:
    """The parameters of a history request; `token`: name of the page token.  Problem names the invalid parameter."""
    limit, since, after = repository.page_size, None, None
    pairs: list[tuple[str, str]] = []
    for name, value in selection(request.query):
        if name == "_count":
            limit = max(1, min(number(name, value), repository.max_page_size))
        elif name == "_since":
            since = _instant(value)
            pairs.append((name, value))
        elif name == token:
            after = value
        else:
            raise Problem(Category.NOT_SUPPORTED, f"history does not support the parameter {name[:60]}", name[:60])
    return HistoryParameters(limit, since, after, urlencode([("_count", limit), *pairs]))


def number(name: str, value: str) -> int:
    """A whole number; Problem VALUE."""
    if not value.isascii() or not value.isdigit() or len(value) > _MAX_DIGITS:
        raise Problem(Category.VALUE, f"{name} must be a whole number", name)
    return int(value)


def _instant(value: str) -> datetime:
    found = date_range(value.replace(" ", "+"))  # an unescaped plus sign in the URL
    if found is None:
        raise Problem(Category.VALUE, "_since must be an instant, such as 2026-01-31T08:00:00Z", "_since")
    return moment(found[0])


def token_of(cursor: HistoryCursor) -> str:
    """The page token of a cursor, before it is encrypted."""
    return f"{microseconds(cursor.last_updated)}.{cursor.rid:019}.{cursor.version_id}"  # its length tells nothing


def cursor_of(token: str) -> HistoryCursor:
    """The cursor of a page token; Problem VALUE."""
    try:
        when, rid, version = (int(part) for part in token.split("."))
        if not (0 <= rid < 2**62 and 0 <= version < 2**31):
            raise ValueError
    except ValueError as refused:
        raise Problem(Category.VALUE, "the page token is invalid", "_cursor") from refused
    return HistoryCursor(moment(when), rid, version)
