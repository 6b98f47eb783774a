"""Hostile values to every route of a real service: it refuses what it must, answers, and goes on turning its reactor.

No answer is a server error (none of them may be 503: the store is there), every refusal has a body of its surface, and
no request keeps the reactor from its timers for more than LIMIT of processor time (`reactor_timer.py` says why that
does not depend on the load of the machine).  What other threads use of the processor while the reactor's thread waits
for one is counted too, so a request counts as blocking only when it blocks in each of several attempts.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Iterable

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT as LONG
from tests.event_loop import run
from tests.faults.scenario import scratch
from tests.flows import hostile_values as values
from tests.flows.hostile import Client, wrong_with
from tests.flows.hostile_values import Asked
from tests.flows.idp import OwnProvider
from tests.flows.reactor_timer import Longest, MeasuredProcess, ReactorTimer
from tests.security.issuer import token
from tests.waiting import until

GROUP = "hostile"
LIMIT = 0.1
ATTEMPTS = 4
_REFERENCE = 0.02  # seconds that `_calibrated` takes on the machine for which LIMIT is meant


def limit() -> float:
    """LIMIT; in proportion where the processor is slower at this moment, as one that two programs share is."""
    return LIMIT * max(1.0, _calibrated() / _REFERENCE)


def _calibrated() -> float:
    """Processor time of a piece of work that is always the same."""
    began = time.process_time()
    json.loads(json.dumps([{"a": number, "b": [str(number)]} for number in range(20_000)]))
    return time.process_time() - began


class HostileValueTests(TestCase):
    timeout = LONG  # thousands of hostile values

    def test_every_route(self) -> None:
        """The whole table, on a service without tokens, so that every route is reached."""
        run(self._flow())

    async def _flow(self) -> None:
        folder = scratch()
        service = MeasuredProcess(folder / "service", IPF_WORKER_PROCESSES="0")
        try:
            service.start()
            await until(lambda: asyncio.to_thread(service.ready))
            await asyncio.to_thread(self._attack, service)
            self.assertNotIn("request_failed", service.log_path.read_text())
            self.assertNotIn("Unhandled", service.log_path.read_text())
        finally:
            service.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def _attack(self, service: MeasuredProcess) -> None:
        routes = [*values.fhir_routes(), *values.mapping_routes(), *values.other_routes()]
        for document in ("/admin/openapi.json", "/admin/observe/openapi.json"):
            routes += values.described_routes(service.get(document)[1])
        self.assertGreater(len(routes), 130)
        sender = Sender(service)
        for asked in values.stored():
            status, _ = sender.send(asked)
            self.assertIn(status, (200, 201), asked.name)  # 200: sent again, since the first one loads modules
        sender.wrong.clear()
        sender.send_all(values.special())
        for route in routes:
            sender.send_all(values.requests(route))
        self.assertEqual(sender.wrong[:5], [], f"{len(sender.wrong)} of {sender.sent}")
        self.assertGreater(sender.sent, 10_000)
        self.assertEqual(service.get("/actuator/health")[0], 200)


class HostileTokenTests(TestCase):
    timeout = LONG  # thousands of hostile values

    def test_tokens(self) -> None:
        """Tokens with a right signature and hostile claims, and headers that are no token: 401, and the reason."""
        run(self._flow(OwnProvider()))

    async def _flow(self, provider: OwnProvider) -> None:
        folder = scratch()
        settings = {"SUBSCRIPTION_SERVICE_AUTH_ENABLED": "true", "SUBSCRIPTION_SERVICE_AUTH_ISSUER": provider.issuer}
        service = MeasuredProcess(folder / "service", IPF_WORKER_PROCESSES="0", **settings)
        try:
            service.start()
            await until(lambda: asyncio.to_thread(service.ready))
            await asyncio.to_thread(self._attack, service, provider)
            self.assertNotIn("request_failed", service.log_path.read_text())
        finally:
            provider.stop()
            service.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def _attack(self, service: MeasuredProcess, provider: OwnProvider) -> None:
        good = f'"iss":"{provider.issuer}","sub":"a","client_id":"a","scope":"system/*.cruds"'
        sender = Sender(service)
        valid = token("rsa", payload=f'{{{good},"exp":{int(time.time()) + 900}}}'.encode())
        self.assertEqual(sender.send(_with_token(valid))[0], 200)
        for value in (
            *values.NUMBERS,
            "1" + "0" * 400,
            "-1" + "0" * 400,
            "1e308",
            '"x"',
            "[]",
            "{}",
            "null",
            "true",
            "[" * 5_000,
        ):
            for payload in (f'{{{good},"exp":{value}}}', f'{{{good},"exp":9999999999,"nbf":{value},"iat":{value}}}'):
                status, reason = sender.send(_with_token(token("rsa", payload=payload.encode())))
                is_long_past = value in ("-0", "1e-99999") and '"nbf"' in payload
                self.assertEqual((status, reason), (200 if is_long_past else 401, ""), payload[:300])
        for header in (
            "Bearer " + "a" * 30_000,
            "Bearer a.b.c",
            "Bearer \xff",
            "Bearer",
            "Basic !!",
            "Bearer " + "." * 3_000,
        ):
            asked = Asked(header[:20], "GET", "/fhir/Patient", headers=(("Authorization", header.encode("latin-1")),))
            self.assertEqual(sender.send(asked), (401, ""), header[:60])


def _with_token(text: str) -> Asked:
    return Asked("token", "GET", "/fhir/Patient", headers=(("Authorization", f"Bearer {text}".encode()),))


class Sender:
    """Sends requests one after the other; `wrong`: which of them were answered or measured wrong."""

    def __init__(self, service: MeasuredProcess) -> None:
        self._service = service
        self._client = Client(service.http_port)
        self.wrong: list[tuple[str, str]] = []
        self.sent = 0

    def send_all(self, table: Iterable[Asked]) -> None:
        """Send a table."""
        for asked in table:
            status, reason = self.send(asked)
            if reason:
                self.wrong.append((asked.name, f"{status}: {reason}"))

    def send(self, asked: Asked) -> tuple[int, str]:
        """The status of the answer, and what is wrong with it or with the time that it took."""
        self.sent += 1
        blocked = Longest()
        for _ in range(ATTEMPTS):
            status, content_type, body = self._client.send(asked.sent())
            blocked = self._service.longest()
            reason = _judged(asked, status, content_type, body)
            if reason or blocked.seconds <= LIMIT or blocked.seconds <= limit():
                return status, reason
        return status, f"the reactor was blocked for {blocked.seconds:.3f} s: {blocked.stack[:1500]}"


def _judged(asked: Asked, status: int, content_type: str, body: bytes) -> str:
    """What is wrong with an answer."""
    if asked.path.startswith(("/fhir", "/mapping")):
        return wrong_with(asked.sent(), status, content_type, body) or ("no answer" if status == 0 else "")
    if status == 0 or status >= 500:
        return f"status {status} {body[:200]!r}"
    if status >= 400 and body and not asked.path.startswith("/actuator"):
        try:
            json.loads(body)
        except ValueError:
            return f"{content_type} {body[:100]!r} is no error body"
    return ""


class TimerTests(TestCase):
    timeout = LONG  # thousands of hostile values

    def test_a_blocked_reactor_is_seen(self) -> None:
        """The measure can fail: processor time between two turns, and what ran."""
        calls: list[object] = []

        class Reactor:
            """Notes timers."""

            def callLater(self, _: float, fire: object) -> None:
                calls.append(fire)

        timer = ReactorTimer(Reactor())
        timer.start()
        self.addCleanup(timer.stop)
        while time.process_time() - timer._turn_began < 0.3:  # this is the thread of the reactor, and blocked
            json.dumps(list(range(1000)))
        found = timer.take()
        self.assertGreater(found.seconds, 0.3)
        self.assertIn("test_a_blocked_reactor_is_seen", found.stack)
        self.assertEqual((len(calls), timer.take().seconds < 0.3), (1, True))
