"""What every page has: the session, the role, the token against forged requests, the layout, and how errors look.

A page is a function on a `View` that returns an `Answer`; the router is a table of `Route`s.  A person without a
session is sent to the sign-in and comes back to the page.  A person without the role gets a page that names the role.
What the engine refuses, and that it cannot be reached, are pages of their own.

Source: interface specification "Operator UI"; https://www.w3.org/TR/CSP3/
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from ipf.config.console import ConsoleSettings
from ipf.console.content.elements import references_of
from ipf.console.html.rendering import Renderer
from ipf.console.html.static import StaticFiles
from ipf.console.html.texts import language_of
from ipf.console.masking.answers import Mask, Masked, admin_mask, fhir_mask
from ipf.console.people.sessions import Session, Sessions, cookie_name, cookies_of, is_genuine
from ipf.console.people.sign_in import SignIn
from ipf.console.serving.backend import Backend, BackendDown, BackendRefused
from ipf.errors import Category, Problem
from ipf.ports import Answer, Request
from ipf.wire.admin.route import Role, WhenMasked
from ipf.wire.client.remote_service import Response
from ipf.wire.reference.table import route_for

HTML = "text/html; charset=utf-8"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = (("Content-Security-Policy", POLICY), ("Cache-Control", "no-store"))
_SAFE = ("GET", "HEAD")
_DEFINITIONS = ("/metadata", "/SubscriptionTopic")
"""Resources of the FHIR API that are about no patient."""
PLACES = {
    "group_in": ("", "messages", "interfaces", "dead-letters", "rejects", "send"),
    "group_decide": ("conflicts", "codes", "unread", "workbench"),
    "group_out": ("browse", "subscriptions", "topics"),
    "group_run": ("jobs", "audit", "profiles", "system", "reference"),
}
"""The areas of the navigation, in groups; texts `nav.NAME`."""
CSRF_FIELD, CSRF_HEADER = "csrf", "x-csrf-token"


class NotAllowed(Exception):
    """The role may not use this operation of the engine.  The text names the role that may; "" = nobody."""


@dataclass(frozen=True, slots=True)
class Console:
    """The parts of the console that pages use."""

    settings: ConsoleSettings
    backend: Backend
    sessions: Sessions
    sign_in: SignIn
    renderer: Renderer
    static: StaticFiles
    is_sandbox: Callable[[], bool]
    """Whether nobody signs in: no provider is set, the listener is on loopback, and the admin API asks for no token."""


@dataclass(slots=True)
class View:
    """One request of a signed-in person."""

    console: Console
    request: Request
    session: Session
    language: str
    parts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of the URL; the last of each name, without blank ones."""
        return {name: value.strip() for name, value in self.request.query if value.strip()}

    @property
    def form(self) -> dict[str, str]:
        """The fields of a form."""
        return form_of(self.request)

    @property
    def is_part(self) -> bool:
        """Whether a script of the page asks for a part of it."""
        return self.request.headers.get("hx-request") == "true"

    def may(self, role: Role) -> bool:
        """Whether the person has this role."""
        return self.session.role >= role

    @property
    def is_masked(self) -> bool:
        """Whether the person sees patient data masked."""
        return is_masked(self.console, self.session)

    async def get(self, path: str, parameters: Mapping[str, Any] | None = None) -> Any:
        """GET from the engine, as this person; masked for his role."""
        mask = self._mask("GET", path, parameters)
        return mask(await self.console.backend.get(path, parameters, self.session.actor))

    async def shared(self, path: str, parameters: Mapping[str, Any] | None = None, seconds: float = 1.0) -> Any:
        """What all pages that poll share, at most so many seconds old."""
        mask = self._mask("GET", path, parameters)
        return mask(await self.console.backend.shared(path, parameters, seconds))

    async def send(self, method: str, path: str, body: Any = None) -> Any:
        """Change something at the engine, as this person."""
        mask = self._mask(method, path, None)
        found = await self.console.backend.send(method, path, body, self.session.actor)
        return None if found is None else mask(found)

    async def upload(self, path: str, content_type: str, body: bytes | None = None, **parameters: str) -> Response:
        """POST a body, or that of this request, to the engine, as this person; the answer, whatever it is."""
        self._permit("POST", path)
        backend, sent = self.console.backend, self.request.body if body is None else body
        return await backend.call("POST", path, parameters, sent, self.session.actor, content_type)

    async def fhir(self, path: str, query: Sequence[tuple[str, str]]) -> Any:
        """GET from the FHIR API of the engine, with the access token of the person; masked for his role.

        The audit trail of the engine names what he is shown, before he is shown it.
        """
        return await self._looked_at(path, query, None)

    async def operation(self, path: str, parameters: Mapping[str, Any]) -> Any:
        """POST Parameters to an operation of the FHIR API, with the access token of the person."""
        return await self._looked_at(path, [], parameters)

    async def _looked_at(self, path: str, query: Sequence[tuple[str, str]], body: Mapping[str, Any] | None) -> Any:
        mask = fhir_mask(path, query) if self.is_masked else _unmasked
        found = await self.console.backend.fhir(path, query, self.session.access_token, body)
        references = references_of(found)
        if references and not path.startswith(_DEFINITIONS):
            page = "/" + "/".join(quote(part, safe="$") for part in self.request.path)
            shown = {"page": page.replace("%", "_")[:200], "references": references}
            await self.console.backend.send("POST", "/admin/audit/views", shown, self.session.actor)
        return mask(found)

    def _permit(self, method: str, path: str) -> None:
        """NotAllowed, or Masked, unless the table of rights lets this role do it."""
        right = route_for(method, path.removeprefix("/admin").partition("?")[0])
        if right is None or not self.may(right.role):
            raise NotAllowed(right.role.name.lower() if right else "")
        if right.masked is WhenMasked.NO and self.is_masked:
            raise Masked(right.path)

    def _mask(self, method: str, path: str, parameters: Mapping[str, Any] | None) -> Mask:
        self._permit(method, path)
        given = [name for name, value in (parameters or {}).items() if value not in (None, "")]
        return admin_mask(path, given) if self.is_masked else _unmasked

    def address(self, path: str, query: Sequence[tuple[str, str]]) -> str:
        """A URL of the console."""
        return f"{path}?{urlencode(query)}" if query else path

    def page(self, template: str, status: int = 200, **values: Any) -> Answer:
        """A page of the console."""
        return render(self.console, self.request, template, self.language, self.session, status, values)

    def link(self, to: str = "", **changed: Any) -> str:
        """The URL of this page, or of the part `to` of it, with other parameters; None takes one away."""
        given = {**self.parameters, **changed}
        query = urlencode({name: value for name, value in given.items() if value not in (None, "")})
        path = "/" + "/".join(quote(part, safe="") for part in (*self.request.path, *filter(None, (to,))))
        return f"{path}?{query}" if query else path


