"""The operator API on HTTP: `/admin/*`, a Klein application around functions on values.

What arrives: a request with the admin token, when one is configured (compared in constant time, never logged).  What
leaves: JSON, also for every refusal, in one shape; `X-Correlation-Id` as the caller sent it, or a fresh one.  A store
that cannot be reached is 503.  Mount `resource` at `/admin`.

Source: interface specification "Message administration", "Admin API", "Correlation", "Errors"; decisions section 3.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hmac import compare_digest
from typing import Any

from klein import Klein
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.iweb import IRequest
from twisted.web.resource import IResource
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from ipf.errors import Category, Problem
from ipf.ports import Answer, Bell, CodeQueue, Inbox, MappingDesk, Request
from ipf.telemetry import correlation
from ipf.wire import admin_mapping as mapping
from ipf.wire import admin_messages as messages
from ipf.wire import admin_unmapped as unmapped

log = Logger()

Work = Callable[[Request], Awaitable[Answer]]
Run = Callable[[IRequest, Work], Awaitable[bytes]]


def resource(
    inbox: Inbox, bell: Bell, token: str | None, codes: CodeQueue | None = None, desk: MappingDesk | None = None
) -> IResource:
    """The resource to mount at `/admin`.  `token` None or empty: no authentication.

    `codes` and `desk`: without them there is nothing at their paths.
    """
    gate = Gate(token)

    async def run(web: IRequest, work: Work) -> bytes:
        request = read_request(web)
        return write_answer(web, request, await respond(gate, request, work))

    app = _application(run, inbox, bell)
    if codes is not None:
        _code_routes(app, run, codes, bell)
    if desk is not None:
        _mapping_routes(app, run, desk, bell)
    return app.resource()


class Gate:
    """The one shared admin token."""

    def __init__(self, token: str | None) -> None:
        self._expected = token.encode("utf-8") if token else None

    def admits(self, authorization: str | None) -> bool:
        """Whether the value of the Authorization header may pass."""
        if self._expected is None:
            return True
        scheme, _, given = (authorization or "").strip().partition(" ")
        same = compare_digest(given.strip().encode("utf-8", "surrogateescape"), self._expected)
        return same and scheme.lower() == "bearer"


async def respond(gate: Gate, request: Request, work: Work) -> Answer:
    """Let `work` answer if the gate admits the request; every failure becomes an answer here."""
    try:
        if not gate.admits(request.headers.get("authorization")):
            refused = Problem(Category.UNAUTHORIZED, "a valid admin token is required")
            return messages.refusal(refused, ("WWW-Authenticate", "Bearer"))
        return await work(request)
    except messages.InvalidStatus as problem:
        return messages.invalid_status(problem)
    except Problem as problem:
        return messages.refusal(problem)
    except Exception:
        log.failure("an admin request failed", correlation_id=request.correlation_id)
        return messages.refusal(Problem(Category.INTERNAL, "the request could not be completed; the log says why"))


def _application(run: Run, inbox: Inbox, bell: Bell) -> Klein:
    app = Klein()

    @app.route("/messages", methods=["GET"])
    async def list_messages(web: IRequest) -> bytes:
        return await run(web, lambda request: messages.list_messages(inbox, request))

    @app.route("/messages/<message_id>", methods=["GET"])
    async def get_message(web: IRequest, message_id: str) -> bytes:
        return await run(web, lambda _: messages.get_message(inbox, message_id))

    @app.route("/messages/<message_id>", methods=["DELETE"])
    async def delete_message(web: IRequest, message_id: str) -> bytes:
        return await run(web, lambda _: messages.delete_message(inbox, message_id))

    @app.route("/messages/<message_id>/retry", methods=["POST"])
    async def retry_message(web: IRequest, message_id: str) -> bytes:
        return await run(web, lambda _: messages.retry_message(inbox, bell, message_id))

    @app.handle_errors(HTTPException)  # type: ignore[arg-type]  # Klein's hint fits methods only
    async def refuse(web: IRequest, failure: Failure) -> bytes:
        async def refusal(_: Request) -> Answer:
            return _no_route(failure.value)

        return await run(web, refusal)

    return app


def _code_routes(app: Klein, run: Run, codes: CodeQueue, bell: Bell) -> None:
    """Unmapped codes, operators' answers, further conversions."""

    @app.route("/unmapped-codes", methods=["GET"])
    async def list_codes(web: IRequest) -> bytes:
        return await run(web, lambda request: unmapped.list_codes(codes, request))

    @app.route("/unmapped-codes/<number>", methods=["GET"])
    async def get_code(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: unmapped.get_code(codes, number))

    @app.route("/unmapped-codes/<number>/map", methods=["POST"])
    async def map_code(web: IRequest, number: str) -> bytes:
        return await run(web, lambda request: unmapped.map_code(codes, bell, number, request))

    @app.route("/unmapped-codes/<number>/requeue", methods=["POST"])
    async def requeue_code(web: IRequest, number: str) -> bytes:
        return await run(web, lambda request: unmapped.requeue_code(codes, bell, number, request))

    @app.route("/code-overrides", methods=["GET"])
    async def list_overrides(web: IRequest) -> bytes:
        return await run(web, lambda request: unmapped.list_overrides(codes, request))

    @app.route("/code-overrides/<number>", methods=["GET"])
    async def get_override(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: unmapped.get_override(codes, number))

    @app.route("/code-overrides/<number>", methods=["DELETE"])
    async def delete_override(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: unmapped.delete_override(codes, bell, number))

    @app.route("/conversions", methods=["GET"])
    async def list_conversions(web: IRequest) -> bytes:
        return await run(web, lambda request: unmapped.list_conversions(codes, request))

    @app.route("/conversions/<number>/retry", methods=["POST"])
    async def retry_conversion(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: unmapped.retry_conversion(codes, bell, number))

    @app.route("/conversions/<number>", methods=["DELETE"])
    async def delete_conversion(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: unmapped.delete_conversion(codes, number))


