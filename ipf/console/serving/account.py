"""Sign-in, sign-out, and the choices of a person: language and theme.

Without the variables OIDC_* a page lists those that are missing.  On loopback a sandbox opens then, in which everybody
is an admin without a name, and every page has a banner that says so; not where the console has a token of the admin
API, which it would use for everybody.
"""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode

from twisted.logger import Logger

from ipf.console.html.texts import LANGUAGES
from ipf.console.people.sessions import Session, cookie, cookie_name, cookies_of
from ipf.console.people.sign_in import PENDING_SECONDS, REFUSALS_SECONDS, TooManyRefusals
from ipf.console.serving.web import (
    Console,
    View,
    base_url,
    is_secure,
    language_for,
    redirect,
    render,
    safe_target,
    session_of,
)
from ipf.errors import Problem
from ipf.ports import Answer, Request
from ipf.wire.admin.route import Role

log = Logger()

CALLBACK, BEGUN = "/sign-in/callback", "/sign-in/begun"
_YEAR = 365 * 86_400


async def begin(console: Console, request: Request) -> Answer:
    """`GET /sign-in`: to the provider, or into the sandbox, or the page of missing variables."""
    target = safe_target(dict(request.query).get("to", "/"))
    missing = console.sign_in.missing
    if missing:
        if console.is_sandbox():
            return _signed_in(console, request, console.sessions.begin("sandbox", "sandbox", Role.ADMIN), target)
        return _problem(console, request, "sign_in.missing", ", ".join(missing), 503)
    try:
        begun, url = await console.sign_in.begin(base_url(console, request) + CALLBACK, target)
    except Problem as problem:
        return _problem(console, request, "sign_in.provider", problem.text, 502)
    secure = is_secure(console, request)
    return redirect(url, cookie(_begun_name(secure), begun, secure, seconds=PENDING_SECONDS))


async def finish(console: Console, request: Request) -> Answer:
    """`GET /sign-in/callback`: the browser comes back from the provider."""
    begun = cookies_of(request.headers).get(_begun_name(is_secure(console, request)), "")
    try:
        person, target = await console.sign_in.finish(begun, dict(request.query), request.address)
    except TooManyRefusals as problem:
        log.warn("event=sign_in_limited address={address}", event="sign_in_limited", address=request.address)
        answer = _problem(console, request, "sign_in.refused", problem.text, 429)
        return replace(answer, headers=[*answer.headers, ("Retry-After", str(int(REFUSALS_SECONDS)))])
    except Problem as problem:
        return _problem(console, request, "sign_in.refused", problem.text, problem.rendering.http_status)
    if person.role is None:
        return _problem(console, request, "sign_in.no_role", person.name, 403)
    session = console.sessions.begin(person.id, person.name, person.role, person.id_token, person.access_token)
    return _signed_in(console, request, session, target)


async def begun(console: Console, request: Request) -> Answer:
    """`GET /sign-in/begun`: to the page that was asked for; a page for a client that does not keep cookies.

    Without this step such a client goes from the page to the sign-in and back without end.
    """
    if session_of(console, request.headers, request.base_url) is None:
        return _problem(console, request, "sign_in.no_cookies", "", 403)
    return redirect(safe_target(dict(request.query).get("to", "/")))


async def end(view: View) -> Answer:
    """`POST /sign-out`: ends the session here, then at the provider.

    The page goes there by itself: a redirect would be a form's way to another site, which the content policy forbids.
    """
    console, request, session = view.console, view.request, view.session
    console.sessions.end(session)
    url = await console.sign_in.logout_url(session.id_token, base_url(console, request) + "/signed-out")
    secure = is_secure(console, request)
    gone = cookie(cookie_name(secure), "", secure, seconds=0)
    if url is None:
        return redirect("/signed-out", gone)
    page = render(console, request, "signed_out.html", view.language, None, 200, {"go_to": url})
    return Answer(page.status, page.body, [*page.headers, gone], page.content_type)


async def ended(console: Console, request: Request) -> Answer:
    """`GET /signed-out`."""
    return render(console, request, "signed_out.html", language_for(request.headers), None, 200, {"go_to": None})


async def choose(view: View) -> Answer:
    """`POST /preferences`: language, theme and time zone of this browser."""
    given, secure = view.form, is_secure(view.console, view.request)
    chosen = []
    if given.get("language") in LANGUAGES:
        chosen.append(cookie("ipf-language", given["language"], secure, seconds=_YEAR))
    if given.get("theme") in ("auto", "light", "dark"):
        chosen.append(cookie("ipf-theme", given["theme"], secure, seconds=_YEAR))
    if given.get("zone") in ("auto", "utc"):
        chosen.append(cookie("ipf-zone", given["zone"], secure, seconds=_YEAR))
    return redirect(safe_target(given.get("to", "/")), *chosen)


def _signed_in(console: Console, request: Request, session: Session, target: str) -> Answer:
    secure = is_secure(console, request)
    return redirect(
        f"{BEGUN}?{urlencode({'to': target})}",
        cookie(cookie_name(secure), session.id, secure),
        cookie(_begun_name(secure), "", secure, seconds=0),
    )


def _begun_name(is_secure: bool) -> str:
    """The name of the cookie of a begun sign-in."""
    return cookie_name(is_secure) + "-sign-in"


def _problem(console: Console, request: Request, key: str, detail: str, status: int) -> Answer:
    values = {"key": key, "detail": detail, "again": "/sign-in?" + urlencode({"to": "/"})}
    return render(console, request, "sign_in_problem.html", language_for(request.headers), None, status, values)
