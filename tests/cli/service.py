"""A service that answers the admin API from a table, and `ipfctl` against it through Click's own runner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from click.testing import CliRunner, Result
from klein import Klein
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import blockingCallFromThread, deferToThread
from twisted.trial.unittest import TestCase
from twisted.web.server import Site

from ipf.cli import running
from ipf.cli.main import cli
from ipf.fhir.model.json import dumps
from tests.cli.answers import ANSWERS, UNKNOWN
from tests.waiting import turns

reactor: Any = _reactor


class AgainstAService(TestCase):
    """`self.ctl(words)` is `ipfctl words`; `self.asked` are the requests that the service got."""

    async def setUp(self) -> None:
        """A service on loopback; commands run on the reactor of the test, each called from a thread."""
        self.asked: list[tuple[str, str, bytes]] = []
        self.answers = dict(ANSWERS)
        app = Klein()

        @app.route("/", branch=True)
        def answer(request: Any) -> bytes:
            path, method = request.path.decode(), request.method.decode()
            self.asked.append((method, request.uri.decode(), request.content.read()))
            if request.getHeader("authorization") != "Bearer secret":
                request.setResponseCode(401)
                return b'{"error":"unauthorized","message":"a token is needed"}'
            status, body = self.answers.get((method, path), UNKNOWN)
            request.setResponseCode(status)
            return body if isinstance(body, bytes) else b"" if body is None else dumps(body)

        port = reactor.listenTCP(0, Site(app.resource()), interface="127.0.0.1")
        self.addCleanup(lambda: Deferred.fromCoroutine(turns()))  # connections that were not kept are still closing
        self.addCleanup(port.stopListening)
        self.base = f"http://127.0.0.1:{port.getHost().port}"
        self.patch(running, "run_on_reactor", self._on_this_reactor)

    def _on_this_reactor(self, work: Any) -> bool:
        made: bool = blockingCallFromThread(reactor, lambda: Deferred.fromCoroutine(work(reactor)))
        return made

    async def ctl(
        self,
        *words: str,
        token: str | None = "secret",
        base: str | None = None,
        typed: str | None = None,
        terminal: int | None = None,
        **environment: str,
    ) -> Result:
        """The result of a command.  `terminal`: the columns of a terminal, without which the output is piped."""
        environ: dict[str, str | None] = {"IPF_ADMIN_AUTH_TOKEN": token, "IPFCTL_URL": base or self.base}
        environ |= (
            {"FORCE_COLOR": "1", "COLUMNS": str(terminal), "TERM": "xterm"} if terminal else {"FORCE_COLOR": None}
        )
        environ |= environment
        return await deferToThread(
            lambda: CliRunner().invoke(cli, list(words), prog_name="ipfctl", input=typed, env=environ)
        )

    async def requests_of(self, words: Sequence[str]) -> tuple[int, str, list[tuple[str, str, bytes]]]:
        """Exit status, output and requests of a command."""
        self.asked.clear()
        result = await self.ctl(*words)
        return result.exit_code, result.output, list(self.asked)
