"""Channel security as a table: mode, channel, and what is said about it."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Category
from ipf.subscriptions.policy import PERMISSIVE, RELAXED, STRICT, ChannelPolicy

AUTH = "Authorization: Bearer abc"
GOOD = {"type": "rest-hook", "endpoint": "https://hook.example.org/fhir", "header": [AUTH]}


def said(policy: ChannelPolicy, **changes: Any) -> list[str]:
    """Texts of the violations of the good channel with some members changed (None removes one)."""
    channel = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    return [issue.text for issue in policy.violations({"resourceType": "Subscription", "channel": channel})]


class ModeTests(TestCase):
    def test_modes(self) -> None:
        https = "the endpoint must be HTTPS"
        header = "channel.header must hold an Authorization entry"
        inside = "the endpoint's host is private, local or not a plain name"
        missing = "a rest-hook channel needs an endpoint"
        table: list[tuple[dict[str, Any], list[str], list[str], list[str]]] = [
            ({}, [], [], []),
            ({"endpoint": "http://hook.example.org/"}, [https], [https], []),
            ({"header": None}, [header], [], []),
            ({"header": ["X-Key: 1"]}, [header], [], []),
            ({"header": ["authorization: Basic eDp5"]}, [], [], []),
            ({"endpoint": "http://10.0.0.1/", "header": None}, [https, inside, header], [https], []),
            ({"endpoint": None}, [missing], [missing], [missing]),
            ({"type": "websocket", "endpoint": None}, [], [], []),
        ]
        for changes, *expected in table:
            for mode, texts in zip((STRICT, RELAXED, PERMISSIVE), expected, strict=True):
                self.assertEqual(said(ChannelPolicy(mode), **changes), texts, (mode, changes))

    def test_an_unknown_mode_is_strict(self) -> None:
        self.assertEqual(len(said(ChannelPolicy("off"), endpoint="http://10.0.0.1/", header=None)), 3)

    def test_issues_name_the_place(self) -> None:
        (issue,) = ChannelPolicy().violations({"channel": {**GOOD, "endpoint": "http://hook.example.org"}})
        self.assertEqual((issue.place, issue.category), ("Subscription.channel.endpoint", Category.BUSINESS_RULE))

    def test_no_channel(self) -> None:
        for subscription in ({}, {"channel": "x"}):
            self.assertEqual(len(ChannelPolicy(PERMISSIVE).violations(subscription)), 1)


class EndpointTests(TestCase):
    def test_hosts_in_strict(self) -> None:
        refused = (
            "localhost LOCALHOST localhost. a.localhost 127.0.0.1 127.1 2130706433 0x7f.1 0 10.1.2.3 172.16.0.1 "
            "192.168.1.1 169.254.169.254 100.64.0.1 [::1] [::ffff:10.0.0.1] [fe80::1] [fd00::1] printer.local "
            "db.internal 224.0.0.1"
        )
        for host in refused.split():
            self.assertEqual(len(said(ChannelPolicy(), endpoint=f"https://{host}/x")), 1, host)
        for host in ("example.org", "8.8.8.8", "[2001:4860:4860::8888]", "3com.example", "example.org:8443"):
            self.assertEqual(said(ChannelPolicy(), endpoint=f"https://{host}/x"), [], host)

    def test_what_is_no_endpoint_in_any_mode(self) -> None:
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
            self.assertTrue(said(ChannelPolicy(PERMISSIVE), endpoint=endpoint), endpoint)

    def test_allow_list(self) -> None:
        policy = ChannelPolicy(STRICT, ("*.example.org", "10.1.0.0/16", "sink"))
        for host, allowed in (
            ("hook.example.org", True),
            ("HOOK.example.org.", True),
            ("example.org", False),
            ("evil-example.org", False),
            ("10.1.2.3", True),
            ("10.2.2.3", False),
            ("sink", True),
            ("8.8.8.8", False),
        ):
            self.assertEqual(said(policy, endpoint=f"https://{host}/") == [], allowed, host)
        self.assertEqual(len(said(ChannelPolicy(PERMISSIVE, ("sink",)), endpoint="http://other/")), 1)

    def test_addresses_of_names(self) -> None:
        for policy, address, permitted in (
            (ChannelPolicy(STRICT), "10.0.0.1", False),
            (ChannelPolicy(STRICT), "8.8.8.8", True),
            (ChannelPolicy(STRICT), "::ffff:127.0.0.1", False),
            (ChannelPolicy(STRICT, ("*.example.org",)), "10.0.0.1", True),
            (ChannelPolicy(RELAXED), "10.0.0.1", True),
        ):
            self.assertEqual(policy.permits_address(address), permitted, (policy, address))


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
            ("X-Key: żółw", False),
            (5, False),
        ):
            self.assertEqual(said(ChannelPolicy(), header=[AUTH, header]) == [], good, header)
        self.assertEqual(said(ChannelPolicy(PERMISSIVE), header="X: y"), ["header must be a list of texts"])
