"""For which names the console answers: a page of another site must not read a sandbox under a name of its own."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.app.console import own_names
from ipf.config.console import ConsoleSettings
from ipf.wire.http.origin import Sent, refusal_of


def status(host: str, *, is_sandbox: bool, base_url: str | None = None, origin: str = "", method: str = "GET") -> int:
    """The status of a request with these headers; 200 for one that is answered."""
    names = own_names(ConsoleSettings(base_url=base_url), is_sandbox=is_sandbox)
    sent = Sent(method, "HTTP/1.1", (host,), (origin,) if origin else (), local="127.0.0.1")
    refused = refusal_of(sent, names)
    return 200 if refused is None else refused.rendering.http_status


class OwnNamesTests(TestCase):
    def test_a_sandbox_answers_for_its_own_names(self) -> None:
        for host in ("localhost:3000", "127.0.0.1:3000", "[::1]:3000"):
            self.assertEqual(status(host, is_sandbox=True), 200, host)
        self.assertEqual(status("rebound.example:3000", is_sandbox=True), 421)
        self.assertEqual(status("ops.example", is_sandbox=True, base_url="https://ops.example"), 200)

    def test_with_a_sign_in_it_answers_for_any_name(self) -> None:
        """A cookie belongs to the name under which it was given."""
        self.assertEqual(status("anything.example", is_sandbox=False), 200)

    def test_forms_come_from_its_own_pages(self) -> None:
        own, other = "https://ops.example", "https://evil.example"
        for is_sandbox in (True, False):
            for origin, expected in ((own, 200), (other, 403)):
                found = status("127.0.0.1:3000", is_sandbox=is_sandbox, base_url=own, origin=origin, method="POST")
                self.assertEqual(found, expected, origin)
