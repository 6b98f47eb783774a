"""Channel security as a table: mode, channel, violations."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Category
from ipf.subscriptions.endpoints import EndpointRules
from ipf.subscriptions.policy import PERMISSIVE, RELAXED, STRICT, ChannelPolicy

AUTH = "Authorization: Bearer abc"
GOOD = {"type": "rest-hook", "endpoint": "https://hook.example.org/fhir", "header": [AUTH]}


def violations(policy: ChannelPolicy, **changes: Any) -> list[str]:
    """Texts of the violations of the good channel with some members changed (None removes one)."""
    channel = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    return [issue.text for issue in policy.violations({"resourceType": "Subscription", "channel": channel})]


class ModeTests(TestCase):
    def test_modes(self) -> None:
        by = "(SUBSCRIPTION_SERVICE_CHANNEL_SECURITY is {0})"
        https, relaxed = (f"the endpoint must be HTTPS {by}".format(mode) for mode in (STRICT, RELAXED))
        header = f"channel.header must hold an Authorization entry {by}".format(STRICT)
        missing = "a rest-hook channel needs an endpoint"
        table: list[tuple[dict[str, Any], list[str], list[str], list[str]]] = [
            ({}, [], [], []),
            ({"endpoint": "http://hook.example.org/"}, [https], [relaxed], []),
            ({"header": None}, [header], [], []),
            ({"header": ["X-Key: 1"]}, [header], [], []),
            ({"header": ["authorization: Basic eDp5"]}, [], [], []),
            ({"endpoint": "http://10.0.0.1/", "header": None}, [https, header], [relaxed], []),
            ({"endpoint": None}, [missing], [missing], [missing]),
            ({"type": "websocket", "endpoint": None}, [], [], []),
        ]
        for changes, *expected in table:
            for mode, texts in zip((STRICT, RELAXED, PERMISSIVE), expected, strict=True):
                self.assertEqual(violations(ChannelPolicy(mode), **changes), texts, (mode, changes))

    def test_an_unknown_mode_is_strict(self) -> None:
        self.assertEqual(len(violations(ChannelPolicy("off"), endpoint="http://10.0.0.1/", header=None)), 2)

    def test_issues_have_a_location(self) -> None:
        (issue,) = ChannelPolicy().violations({"channel": {**GOOD, "endpoint": "http://hook.example.org"}})
        self.assertEqual((issue.place, issue.category), ("Subscription.channel.endpoint", Category.BUSINESS_RULE))

    def test_no_channel(self) -> None:
        for subscription in ({}, {"channel": "x"}):
            self.assertEqual(len(ChannelPolicy(PERMISSIVE).violations(subscription)), 1)


class EndpointTests(TestCase):
    def test_invalid_endpoints_in_every_mode(self) -> None:
        for endpoint in (
            "",
            "hook",
            "ftp://example.org/",
            "https:///x",
            "https://a b/",
            "https://example.org/\r\nX: y",
            "https://example.org\\@evil.example/",
            "https://user:pass@example.org/",
            "https://example.org/#part",
            "https://example.org:99999/",
            "https://[::1/",
            7,
        ):
            self.assertTrue(violations(ChannelPolicy(PERMISSIVE), endpoint=endpoint), endpoint)

    def test_hosts_have_the_same_rules_in_every_mode(self) -> None:
        """`test_endpoints.py` has the rules."""
        for mode in (STRICT, RELAXED, PERMISSIVE):
            for host, refused in (("10.0.0.1", 0), ("localhost", 0), ("169.254.169.254", 1), ("0177.0.0.1", 1)):
                found = violations(ChannelPolicy(mode), endpoint=f"https://{host}/latest")
                self.assertEqual(len(found), refused, (mode, host))


class OtherChannelTests(TestCase):
    def test_message_has_the_rules_of_rest_hook(self) -> None:
        self.assertEqual(violations(ChannelPolicy(), type="message"), [])
        self.assertEqual(
            violations(ChannelPolicy(), type="message", endpoint=None), ["a message channel needs an endpoint"]
        )
        self.assertEqual(len(violations(ChannelPolicy(), type="message", endpoint="http://10.0.0.1/", header=None)), 2)

    def test_websocket_needs_no_header(self) -> None:
        self.assertEqual(violations(ChannelPolicy(), type="websocket", endpoint=None, header=None), [])

    def test_email(self) -> None:
        allowed = ChannelPolicy(STRICT, EndpointRules(("example.org", "*.example.org"), ("*",)))
        denied = ChannelPolicy(STRICT, EndpointRules((), ("*.example.net",)))
        for policy, endpoint, good in (
            (ChannelPolicy(), "mailto:ward@example.org", True),
            (ChannelPolicy(), "ward@example.org", True),
            (ChannelPolicy(), None, False),
            (ChannelPolicy(), "mailto:a@example.org,b@example.net", False),
            (ChannelPolicy(), "mailto:a@example.org?bcc=b@example.net", False),
            (ChannelPolicy(), "mailto:a@example.org%0d%0aBcc:b@example.net", False),
            (ChannelPolicy(), "https://example.org/", False),
            (allowed, "mailto:ward@example.org", True),
            (allowed, "mailto:ward@mail.EXAMPLE.org", True),
            (allowed, "mailto:ward@example.net", False),
            (denied, "mailto:ward@mail.example.net", False),
            (denied, "mailto:ward@example.org", True),
        ):
            self.assertEqual(violations(policy, type="email", endpoint=endpoint, header=None) == [], good, endpoint)


class HeaderTests(TestCase):
    def test_headers(self) -> None:
        for header, good in (
            ("X-Key: abc", True),
            ("X-Key:abc", True),
            ("X-Key", False),
            ("X-Key:", False),
            ("X Key: abc", False),
            (": abc", False),
            ("X-Key: a\r\nY: b", False),
            ("X-Key: a\nb", False),
            ("X-Key: a\x00", False),
            ("Content-Length: 5", False),
            ("Host: other", False),
            ("Transfer-Encoding: chunked", False),
            ("connection: close", False),
            ("Keep-Alive: 5", False),
            ("TE: trailers", False),
            ("Trailer: X", False),
            ("Upgrade: h2c", False),
            ("Expect: 100-continue", False),
            ("Proxy-Connection: close", False),
            ("Content-Type: text/plain", True),
            ("Content-Encoding: gzip", True),
            ("x-correlation-ID: 1", True),
            ("Proxy-Authorization: Basic x", True),
            ("X-Ipf-Signature: sha256=00", True),
            ("X-Key: żółw", False),
            (5, False),
        ):
            self.assertEqual(violations(ChannelPolicy(), header=[AUTH, header]) == [], good, header)
        self.assertEqual(violations(ChannelPolicy(PERMISSIVE), header="X: y"), ["header must be a list of strings"])
