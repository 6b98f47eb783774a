"""The operator API on HTTP: `/admin/*`, a Klein application around functions on values.

What arrives: a request with the admin token, when one is configured, or with the read-only one (compared in constant
time, never logged).  What leaves: JSON, also for every refusal, in one shape; `X-Correlation-Id` as the caller sent it,
or a fresh one.  A store that cannot be reached is 503.  Mount `resource` at `/admin`.

Source: interface specification "Message administration", "Admin API", "Correlation", "Errors"; decisions section 3.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest
from typing import Any

from klein import Klein
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.iweb import IRequest
from twisted.web.resource import IResource
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from ipf.errors import Category, Problem
from ipf.ports import Answer, CodeQueue, Inbox, MappingAdmin, Notifier, Request
from ipf.telemetry import correlation
from ipf.wire.admin import mapping, messages, unmapped
from ipf.wire.admin.audit import Watch
from ipf.wire.admin.subscriptions import SubscriptionAdmin
from ipf.wire.admin.subscriptions import routes as subscription_routes

log = Logger()

Work = Callable[[Request], Awaitable[Answer]]
Run = Callable[[IRequest, Work], Awaitable[bytes]]

Routes = Callable[[Klein, Run], None]
"""Adds further paths to the application."""

OPEN_PATHS = frozenset({("admin", "observe", "openapi.json"), ("admin", "openapi.json")})
_READS = frozenset({"GET", "HEAD"})


def resource(
    inbox: Inbox,
    notifier: Notifier,
    gate: Gate,
    codes: CodeQueue | None = None,
    desk: MappingAdmin | None = None,
    subscriptions: SubscriptionAdmin | None = None,
    *,
    more: Sequence[Routes] = (),
    watch: Watch | None = None,
) -> IResource:
    """The resource to mount at `/admin`.

    `codes`, `desk`, `subscriptions`: without them there is nothing at their paths.
    `more`: further paths.  `watch`: told of every request, for the audit trail.
    """

    async def answer_to(request: Request, work: Work) -> Answer:
        began = datetime.now(UTC)
        answer = await respond(gate, request, work)
        if watch is not None:
            watch(request, answer, began)
        return answer

    async def run(web: IRequest, work: Work) -> bytes:
        request = read_request(web)
        answering = answer_to(request, work)
        answer = await (answering if request.method in _READS else to_its_end(answering))
        return write_answer(web, request, answer)

    app = _application(run, inbox, notifier)
    if codes is not None:
        _code_routes(app, run, codes, notifier)
    if desk is not None:
        _mapping_routes(app, run, desk, notifier)
    if subscriptions is not None:
        subscription_routes(app, run, subscriptions)
    for add in more:
        add(app, run)
    return app.resource()


class Gate:
    """The shared admin token, and a second one that may only read.  Without the first everybody may do everything."""

    def __init__(self, token: str | None, read_token: str | None = None) -> None:
        self._expected = _digest(token) if token else None
        self._reading = _digest(read_token) if token and read_token else None

    def check(self, request: Request) -> None:
        """Problem UNAUTHORIZED, or FORBIDDEN for a change with the read-only token."""
        if self._expected is None or request.path in OPEN_PATHS:
            return
        who = self.who(request)
        if not who:
            raise Problem(Category.UNAUTHORIZED, "a valid admin token is required")
        if who != "admin" and request.method not in _READS:
            raise Problem(Category.FORBIDDEN, "this token may only read")

    def who(self, request: Request) -> str:
        """`admin`, or `admin-read`, by the token that was sent; "" for anybody else, and while none is asked for."""
        if self._expected is None:
            return ""
        scheme, _, given = request.headers.get("authorization", "").strip().partition(" ")
        sent = _digest(given.strip())
        is_full, is_reading = compare_digest(sent, self._expected), compare_digest(sent, self._reading or b"")
        if scheme.lower() != "bearer":
            return ""
        return "admin" if is_full else "admin-read" if is_reading else ""


def _digest(token: str) -> bytes:
    """Of equal length for all tokens, so that the comparison does not tell how long the right one is."""
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


async def respond(gate: Gate, request: Request, work: Work) -> Answer:
    """Let `work` answer if the gate admits the request; every failure becomes an answer here."""
    try:
        gate.check(request)
        return await work(request)
    except messages.InvalidStatus as problem:
        return messages.invalid_status(problem)
    except Problem as problem:
        challenge = [("WWW-Authenticate", "Bearer")] if problem.category is Category.UNAUTHORIZED else []
        return messages.refusal(problem, *challenge)
    except CancelledError:
        raise  # the caller has hung up
    except Exception:
        log.failure("an admin request failed", correlation_id=request.correlation_id)
        return messages.refusal(Problem(Category.INTERNAL, "the request could not be completed; the log says why"))


def to_its_end(work: Coroutine[Any, Any, Answer]) -> Deferred[Answer]:
    """The answer of `work`, which goes on when nobody waits any more: a change is not left half done by a hang-up."""
    waiting: Deferred[Answer] = Deferred()  # without a canceller: what comes after the waiting is dropped
    Deferred.fromCoroutine(work).addCallbacks(waiting.callback, waiting.errback)
    return waiting


def _application(run: Run, inbox: Inbox, notifier: Notifier) -> Klein:
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
        return await run(web, lambda _: messages.retry_message(inbox, notifier, message_id))

    @app.handle_errors(HTTPException)  # type: ignore[arg-type]  # Klein's hint fits methods only
    async def refuse(web: IRequest, failure: Failure) -> bytes:
        async def refusal(_: Request) -> Answer:
            return _no_route(failure.value)

        return await run(web, refusal)

    return app


def _code_routes(app: Klein, run: Run, codes: CodeQueue, notifier: Notifier) -> None:
    """Unmapped codes, operators' answers, further conversions."""

    @app.route("/unmapped-codes", methods=["GET"])
    async def list_codes(web: IRequest) -> bytes:
        return await run(web, lambda request: unmapped.list_codes(codes, request))

    @app.route("/unmapped-codes/<number>", methods=["GET"])
    async def get_code(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: unmapped.get_code(codes, number))

    @app.route("/unmapped-codes/<number>/map", methods=["POST"])
    async def map_code(web: IRequest, number: str) -> bytes:
        return await run(web, lambda request: unmapped.map_code(codes, notifier, number, request))

    @app.route("/unmapped-codes/<number>/requeue", methods=["POST"])
    async def requeue_code(web: IRequest, number: str) -> bytes:
        return await run(web, lambda request: unmapped.requeue_code(codes, notifier, number, request))

    @app.route("/code-overrides", methods=["GET"])
    async def list_overrides(web: IRequest) -> bytes:
        return await run(web, lambda request: unmapped.list_overrides(codes, request))

    @app.route("/code-overrides/<number>", methods=["GET"])
    async def get_override(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: unmapped.get_override(codes, number))

    @app.route("/code-overrides/<number>", methods=["DELETE"])
    async def delete_override(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: unmapped.delete_override(codes, notifier, number))

    @app.route("/conversions", methods=["GET"])
    async def list_conversions(web: IRequest) -> bytes:
        return await run(web, lambda request: unmapped.list_conversions(codes, request))

    @app.route("/conversions/<number>/retry", methods=["POST"])
    async def retry_conversion(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: unmapped.retry_conversion(codes, notifier, number))

    @app.route("/conversions/<number>", methods=["DELETE"])
    async def delete_conversion(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: unmapped.delete_conversion(codes, number))


def _mapping_routes(app: Klein, run: Run, desk: MappingAdmin, notifier: Notifier) -> None:
    """Installed maps, reload, trace."""

    @app.route("/mapping", methods=["GET"])
    async def describe(web: IRequest) -> bytes:
        return await run(web, lambda _: mapping.describe(desk))

    @app.route("/mapping/reload", methods=["POST"])
    async def reload(web: IRequest) -> bytes:
        return await run(web, lambda _: mapping.reload(desk, notifier))

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
        correlation_id=correlation.accept(headers.get("x-correlation-id"), headers.get("traceparent")),
        address=getattr(web.getClientAddress(), "host", None) or "",
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
