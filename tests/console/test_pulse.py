"""An engine that accepts requests and says nothing: every page says so within five seconds, and goes on by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from ipf.config.console import ConsoleSettings
from ipf.console.app import AREAS, proxied
from ipf.console.html.rendering import Renderer
from ipf.console.html.static import StaticFiles
from ipf.console.people.sessions import Session, Sessions, cookie_name
from ipf.console.serving.backend import Backend
from ipf.console.serving.pulse import FRESH_SECONDS, LOOK_SECONDS, PROBE_SECONDS, NoAnswer, Pulse
from ipf.console.serving.web import CSRF_HEADER, Console, Route, answer
from ipf.errors import Category, Problem
from ipf.ports import Answer, Request
from ipf.wire.admin.route import Role
from ipf.wire.client.remote_service import Response
from tests.reference import ROOT

LIMIT = 5.0
"""Seconds in which a page must say so; what is left of them is the way through the network."""
NOON = datetime(2026, 3, 4, 12, 0, 15, tzinfo=UTC)
PARTS = {"id": 7, "kind": "Patient", "fingerprint": "abc", "version": 1}
WITHOUT_ENGINE = {"/send/", "/workbench/coverage"}
"""Pages that need nothing of the engine; their script asks for the pulse."""
_BODY = b'{"items": [], "total": 0, "mistake": null}'


class Hung:
    """Answers nothing while `hangs`; then, or for the paths of `slow`, as far as its time limit."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.hangs = True
        self.slow: set[str] = set()
        self.refuses = False
        self.asked: list[str] = []

    async def request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], seconds: float | None = None
    ) -> Response:
        """As `RemoteService`."""
        path = url.removeprefix("http://engine").partition("?")[0]
        self.asked.append(path)
        if self.refuses:
            raise Problem(Category.UPSTREAM, "no response from the engine: connection refused")
        if not self.hangs and path not in self.slow:
            return Response(200, {"content-type": "application/json"}, _BODY)
        never: Deferred[Response] = Deferred()
        late = Problem(Category.UPSTREAM, "no response from the engine: timeout")
        call = self.clock.callLater(seconds or 30.0, never.errback, late)
        try:
            return await never
        finally:
            if call.active():
                call.cancel()


class PulseTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.engine = Hung(self.clock)
        self.pulse = self.new_pulse()

    def new_pulse(self) -> Pulse:
        """A pulse of the engine, at noon and what the clock has gone on since."""
        return Pulse(self.engine, "http://engine", self.clock, lambda: NOON + timedelta(seconds=self.clock.seconds()))  # type: ignore[arg-type]

    def watched(self, failures: int = 1) -> Deferred[Response]:
        """A request under way."""
        return ensureDeferred(self.pulse.watched(self.engine.request("GET", "http://engine/x", None, {}), failures))

    def test_a_request_to_an_engine_that_hangs(self) -> None:
        """It is given up after the question has had no answer; nothing is left running."""
        self.clock.advance(60)
        self.engine.hangs = False
        self.successResultOf(self.watched())
        self.engine.hangs = True
        self.clock.advance(60)
        asked = self.watched()
        self.clock.advance(LOOK_SECONDS)
        self.assertNoResult(asked)
        self.clock.advance(PROBE_SECONDS)
        self.assertEqual(self.failureResultOf(asked, NoAnswer).value.since, NOON + timedelta(seconds=60))
        self.assertFalse(self.pulse.is_up)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_slow_request_to_an_engine_that_works(self) -> None:
        """It has its own time limit, and is not mistaken for an outage."""
        self.engine.hangs, self.engine.slow = False, {"/x"}
        asked = self.watched()
        self.clock.pump([0.5] * 59)
        self.assertNoResult(asked)
        self.clock.advance(0.5)
        self.assertIsNone(self.failureResultOf(asked, NoAnswer).value.since)
        self.assertTrue(self.pulse.is_up)

    def test_a_write_has_a_second_question(self) -> None:
        """An engine that pauses for three seconds still gets its answer through."""
        asked = self.watched(failures=2)
        self.clock.advance(LOOK_SECONDS)
        self.clock.advance(PROBE_SECONDS)
        self.assertNoResult(asked)
        self.clock.advance(LOOK_SECONDS)
        self.clock.advance(PROBE_SECONDS)
        self.failureResultOf(asked, NoAnswer)

    def test_all_who_wait_share_one_question(self) -> None:
        asked = [self.watched() for _ in range(50)]
        self.clock.advance(LOOK_SECONDS)
        self.assertEqual(self.engine.asked.count("/actuator/health/liveness"), 1)
        self.clock.advance(PROBE_SECONDS)
        for one in asked:
            self.failureResultOf(one, NoAnswer)

    def test_an_answer_is_fresh_for_half_a_second(self) -> None:
        self.engine.hangs = False
        for seconds, questions in ((0.0, 1), (FRESH_SECONDS / 2, 1), (FRESH_SECONDS, 2)):
            self.clock.advance(seconds)
            self.assertTrue(self.successResultOf(ensureDeferred(self.pulse.lives())))
            self.assertEqual(self.engine.asked.count("/actuator/health/liveness"), questions)

    def test_an_engine_that_is_not_there(self) -> None:
        """It is known at once."""
        self.engine.refuses = True
        self.assertEqual(self.failureResultOf(self.watched(), NoAnswer).value.since, NOON)

    def test_a_reader_who_leaves_is_no_outage(self) -> None:
        asked = self.watched()
        asked.cancel()
        self.failureResultOf(asked)
        self.assertTrue(self.pulse.is_up)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class LimitTests(SynchronousTestCase):
    def test_an_open_page_turns_within_five_seconds(self) -> None:
        """An answer that is still fresh, the time to the next poll of the page, and the question."""
        script = (ROOT / "ipf/console/static/pulse.js").read_text()
        every, longest = (int(number) / 1000 for number in re.findall(r"(?:EVERY|LONGEST) = (\d+)", script))
        self.assertLess(FRESH_SECONDS + every + PROBE_SECONDS, LIMIT)
        self.assertLess(every + longest, LIMIT)  # the console itself hangs
        self.assertGreater(longest, PROBE_SECONDS)
        self.assertLess(LOOK_SECONDS + PROBE_SECONDS, LIMIT - 1)


