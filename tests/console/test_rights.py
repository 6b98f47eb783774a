"""The table of rights: every operation of the operator API, by page and by proxy, for every role, masked or not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from twisted.internet import defer
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ipf.config.console import ConsoleSettings
from ipf.console.app import AREAS, proxied
from ipf.console.html.rendering import Renderer
from ipf.console.html.static import StaticFiles
from ipf.console.masking.answers import Masked, admin_mask
from ipf.console.people.sessions import Session, Sessions, cookie_name
from ipf.console.serving.backend import Backend
from ipf.console.serving.web import CSRF_HEADER, Console, Route, answer
from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.ports import Answer, Request
from ipf.wire.admin.route import Role, WhenMasked
from ipf.wire.client.remote_service import Response
from ipf.wire.reference.table import ADMIN, OBSERVE, admin_document, observe_api_document, route_for

FORM = urlencode({
    "area": "messages", "name": "n", "query": "", "id": "7", "url": "u", "map": "m", "message": "MSH|", "limit": "5",
    "message_type": "ADT_A01", "action": "retry", "status": "off", "answer": "apart", "reason": "r", "target": "",
    "criteria": "Patient?", "file": "f", "code": "c", "system": "s", "following": "on",
})  # fmt: skip
PARTS = {"id": 7, "kind": "Patient", "fingerprint": "abc"}
SECRET = "Hansen"
ROUTES = (*ADMIN, *OBSERVE)


class Engine:
    """Notes each request, and gives everybody an answer that pages can read."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    async def request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], seconds: float | None = None
    ) -> Response:
        """As `RemoteService`."""
        self.calls.append((method, urlsplit(url).path))
        return Response(200, {"content-type": "application/json"}, dumps({"items": [], "total": 0, "mistake": None}))


