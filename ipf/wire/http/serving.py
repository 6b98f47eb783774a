"""Klein requests to `ports.Request` values, and `ports.Answer` values to Klein: one function for every HTTP surface.

`serve` reads the request, awaits the handler, and writes its answer.  Klein cancels a route's Deferred when the client
hangs up, and a cancelled query leaves a pooled database connection unusable.  The handler is therefore shielded: it
runs to its end, and only the answer is dropped.  Every answer carries `X-Correlation-Id`: the caller's when it is a
UUID, else a fresh one; and `X-Request-Id`: the caller's, else the correlation id.  An unforeseen exception is logged
with the correlation id and answered 500 without a trace.

Source: interface specification "Correlation", "Errors"; RFC 9110.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import orjson
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.web.http import NO_BODY_CODES

from ipf.errors import Category, Problem
from ipf.ports import Answer, Handler, Request
from ipf.telemetry import correlation
from ipf.wire.http.limits import SINGLE_HEADERS
from ipf.wire.http.routes import noted_route

log = Logger()

T = TypeVar("T")

JSON = "application/json"
MAX_PARAMETERS = 500
_HOST = re.compile(r"[A-Za-z0-9.\-_\[\]:]{1,255}")

Refuse = Callable[[Problem], Answer]
"""Renders a Problem in the form of one HTTP surface: an OperationOutcome for FHIR (`rest/http/outcome.py`)."""


def serve(
    web: Any, handle: Handler, refuse: Refuse, *, below: int = 0, base_url: str | None = None, errors: str = "strict"
) -> Deferred[bytes]:
    """Answer one request; the value of a Klein route.

    `below`: number of leading path segments that `Request.path` leaves out (the mount).  `base_url`: start of links and
    locations; None = as the caller addressed the server.  `errors`: how parameters that are no UTF-8 are decoded.
    """

    async def answered() -> bytes:
        correlation_id, request_id = correlation.of(web.getHeader), correlation.request_id_of(web.getHeader)
        try:
            answer = await handle(read_request(web, correlation_id, request_id, below, base_url, errors))
        except Problem as problem:
            answer = refuse(problem)
        except Exception:
            log.failure("event=request_failed correlation_id={correlation_id}", correlation_id=correlation_id)
            answer = refuse(Problem(Category.INTERNAL, f"internal error; correlation id {correlation_id}"))
        return write_answer(web, answer, correlation_id, request_id)

    return shielded(answered())


def shielded(work: Coroutine[Any, Any, T]) -> Deferred[T]:
    """The result of `work`.  Cancelling it stops the waiting only; `work` runs to its end."""
    waiting: Deferred[T] = Deferred()  # without a canceller: the late result is dropped
    Deferred.fromCoroutine(work).addCallbacks(waiting.callback, waiting.errback)
    return waiting


def read_request(
    web: Any, correlation_id: str, request_id: str, below: int, base_url: str | None, errors: str
) -> Request:
    """The request as a value; trailing slashes are ignored.  Problem VALUE when the URL cannot be read."""
    headers = header_fields(web.requestHeaders.getAllRawHeaders())
    segments = [*web.prepath, *web.postpath]
    try:
        path = [segment.decode() for segment in segments[below:]]
        query = parameters(web.uri.partition(b"?")[2].decode("ascii"), errors)
    except ValueError as error:
        raise unreadable_url() from error
    while path and not path[-1]:
        path.pop()
    return Request(
        method=web.method.decode("latin-1"),
        path=tuple(path),
        query=query,
        headers=headers,
        body=web.content.read(),
        base_url=base_url or base_url_of(web, headers.get("host", ""), segments[:below]),
        correlation_id=correlation_id,
        address=getattr(web.getClientAddress(), "host", None) or "",
        request_id=request_id,
        route=noted_route(web),
    )


def write_answer(web: Any, answer: Answer, correlation_id: str, request_id: str = "") -> bytes:
    """Set status and headers of an answer; returns the body.  Twisted leaves the body out for HEAD, 204 and 304."""
    web.setResponseCode(answer.status)
    headers = web.responseHeaders
    headers.setRawHeaders(correlation.HEADER, [correlation_id])
    headers.setRawHeaders(correlation.REQUEST_ID, [request_id or correlation_id])
    for name, value in answer.headers:
        if name.lower() in SINGLE_HEADERS:
            headers.removeHeader(name)
        headers.addRawHeader(name, value)
    if answer.status not in NO_BODY_CODES:
        headers.setRawHeaders("Content-Length", [str(len(answer.body))])
        if answer.body:
            headers.setRawHeaders("Content-Type", [answer.content_type])
    return answer.body


def refusal(problem: Problem, *headers: tuple[str, str]) -> Answer:
    """The error body of the engine: `{"error", "message"}` (decisions section 3)."""
    if problem.category is Category.UNAUTHORIZED:
        headers = (*headers, ("WWW-Authenticate", "Bearer"))
    shown = problem.rendering
    body = orjson.dumps({"error": shown.admin_code, "message": str(problem)})
    return Answer(shown.http_status, body, headers, JSON)


def header_fields(headers: Iterable[tuple[bytes, Sequence[bytes]]]) -> dict[str, str]:
    """Headers by their names in lower case; repeated ones joined (RFC 9110 section 5.3)."""
    return {name.decode("latin-1").lower(): b", ".join(values).decode("latin-1") for name, values in headers}


def parameters(query: str, errors: str = "strict") -> tuple[tuple[str, str], ...]:
    """The parameters of a URL, decoded, in order.  ValueError when they are no UTF-8 or too many."""
    return tuple(parse_qsl(query, keep_blank_values=True, errors=errors, max_num_fields=MAX_PARAMETERS))


def unreadable_url() -> Problem:
    """The refusal of a URL that cannot be read."""
    return Problem(Category.VALUE, "the URL cannot be read")


def base_url_of(web: Any, host: str, prefix: Sequence[bytes]) -> str:
    """The URL of `prefix` as the caller knows it.  A Host that is missing or malformed gives our own address."""
    if not _HOST.fullmatch(host):
        here = web.getHost()
        host = f"{getattr(here, 'host', 'localhost')}:{getattr(here, 'port', 80)}"
    path = "/".join(segment.decode("latin-1") for segment in prefix)
    return f"{'https' if web.isSecure() else 'http'}://{host}/{path}".rstrip("/")
