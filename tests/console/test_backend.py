"""How long the console waits for the engine."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from ipf.console.serving.backend import WRITE_SECONDS, Backend
from ipf.wire.client.remote_service import Response


class Engine:
    """Answers at once, and notes the time limit of each request."""

    def __init__(self) -> None:
        self.limits: list[tuple[str, float | None]] = []

    async def request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], seconds: float | None = None
    ) -> Response:
        """As `RemoteService`."""
        self.limits.append((method, seconds))
        return Response(200, {}, b"{}")


class BackendTests(SynchronousTestCase):
    def test_only_reads_have_the_short_limit(self) -> None:
        """A trial or an installation compiles maps."""
        engine = Engine()
        backend = Backend(engine, "http://engine", None, Clock())  # type: ignore[arg-type]
        for work in (
            backend.get("/admin/mapping"),
            backend.fhir("/Patient", [], ""),
            backend.send("POST", "/admin/mapping/try", {}, "ann"),
            backend.send("DELETE", "/admin/views/1", None, "ann"),
        ):
            with self.assertRaises(StopIteration):
                work.send(None)
        limits = [("GET", None), ("GET", None), ("POST", WRITE_SECONDS), ("DELETE", WRITE_SECONDS)]
        self.assertEqual(engine.limits, limits)
