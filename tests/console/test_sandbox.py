"""The console without `OIDC_*`, over sockets: where it is a sandbox, and what a client without cookies gets."""

from __future__ import annotations

import http.client
import shutil
import tempfile
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.error import HTTPError

from twisted.trial.unittest import TestCase

from tests.console.process import ConsoleProcess
from tests.flows.far_ends import HttpServer, Request
from tests.waiting import LIMIT, PATIENCE

GROUP = "flows"
TOKEN = "only-operators-know-this"
PAGES = ("/", "/messages?status=FAILED", "/dead-letters", "/system", "/sign-in", "/sign-in?to=/messages")


def engine(asked: list[Request]) -> HttpServer:
    """An engine whose admin API asks for the token; `asked`: what it is asked for."""

    def answer(request: Request) -> tuple[int, object]:
        asked.append(request)
        is_allowed = request.headers.get("authorization") == f"Bearer {TOKEN}"
        return (
            (200, {"total": 0, "limit": 50, "offset": 0, "items": []})
            if is_allowed
            else (401, {"error": "unauthorized"})
        )

    return HttpServer(answer)


class SandboxTests(TestCase):
    timeout = 5 * LIMIT  # it blocks, and each of its waits has a limit

    def console(self, **settings: str) -> ConsoleProcess:
        """A console in front of an engine, started."""
        folder = Path(tempfile.mkdtemp(prefix="ipf-sandbox-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.asked: list[Request] = []
        far_end = engine(self.asked)
        self.addCleanup(far_end.stop)
        console = ConsoleProcess(folder, far_end.url, **settings)
        console.start()
        self.addCleanup(console.stop)
        return console

    def get(self, console: ConsoleProcess, path: str, *, keeps_cookies: bool) -> tuple[int, str]:
        """Follow redirects, at most ten of them; status and text of the page."""
        handlers = [urllib.request.HTTPCookieProcessor(CookieJar())] if keeps_cookies else []
        try:
            with urllib.request.build_opener(*handlers).open(console.url + path, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as refused:
            return refused.code, refused.read().decode()

    def test_with_an_admin_token_nobody_is_let_in(self) -> None:
        console = self.console(IPF_ADMIN_AUTH_TOKEN=TOKEN)
        for keeps_cookies in (True, False):
            for path in PAGES:
                status, page = self.get(console, path, keeps_cookies=keeps_cookies)
                self.assertEqual(status, 503, path)
                for name in ("OIDC_ISSUER", "OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET"):
                    self.assertIn(name, page)
        for method, path in (("GET", "/api/admin/messages"), ("POST", "/api/admin/messages/1/retry")):
            connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=PATIENCE)
            connection.request(method, path)
            self.assertEqual(connection.getresponse().status, 401)
            connection.close()
        self.assertEqual(self.asked, [])

    def test_without_an_admin_token_it_is_a_sandbox(self) -> None:
        """The engine asks for a token all the same: then it is the engine that refuses."""
        console = self.console()
        status, page = self.get(console, "/sign-in?to=/messages", keeps_cookies=True)
        self.assertEqual(status, 502)
        self.assertIn("sandbox", page.lower())
        self.assertNotIn("authorization", {name for one in self.asked for name in one.headers})

    def test_a_client_without_cookies_gets_a_page(self) -> None:
        console = self.console()
        for path in PAGES:
            status, page = self.get(console, path, keeps_cookies=False)
            self.assertEqual(status, 403, path)
            self.assertIn("The console needs cookies", page)
        self.assertEqual(self.asked, [])