def _mapping_routes(app: Klein, run: Run, desk: MappingDesk, bell: Bell) -> None:
    """Installed maps, reload, trace."""

    @app.route("/mapping", methods=["GET"])
    async def describe(web: IRequest) -> bytes:
        return await run(web, lambda _: mapping.describe(desk))

    @app.route("/mapping/reload", methods=["POST"])
    async def reload(web: IRequest) -> bytes:
        return await run(web, lambda _: mapping.reload(desk, bell))

    @app.route("/messages/<message_id>/trace", methods=["GET"])
    async def trace(web: IRequest, message_id: str) -> bytes:
        return await run(web, lambda _: mapping.trace(desk, message_id))


def _no_route(error: object) -> Answer:
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(set(error.valid_methods or ()) - {"HEAD"}))
        problem = Problem(Category.METHOD, f"this path answers {allowed}")
        return messages.refusal(problem, ("Allow", allowed))
    return messages.refusal(Problem(Category.NOT_FOUND, "there is nothing at this path"))


def read_request(web: Any) -> Request:
    """The values of a request; query values are percent-decoded, what is no UTF-8 is replaced."""
    headers = {
        name.decode("latin-1").lower(): values[0].decode("utf-8", "surrogateescape")
        for name, values in web.requestHeaders.getAllRawHeaders()
    }
    query = tuple(
        (name.decode("utf-8", "replace"), value.decode("utf-8", "replace"))
        for name, values in web.args.items()
        for value in values
    )
    path = tuple(segment.decode("utf-8", "replace") for segment in web.prepath + web.postpath)
    return Request(
        method=web.method.decode("latin-1"),
        path=path,
        query=query,
        headers=headers,
        body=web.content.read() if web.content is not None else b"",
        base_url="",
        correlation_id=correlation.accept(headers.get("x-correlation-id")),
    )


def write_answer(web: Any, request: Request, answer: Answer) -> bytes:
    """Set status and headers on the socket's request; returns the body."""
    web.setResponseCode(answer.status)
    if answer.content_type:
        web.setHeader("Content-Type", answer.content_type)
    else:
        web.responseHeaders.removeHeader("Content-Type")
    web.setHeader(correlation.HEADER, request.correlation_id)
    web.setHeader("Cache-Control", "no-store")
    for name, value in answer.headers:
        web.setHeader(name, value)
    web.setHeader("Content-Length", str(len(answer.body)))
    return answer.body