def _unmasked(body: Any) -> Any:
    return body


def is_masked(console: Console, session: Session) -> bool:
    """Whether the role of a session sees patient data masked."""
    level = console.settings.masking
    return level != "none" and session.role <= Role[level.upper()]


Page = Callable[[View], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the router.  `path`: below the area, as werkzeug has it (`/<int:id>/retry`)."""

    method: str
    path: str
    role: Role
    page: Page


def render(
    console: Console,
    request: Request,
    template: str,
    language: str,
    session: Session | None,
    status: int,
    values: Mapping[str, Any],
) -> Answer:
    """A page with the layout."""
    shown = {
        "session": session,
        "role": session.role if session else 0,
        "Role": Role,
        "places": PLACES,
        "csrf": session.csrf if session else "",
        "area": request.path[0] if request.path else "",
        "is_sandbox": console.is_sandbox(),
        "is_masked": session is not None and is_masked(console, session),
        "theme": cookies_of(request.headers).get("ipf-theme", "auto"),
        "zone": cookies_of(request.headers).get("ipf-zone", "auto"),
        "view_url": url_of(request),
        "pulse": console.backend.pulse,
        **values,
    }
    return Answer(status, console.renderer.page(template, language, shown), _HEADERS, HTML)


async def answer(console: Console, route: Route, request: Request, parts: Mapping[str, Any]) -> Answer:
    """The answer of a route."""
    language = language_for(request.headers)
    session = session_of(console, request.headers, request.base_url)
    if session is None:
        return _to_sign_in(console, request, language)
    view = View(console, request, session, language, parts)
    if request.method not in _SAFE and not is_genuine_write(request, session):
        return problem_page(view, 403, "forged")
    if not view.may(route.role):
        return problem_page(view, 403, "role", route.role.name.lower())
    try:
        return await route.page(view)
    except Masked as masked:
        return problem_page(view, 403, "masked", str(masked))
    except NotAllowed as refused:
        return problem_page(view, 403, "role", str(refused))
    except BackendRefused as refused:
        status = refused.status if refused.status in (400, 404, 409, 413, 422) else 502
        return problem_page(view, status, "missing" if status == 404 else "refused", str(refused))
    except BackendDown as down:
        return down_page(view, down)


def problem_page(view: View, status: int, name: str, detail: str = "", since: datetime | None = None) -> Answer:
    """A page that says what is wrong: the texts `problem.NAME`, and the words of the engine."""
    texts = {"title": f"problem.{name}", "text": f"problem.{name}_text"}
    return view.page("problem.html", status, **texts, detail=detail, since=since)


def down_page(view: View, down: BackendDown) -> Answer:
    """The engine did not answer: since when, or that it answers other requests; of a write, that it may be done."""
    if view.request.method not in _SAFE:
        return problem_page(view, 502, "undone", str(down), down.since)
    return problem_page(view, 502, "slow" if down.since is None else "down", str(down), down.since)


def refuse(problem: Problem) -> Answer:
    """A Problem outside a page: plain text, since there may be no session."""
    return Answer(problem.rendering.http_status, f"{problem.text}\n".encode(), _HEADERS, "text/plain; charset=utf-8")


def session_of(console: Console, headers: Mapping[str, str], address: str, *, is_use: bool = True) -> Session | None:
    """The session of the cookie.  `address`: as the browser addressed the console.  `is_use`: it stays open for it."""
    is_tls = (console.settings.base_url or address).startswith("https:")
    found = cookies_of(headers).get(cookie_name(is_tls))
    return console.sessions.find(found, is_use=is_use) if found else None


def is_secure(console: Console, request: Request) -> bool:
    """Whether the browser uses TLS, perhaps to a proxy in front of the console."""
    return (console.settings.base_url or request.base_url).startswith("https:")


def base_url(console: Console, request: Request) -> str:
    """The address of the console in the browser, without a slash at the end."""
    return (console.settings.base_url or request.base_url).rstrip("/")


def language_for(headers: Mapping[str, str]) -> str:
    """The language of a request."""
    return language_of(headers.get("accept-language", ""), cookies_of(headers).get("ipf-language", ""))


def form_of(request: Request) -> dict[str, str]:
    """The fields of a form.  Problem VALUE when it cannot be read."""
    try:
        return dict(parse_qsl(request.body.decode(), keep_blank_values=True, max_num_fields=1000))
    except ValueError:
        raise Problem(Category.VALUE, "the form cannot be read") from None


def url_of(request: Request) -> str:
    """Path and query of a request, to come back to."""
    path = "/" + "/".join(quote(part, safe="") for part in request.path)
    return f"{path}?{urlencode(request.query)}" if request.query else path


def safe_target(target: str) -> str:
    """A page of this console; anything else becomes the first page."""
    return target if target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable() else "/"


def redirect(url: str, *headers: tuple[str, str]) -> Answer:
    """303 See Other."""
    return Answer(303, b"", [("Location", url), *headers, *_HEADERS])


def is_genuine_write(request: Request, session: Session) -> bool:
    """Whether a request that changes something carries the token of its session, in a header or in the form."""
    given = request.headers.get(CSRF_HEADER)
    if given is None and request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        given = form_of(request).get(CSRF_FIELD)
    return given is not None and is_genuine(session, given)


def _to_sign_in(console: Console, request: Request, language: str) -> Answer:
    """There is no session, or it has ended: to the sign-in, and back to the page.  What would change something is not
    done, and a page says so."""
    if request.headers.get("hx-request") == "true":  # a script asks for a part of the page: the whole page goes
        again = _sign_in_url(_own_path(request.headers.get("hx-current-url", "")))
        return Answer(401, b"", [("HX-Redirect", again), *_HEADERS])
    if request.method in _SAFE:
        return redirect(_sign_in_url(url_of(request)))
    values = {"title": "problem.ended", "text": "problem.ended_text", "detail": "",
              "since": None, "again": _sign_in_url(_own_path(request.headers.get("referer", "")))}  # fmt: skip
    return render(console, request, "problem.html", language, None, 401, values)


def _sign_in_url(target: str) -> str:
    return "/sign-in?" + urlencode({"to": target})


def _own_path(url: str) -> str:
    """Path and query of a URL of the console; `/` for what is none."""
    try:
        found = urlsplit(url)
    except ValueError:
        return "/"
    return f"{found.path}?{found.query}" if found.query else found.path or "/"
