"""What a GraphQL query reads: each resource and each search once, as the caller's own requests.

The query is run without waiting.  What it lacks is noted; `fetch` reads it, by the functions of the REST API with their
checks, and the query is run again, until nothing lacks: once for each step from resource to resource.

Source: https://hl7.org/fhir/R4/graphql.html
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.fhir.model.redaction import redact_body
from ipf.fhir.model.reference import local_reference
from ipf.fhir.structure.primitives import is_id
from ipf.ports import Answer, Json, Request, Version
from ipf.ports.threads import RunInThread, run_by_size
from ipf.rest.http.exchange import parameters

MOST_REQUESTS = 1000
MOST_RESOURCES = 5000

Key = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]
"""Path and query of a GET."""
Perform = Callable[[Request], Awaitable[Answer]]


class Lacking(Exception):
    """The result of a request is needed before this value is known."""


@dataclass(slots=True)
class Loaded:
    """The results of requests so far, the Problem of those that failed.  `about`: the versions that they showed."""

    request: Request
    _found: dict[Key, Json | Problem] = field(default_factory=dict)
    _lacking: dict[Key, None] = field(default_factory=dict)
    about: list[Version] = field(default_factory=list)

    def read(self, reference: str) -> Json:
        """The resource of a reference.  Problem when it is not on this server, or not there for the caller."""
        literal = local_reference(reference, self.request.base_url)
        if literal is None or not all(map(is_id, filter(None, (literal.id, literal.version)))):
            raise Problem(Category.NOT_FOUND, "this is not the id of a resource of this server")
        history = ("_history", literal.version) if literal.version else ()
        return self.get((literal.resource_type, literal.id, *history), ())

    def get(self, path: tuple[str, ...], query: Sequence[tuple[str, str]]) -> Json:
        """The response to a GET.  Raises its Problem, or Lacking."""
        key = path, tuple(query)
        found = self._found.get(key)
        if found is None:
            self._lacking[key] = None
            raise Lacking
        if isinstance(found, Problem):
            raise found
        return found

    async def fetch(self, perform: Perform, run_in_thread: RunInThread) -> bool:
        """Read what lacks; False when nothing does.  Problem COSTLY beyond the limits, and when the store fails."""
        lacking, self._lacking = self._lacking, {}
        if len(self._found) + len(lacking) > MOST_REQUESTS:
            raise Problem(Category.COSTLY, f"the query needs more than {MOST_REQUESTS} reads and searches", "query")
        for path, query in lacking:
            try:
                answer = await perform(self._request(path, query))
            except Problem as problem:
                if problem.rendering.http_status >= 500:
                    raise
                self._found[path, query] = problem
                continue
            self.about += answer.about
            if len(self.about) > MOST_RESOURCES:
                raise Problem(Category.COSTLY, f"the query reads more than {MOST_RESOURCES} resources", "query")
            body = redact_body(answer.body)  # before filters and FHIRPath can tell of a secret
            self._found[path, query] = await run_by_size(len(body), run_in_thread, partial(loads, body))
        return bool(lacking)

    def _request(self, path: tuple[str, ...], query: tuple[tuple[str, str], ...]) -> Request:
        """The request of the caller for this; a parameter that is not supported fails it."""
        headers = {"prefer": "handling=strict"}
        return replace(self.request, method="GET", path=path, query=query, headers=headers, body=b"", draft=None)


def cursor_of(bundle: Json, relation: str) -> str | None:
    """The search behind a link of a page as an opaque text; None when there is no such link."""
    for link in bundle.get("link", ()):
        if link["relation"] == relation:
            return base64.urlsafe_b64encode(urlsplit(link["url"]).query.encode()).decode().rstrip("=")
    return None


def search_of(cursor: str) -> list[tuple[str, str]]:
    """The parameters of the search in a cursor.  Problem VALUE for another text."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as refused:
        raise Problem(Category.VALUE, "this is not a cursor of this server", "_cursor") from refused
    if not text:
        raise Problem(Category.VALUE, "the cursor is empty", "_cursor")
    return parameters(text, "_cursor")


def connection_of(bundle: Json) -> dict[str, Any]:
    """A page of a search as GraphQL's connection."""
    matches = matches_of(bundle)
    return {
        "count": bundle.get("total"),
        "pagesize": len(matches),
        "first": cursor_of(bundle, "first"),
        "previous": cursor_of(bundle, "previous"),
        "next": cursor_of(bundle, "next"),
        "last": cursor_of(bundle, "last"),
        "edges": [{**one.get("search", {}), "resource": one["resource"]} for one in matches],
    }


def matches_of(bundle: Json) -> list[Json]:
    """The entries of a page that are matches."""
    return [one for one in bundle.get("entry", ()) if one.get("search", {}).get("mode", "match") == "match"]
