"""The sessions of signed-in people, on the server: a browser holds a random id in a cookie, and nothing else.

The cookie is http-only, same-site and, over TLS, secure with the prefix `__Host-`.  A session ends after a time without
a request, after a number of hours in any case, and with the process: then everybody signs in again.  Each session has a
token against forged requests (CSRF), which every form and every script request carries.

Source: https://cheatsheetseries.owasp.org/cheatsheets/Session_Management_Cheat_Sheet.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie
from secrets import token_urlsafe

from ipf.config.console import ConsoleSettings
from ipf.wire.admin.route import Role

MOST, MOST_OF_PERSON = 1000, 50
"""Sessions at once, and of one person; the one that was idle longest makes room."""

Clock = Callable[[], float]


@dataclass(slots=True)
class Session:
    """One signed-in person in one browser.  `id_token`: for the logout at the provider;
    `access_token`: for `/fhir`; both "" in the sandbox."""

    id: str
    person: str
    name: str
    role: Role
    csrf: str
    began: float
    used: float
    id_token: str = field(default="", repr=False)
    access_token: str = field(default="", repr=False)

    @property
    def actor(self) -> str:
        """The person as the audit trail of the engine names him: with the id of the provider, which is unique."""
        return self.person if self.name in ("", self.person) else f"{self.name} ({self.person})"


class Sessions:
    """All sessions of this process.  `now`: seconds."""

    def __init__(self, settings: ConsoleSettings, now: Clock) -> None:
        self._idle = settings.idle_minutes * 60.0
        self._longest = settings.session_hours * 3600.0
        self._now = now
        self._known: dict[str, Session] = {}

    def begin(self, person: str, name: str, role: Role, id_token: str = "", access_token: str = "") -> Session:
        """A session with a new id: an id from before the sign-in is never taken over."""
        now = self._now()
        self._drop_old(now, person)
        session = Session(token_urlsafe(32), person, name, role, token_urlsafe(32), now, now, id_token, access_token)
        self._known[session.id] = session
        return session

    def find(self, id: str, *, is_use: bool = True) -> Session | None:
        """The session of this id; None when there is none or it ended.  `is_use`: it is used now, and stays open."""
        session, now = self._known.get(id), self._now()
        if session is None:
            return None
        if self._is_over(session, now):
            del self._known[id]
            return None
        if is_use:
            session.used = now
        return session

    def is_open(self, session: Session) -> bool:
        """Whether a session has not ended; asking is no use of it."""
        return self._known.get(session.id) is session and not self._is_over(session, self._now())

    def end(self, session: Session) -> None:
        """Forget a session."""
        self._known.pop(session.id, None)

    def _is_over(self, session: Session, now: float) -> bool:
        return now - session.used > self._idle or now - session.began > self._longest

    def _drop_old(self, now: float, person: str) -> None:
        self._known = {id: one for id, one in self._known.items() if not self._is_over(one, now)}
        own = [one for one in self._known.values() if one.person == person]
        if len(own) >= MOST_OF_PERSON or len(self._known) >= MOST:
            several = own if len(own) >= MOST_OF_PERSON else self._known.values()
            del self._known[min(several, key=lambda one: one.used).id]


def role_of(values: Iterable[str], settings: ConsoleSettings) -> Role | None:
    """The highest role among the values of the claim; None: no role of this console."""
    by_name = {
        settings.viewer_role: Role.VIEWER, settings.operator_role: Role.OPERATOR, settings.admin_role: Role.ADMIN,
    }  # fmt: skip
    return max((by_name[one] for one in values if one in by_name), default=None)


def is_genuine(session: Session, given: str) -> bool:
    """Whether a request carries the session's token against forged requests."""
    return compare_digest(session.csrf.encode(), given.encode("utf-8", "replace"))


def cookie_name(is_secure: bool) -> str:
    """The name of the cookie: over TLS a browser takes it only from this host."""
    return "__Host-ipf" if is_secure else "ipf"


def cookie(name: str, value: str, is_secure: bool, *, seconds: int | None = None) -> tuple[str, str]:
    """A Set-Cookie header.  `seconds` None: until the browser closes; 0: delete it."""
    text = f"{name}={value}; Path=/; HttpOnly; SameSite=Lax"
    if is_secure:
        text += "; Secure"
    return "Set-Cookie", text if seconds is None else f"{text}; Max-Age={seconds}"


def cookies_of(headers: Mapping[str, str]) -> dict[str, str]:
    """The cookies of a request; none when they cannot be read."""
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load(headers.get("cookie", ""))
    except CookieError:
        return {}
    return {name: morsel.value for name, morsel in jar.items()}