class RightsTests(TestCase):
    static = StaticFiles()
    renderer = Renderer(static)

    def setUp(self) -> None:
        self.engine = Engine()

    def console(self, masking: str) -> Console:
        """A console in front of the engine."""
        settings = ConsoleSettings(masking=masking)
        backend = Backend(self.engine, "http://engine", None, Clock())  # type: ignore[arg-type]
        sign_in: Any = None
        sessions = Sessions(settings, lambda: 0.0)
        return Console(settings, backend, sessions, sign_in, self.renderer, self.static, lambda: False)

    def asked(self, console: Console, role: Role, method: str, path: str, **changes: Any) -> tuple[Request, Session]:
        """A request of a person with this role."""
        session = console.sessions.begin("p", "p", role)
        headers = {"cookie": f"{cookie_name(is_secure=False)}={session.id}", CSRF_HEADER: session.csrf,
                   "content-type": "application/x-www-form-urlencoded"}  # fmt: skip
        segments = tuple(path.strip("/").split("/"))
        return Request(method, segments, (), headers, FORM.encode(), "http://console", "c", **changes), session

    def test_the_table_is_complete(self) -> None:
        """It has the operations of both OpenAPI documents, each once, and nothing else."""
        described = {
            (method.upper(), path.removeprefix("/admin"))
            for found in (admin_document("1"), observe_api_document("1"))
            for path, operations in found["paths"].items()
            for method in operations
            if method in ("get", "post", "put", "patch", "delete")
        }
        listed = [(one.method, one.path) for one in ROUTES]
        self.assertEqual(sorted(listed), sorted(described))
        for one in ROUTES:
            self.assertEqual(route_for(one.method, _filled(one.path)), one)

    def test_what_a_masked_role_may_do_has_a_mask(self) -> None:
        """And what it may not has none: both tables say the same."""
        for one in ROUTES:
            try:
                admin_mask(f"/admin{_filled(one.path)}")
                has_mask = True
            except Masked:
                has_mask = False
            if one.method == "GET" or one.masked is not WhenMasked.NO:
                self.assertEqual(has_mask, one.masked is not WhenMasked.NO, one)

    async def test_the_proxy(self) -> None:
        """Every operation for every role and mask: it reaches the engine exactly when the table says so."""
        for masking in ("none", "viewer", "operator"):
            for role in Role:
                for right in ROUTES:
                    self.engine.calls.clear()
                    console = self.console(masking)
                    request, _ = self.asked(console, role, right.method, f"api/admin{_filled(right.path)}")
                    is_masked = masking != "none" and role <= Role[masking.upper()]
                    allowed = role >= right.role and (not is_masked or right.masked is WhenMasked.YES)
                    self.assertEqual(await self._proxied(console, request), allowed, (masking, role, right))
                    self.assertEqual(bool(self.engine.calls), allowed, (masking, role, right))

    async def _proxied(self, console: Console, request: Request) -> bool:
        try:
            await proxied(console, request)
        except Problem as problem:
            self.assertIs(problem.category, Category.FORBIDDEN)
            return False
        except (KeyError, TypeError):  # the mask does not know this answer
            return True
        return True

    async def test_what_the_table_does_not_have(self) -> None:
        """Nobody gets it: other paths, other methods."""
        console = self.console("none")
        for method, path in (("GET", "new"), ("PUT", "messages"), ("DELETE", "patients/7"), ("POST", "messages/7")):
            request, _ = self.asked(console, Role.ADMIN, method, f"api/admin/{path}")
            problem = await self.assertFailure(defer.Deferred.fromCoroutine(proxied(console, request)), Problem)
            self.assertIs(problem.category, Category.NOT_FOUND)
        self.assertEqual(self.engine.calls, [])

    async def test_the_pages(self) -> None:
        """Every page for every role and mask: the engine gets nothing that the table refuses to this role."""
        changes: dict[str, set[str]] = {}
        for masking in ("none", "viewer", "operator"):
            for role in Role:
                for area, route in _routes():
                    self.engine.calls.clear()
                    console = self.console(masking)
                    opened = await self._opened(console, role, area, route)
                    if role is Role.ADMIN and opened is not None:
                        self.assertNotEqual(opened.status, 403, (area, route.path))
                    is_masked = masking != "none" and role <= Role[masking.upper()]
                    for method, path in self.engine.calls:
                        self._check(method, path, role, is_masked=is_masked)
                        if method != "GET" and role is Role.ADMIN and not is_masked and path.startswith("/admin/"):
                            changes.setdefault(f"{route.method} {area}{route.path}", set()).add(f"{method} {path}")
                    if role < route.role:
                        self.assertEqual(self.engine.calls, [], (role, area, route.path))
        self._check_roles(changes)

    def _check(self, method: str, path: str, role: Role, *, is_masked: bool) -> None:
        right = route_for(method, path.removeprefix("/admin"))
        if not path.startswith("/admin/"):
            return  # /fhir decides by itself, with the token of the person
        assert right is not None, path
        self.assertGreaterEqual(role, right.role, path)
        self.assertFalse(is_masked and right.masked is WhenMasked.NO, path)

    def _check_roles(self, changes: Mapping[str, set[str]]) -> None:
        """A page that changes something asks for the role of what it changes, no other."""
        self.assertGreater(len(changes), 12, changes)
        for area, route in _routes():
            for call in changes.get(f"{route.method} {area}{route.path}", ()):
                method, _, path = call.partition(" ")
                right = route_for(method, path.removeprefix("/admin"))
                assert right is not None
                self.assertEqual(route.role, right.role, (area, route.path, right))

    async def _opened(self, console: Console, role: Role, area: str, route: Route) -> Answer | None:
        """The page; None when it cannot read the answer of the engine."""
        path = re.sub(r"<(?:\w+:)?(\w+)>", lambda found: str(PARTS[found[1]]), f"{area}{route.path}")
        request, _ = self.asked(console, role, route.method, path)
        named = re.findall(r"<(?:\w+:)?(\w+)>", route.path)
        parts = {name: PARTS[name] if name != "id" or "int:" in route.path else "s1" for name in named}
        try:
            return await answer(console, route, request, parts)
        except Exception:
            return None

    async def test_maps_are_not_run_for_a_masked_role(self) -> None:
        """A map that copies a name into a code would show it."""
        for role, expected in ((Role.VIEWER, 0), (Role.OPERATOR, 2)):
            self.engine.calls.clear()
            console = self.console("viewer")
            for area, route in _routes():
                if area == "workbench" and route.path in ("/run", "/compare"):
                    await self._opened(console, role, area, route)
            self.assertEqual(len([one for one in self.engine.calls if one[0] == "POST"]), expected, role)


def _routes() -> Iterator[tuple[str, Route]]:
    return ((area, route) for area, routes in AREAS.items() for route in routes)


def _filled(path: str) -> str:
    return re.sub(r"\{\w+\}", "7", path)
