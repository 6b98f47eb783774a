"""Parameters, pages and page tokens of the history interactions.

Source: https://hl7.org/fhir/R4/http.html#history; `_sort`: https://hl7.org/fhir/R5/http.html#history
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlencode

from ipf.errors import Category, Problem
from ipf.fhir.model.bundle import Link
from ipf.fhir.model.dates import date_range, microseconds, moment
from ipf.ports import Request, Version
from ipf.ports.fhir.history import HistoryCursor
from ipf.ports.queries.history_filter import HistoryFilter
from ipf.rest.http.exchange import selection
from ipf.rest.write.repository import Repository

_MAX_DIGITS = 9  # digits: far beyond any version or page
_ORDERS = {"_lastUpdated": True, "-_lastUpdated": False, "none": False}


@dataclass(frozen=True, slots=True)
class HistoryParameters:
    """`_count` (limited), the filter and order, and the page token with its name; `text`: the first two for links."""

    limit: int
    wanted: HistoryFilter
    token: tuple[str, str] | None
    text: str


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Versions in the requested order, and whether there are pages before and after them."""

    versions: list[Version]
    has_previous: bool
    has_next: bool

    @classmethod
    def of(cls, found: list[Version], parameters: HistoryParameters, walked: HistoryFilter) -> HistoryPage:
        """Of the versions `found` in the order of `walked`, one more than the page has if there are more."""
        versions, more = found[: parameters.limit], len(found) > parameters.limit
        if walked.oldest_first == parameters.wanted.oldest_first:
            return cls(versions, parameters.token is not None and bool(versions), more)
        return cls(versions[::-1], more, bool(versions))

    async def links(
        self, url: str, parameters: HistoryParameters, link_to: Callable[[Version, bool], Awaitable[str]]
    ) -> list[Link]:
        """self; where there are several pages also first, previous and next.

        `link_to`: the page token, with its name, for what is after (True) or before a version in the requested order.
        """
        url = f"{url}?{parameters.text}"
        links = [Link("self", url if parameters.token is None else f"{url}&{urlencode([parameters.token])}")]
        if parameters.token is not None or self.has_next:
            links.append(Link("first", url))
        if self.has_previous:
            links.append(Link("previous", f"{url}&{await link_to(self.versions[0], False)}"))
        if self.has_next:
            links.append(Link("next", f"{url}&{await link_to(self.versions[-1], True)}"))
        return links


def history_parameters(request: Request, repository: Repository, *tokens: str) -> HistoryParameters:
    """The parameters of a history request; `tokens`: names of page tokens.  Problem names the invalid parameter."""
    limit, wanted, token = repository.page_size, HistoryFilter(), None
    pairs: list[tuple[str, str]] = []
    for name, value in selection(request.query):
        if name == "_count":
            limit = max(1, min(number(name, value), repository.max_page_size))
            continue
        if name in tokens:
            token = name, value
            continue
        if name == "_since":
            wanted = replace(wanted, since=_range(name, value)[0])
        elif name == "_at":
            wanted = replace(wanted, at=_range(name, value))
        elif name == "_sort" and value in _ORDERS:
            wanted = replace(wanted, oldest_first=_ORDERS[value])
        elif name == "_sort":
            text = f"a history is sorted by {', '.join(_ORDERS)}, not by {value[:60]}"
            raise Problem(Category.NOT_SUPPORTED, text, name)
        else:
            raise Problem(Category.NOT_SUPPORTED, f"history does not support the parameter {name[:60]}", name[:60])
        pairs.append((name, value))
    return HistoryParameters(limit, wanted, token, urlencode([("_count", limit), *pairs]))


def number(name: str, value: str) -> int:
    """A whole number; Problem VALUE."""
    if not value.isascii() or not value.isdigit() or len(value) > _MAX_DIGITS:
        raise Problem(Category.VALUE, f"{name} must be a whole number", name)
    return int(value)


def _range(name: str, value: str) -> tuple[datetime, datetime]:
    """The time from the begin of a date until before its end."""
    found = date_range(value.replace(" ", "+"))  # an unescaped plus sign in the URL
    if found is None:
        raise Problem(Category.VALUE, f"{name} must be an instant, such as 2026-01-31T08:00:00Z, or a date", name)
    return moment(found[0]), moment(found[1])


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