class EveryPageTests(SynchronousTestCase):
    static = StaticFiles()
    renderer = Renderer(static)

    def setUp(self) -> None:
        self.clock = Clock()
        self.engine = Hung(self.clock)
        settings, sign_in = ConsoleSettings(), None
        backend = Backend(self.engine, "http://engine", None, self.clock)  # type: ignore[arg-type]
        sessions = Sessions(settings, self.clock.seconds)
        self.console = Console(settings, backend, sessions, sign_in, self.renderer, self.static, lambda: False)  # type: ignore[arg-type]

    def asked(self, method: str, path: str, language: str = "en") -> tuple[Request, Session]:
        """A request of an administrator."""
        session = self.console.sessions.begin("p", "p", Role.ADMIN)
        headers = {"cookie": f"{cookie_name(is_secure=False)}={session.id}", CSRF_HEADER: session.csrf,
                   "content-type": "application/x-www-form-urlencoded", "accept-language": language}  # fmt: skip
        query = (("text", "x"),)
        return Request(method, tuple(path.strip("/").split("/")), query, headers, b"", "http://console", "c"), session

    def within_the_limit(self, work: Callable[[], Any]) -> Any:
        """The result of a page, at most five seconds of the clock later."""
        found = ensureDeferred(work())
        for _ in range(int(LIMIT / 0.5) - 1):
            if found.called:
                break
            self.clock.advance(0.5)
        return found

    def test_every_page_says_so_within_five_seconds(self) -> None:
        """In both languages, with the time of the last answer; no page shows values of before."""
        seen, without = 0, set()
        for language, said in (("en", "No answer since"), ("de", "Keine Antwort seit")):
            for area, route in self.pages():
                page = self.page(area, route, language)
                body = page.body.decode() if isinstance(page.body, bytes) else str(page.body)
                if page.status != 502:
                    without.add(f"/{area}{route.path}")
                    self.assertRegex(body, r"pulse[.\w-]*\.js")
                    continue
                seen += 1
                heading = re.search("<h1>(.*?)</h1>", body, re.DOTALL)
                assert heading is not None
                self.assertRegex(heading[1], rf'{said} <time datetime="[^"]+" data-form="clock"[^>]*>\d\d:\d\d:\d\d<')
                self.assertNotRegex(body, r'id="down"[^>]* hidden')
        self.assertEqual(without, WITHOUT_ENGINE)
        self.assertGreater(seen, 50)

    def test_pages_open_again_when_it_goes_on(self) -> None:
        area, route = next((area, route) for area, route in self.pages() if area == "jobs" and route.path == "/")
        self.assertEqual(self.page(area, route, "en").status, 502)
        self.engine.hangs = False
        self.clock.advance(FRESH_SECONDS)
        page = self.page(area, route, "en")
        self.assertEqual(page.status, 200)
        self.assertRegex(bytes(page.body).decode(), r'id="down"[^>]* hidden')

    def test_a_form_says_that_it_is_not_known(self) -> None:
        route = next(one for one in AREAS["messages"] if one.path == "/<int:id>/retry")
        request, _ = self.asked("POST", "/messages/7/retry")
        found = ensureDeferred(answer(self.console, route, request, PARTS))
        self.clock.pump([0.5] * 20)
        page = self.successResultOf(found)
        self.assertEqual(page.status, 502)
        self.assertIn("check before you repeat it", page.body.decode())

    def test_the_proxy_says_so_as_well(self) -> None:
        request, _ = self.asked("GET", "/api/admin/jobs")
        found = self.within_the_limit(lambda: proxied(self.console, request))
        self.assertEqual(self.failureResultOf(found, Problem).value.category, Category.UPSTREAM)

    def pages(self) -> Iterator[tuple[str, Route]]:
        """Every page."""
        for area, routes in AREAS.items():
            for route in routes:
                if route.method == "GET":
                    yield area, route

    def page(self, area: str, route: Route, language: str) -> Answer:
        """The answer of a page, within five seconds."""
        path = f"/{area}{route.path}"
        filled = re.sub(r"<(?:\w+:)?(\w+)>", lambda part: str(PARTS[part[1]]), path)
        request, _ = self.asked("GET", filled, language)
        found = re.findall(r"<(\w+:)?(\w+)>", path)
        parts = {name: PARTS[name] if kind == "int:" else str(PARTS[name]) for kind, name in found}
        asked = self.within_the_limit(lambda: answer(self.console, route, request, parts))
        self.assertTrue(asked.called, f"{path} still waits after five seconds")
        made: Answer = self.successResultOf(asked)
        return made
