"""The addresses of all pages: found by following every link from the navigation, as a person without a mouse could."""

from __future__ import annotations

import http.client
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import parse_qs, urljoin, urlsplit

from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, MapAdapter, Rule

from ipf.console.app import AREAS
from tests.waiting import PATIENCE

_OF_ONE_KIND = 3
"""Pages of one pattern that are opened."""


@dataclass(frozen=True, slots=True)
class Found:
    """One page.  `pattern`: its route and tab."""

    pattern: str
    url: str
    status: int
    kind: str
    body: str


@dataclass
class Client:
    """A browser without scripts: one cookie, one language."""

    port: int
    headers: dict[str, str] = field(default_factory=dict)

    def sign_in(self) -> None:
        """Into the sandbox."""
        status, headers, _ = self.get("/sign-in?to=/")
        assert status == 303, status
        cookie = next(one for one in headers.get_all("Set-Cookie") or () if one.startswith("ipf="))
        self.headers["Cookie"] = cookie.partition(";")[0]

    def get(self, url: str) -> tuple[int, http.client.HTTPMessage, str]:
        """Status, headers and text."""
        return self.ask("GET", url)

    def ask(
        self, method: str, url: str, body: str | None = None, **headers: str
    ) -> tuple[int, http.client.HTTPMessage, str]:
        """One request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, url, body, self.headers | headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.assets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and given.get("href"):
            self.found.append(str(given["href"]))
        elif url := given.get("src") or (tag == "link" and given.get("href")):
            self.assets.append(str(url))


def links_of(html: str, url: str) -> Iterable[str]:
    """The links of a page, without fragments."""
    parser = _Links()
    parser.feed(html)
    return (urljoin(url, one).partition("#")[0] for one in parser.found)


def assets_of(html: str) -> set[str]:
    """The style sheets, scripts and pictures of a page."""
    parser = _Links()
    parser.feed(html)
    return set(parser.assets)


def patterns() -> dict[str, set[str]]:
    """The patterns of all pages (GET), by area."""
    return {area: {route.path for route in routes if route.method == "GET"} for area, routes in AREAS.items()}


def pattern_of(url: str) -> str | None:
    """`messages/<int:id>?tab=raw`; None for an address without a route."""
    split = urlsplit(url)
    area, _, rest = split.path.lstrip("/").partition("/")
    found = patterns().get(area)
    if found is None:
        return None
    adapter: MapAdapter = Map([Rule(path, endpoint=path) for path in found], strict_slashes=False).bind("")
    try:
        endpoint, _ = adapter.match(f"/{rest}")
    except HTTPException:
        return None
    tab = parse_qs(split.query).get("tab")
    return f"{area}{endpoint}" + (f"?tab={tab[0]}" if tab else "")


def crawl(client: Client, most: int = _OF_ONE_KIND) -> list[Found]:
    """Pages of every pattern that links lead to; at most so many of each."""
    queue, seen, opened, found = deque(["/"]), {"/"}, Counter[str](), []
    while queue:
        url = queue.popleft()
        pattern = pattern_of(url)
        assert pattern is not None, f"no page has the address {url}"
        opened[pattern] += 1
        if opened[pattern] > most:
            continue
        status, headers, body = client.get(url)
        kind = (headers.get("Content-Type") or "").partition(";")[0]
        found.append(Found(pattern, url, status, kind, body))
        for link in links_of(body, url) if kind == "text/html" else ():
            if link not in seen:
                seen.add(link)
                queue.append(link)
    return found
