"""Channel security as a table: mode, channel, violations."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Category
from ipf.subscriptions.policy import PERMISSIVE, RELAXED, STRICT, ChannelPolicy

AUTH = "Authorization: Bearer abc"
GOOD = {"type": "rest-hook", "endpoint": "https://hook.example.org/fhir", "header": [AUTH]}


def violations(policy: ChannelPolicy, **changes: Any) -> list[str]:
    """Texts of the violations of the good channel with some members changed (None removes one)."""
    channel = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    return [issue.text for issue in policy.violations({"resourceType": "Subscription", "channel": channel})]


class ModeTests(TestCase):
    def test_modes(self) -> None:
        https = "the endpoint must be HTTPS"
        header = "channel.header must hold an Authorization entry"
        private_host = "the host of the endpoint is private, local or not a plain name"
        missing = "a rest-hook channel needs an endpoint"
        table: list[tuple[dict[str, Any], list[str], list[str], list[str]]] = [
            ({}, [], [], []),
            ({"endpoint": "http://hook.example.org/"}, [https], [https], []),
            ({"header": None}, [header], [], []),
            ({"header": ["X-Key: 1"]}, [header], [], []),
            ({"header": ["authorization: Basic eDp5"]}, [], [], []),
            ({"endpoint": "http://10.0.0.1/", "header": None}, [https, private_host, header], [https], []),
            ({"endpoint": None}, [missing], [missing], [missing]),
            ({"type": "websocket", "endpoint": None}, [], [], []),
        ]
        for changes, *expected in table:
            for mode, texts in zip((STRICT, RELAXED, PERMISSIVE), expected, strict=True):
                self.assertEqual(violations(ChannelPolicy(mode), **changes), texts, (mode, changes))

    def test_an_unknown_mode_is_strict(self) -> None:
        self.assertEqual(len(violations(ChannelPolicy("off"), endpoint="http://10.0.0.1/", header=None)), 3)

    def test_issues_have_a_location(self) -> None:
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
            self.assertEqual(len(violations(ChannelPolicy(), endpoint=f"https://{host}/x")), 1, host)
        for host in ("example.org", "8.8.8.8", "[2001:4860:4860::8888]", "3com.example", "example.org:8443"):
            self.assertEqual(violations(ChannelPolicy(), endpoint=f"https://{host}/x"), [], host)

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
            self.assertEqual(violations(policy, endpoint=f"https://{host}/") == [], allowed, host)
        self.assertEqual(len(violations(ChannelPolicy(PERMISSIVE, ("sink",)), endpoint="http://other/")), 1)

    def test_resolved_addresses(self) -> None:
        """Addresses that a host name resolves to, checked at connection time."""
        names, hook = ("*.example.org",), "hook.example.org"
        for policy, host, address, permitted in (
            (ChannelPolicy(STRICT), hook, "10.0.0.1", False),
            (ChannelPolicy(STRICT), hook, "8.8.8.8", True),
            (ChannelPolicy(STRICT), hook, "::ffff:127.0.0.1", False),
            (ChannelPolicy(STRICT), hook, "64:ff9b::a9fe:a9fe", False),
            (ChannelPolicy(STRICT), hook, "2002:7f00:1::", False),
            (ChannelPolicy(STRICT), hook, "fe80::1%eth0", False),
            (ChannelPolicy(STRICT), hook, "168.63.129.16", False),
            (ChannelPolicy(STRICT), hook, "nonsense", False),
            (ChannelPolicy(STRICT, names), hook, "10.0.0.1", True),
            (ChannelPolicy(STRICT, names), hook, "127.0.0.1", False),
            (ChannelPolicy(STRICT, names), hook, "169.254.169.254", False),
            (ChannelPolicy(STRICT, names), "other.example.net", "8.8.8.8", False),
            (ChannelPolicy(STRICT, ("localhost",)), "localhost", "127.0.0.1", True),
            (ChannelPolicy(STRICT, ("localhost",)), "localhost", "169.254.169.254", False),
            (ChannelPolicy(STRICT, ("169.254.0.0/16",)), hook, "169.254.169.254", True),
            (ChannelPolicy(RELAXED), hook, "10.0.0.1", True),
            (ChannelPolicy(RELAXED), hook, "169.254.169.254", False),
            (ChannelPolicy(PERMISSIVE), hook, "fd00:ec2::254", False),
            (ChannelPolicy(PERMISSIVE), hook, "127.0.0.1", True),
        ):
            self.assertEqual(policy.permits(host, address), permitted, (policy, host, address))

    def test_ipv6_forms_of_ipv4_addresses(self) -> None:
        """IPv4 addresses in IPv6 forms, and IPv6 networks that are not public."""
        for address in (
            "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b:1::7f00:1", "64:ff9b:1:2::1", "fec0::1", "5f00::1", "3fff::1",
            "2001:db8::1", "2001::80ff:fffe", "100::1", "::", "0.0.0.0", "255.255.255.255", "192.0.0.8", "198.18.0.1",
        ):  # fmt: skip
            self.assertFalse(ChannelPolicy(STRICT).permits("hook.example.org", address), address)
        for address in (
            "169.254.170.23", "169.254.0.23", "169.254.42.42", "fd00:ec2::23", "fd20:ce::254", "fe80::a9fe:a9fe",
            "::169.254.169.254", "::ffff:0:169.254.169.254", "64:ff9b:1::a9fe:a9fe", "::ffff:168.63.129.16",
        ):  # fmt: skip
            self.assertFalse(ChannelPolicy(PERMISSIVE).permits("hook.example.org", address), address)
        for address in ("2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"):
            self.assertTrue(ChannelPolicy(STRICT).permits("hook.example.org", address), address)

    def test_cloud_metadata_is_refused_in_every_mode(self) -> None:
        for mode in (STRICT, RELAXED, PERMISSIVE):
            self.assertEqual(len(violations(ChannelPolicy(mode), endpoint="https://169.254.169.254/latest")), 1, mode)


class OtherChannelTests(TestCase):
    def test_message_has_the_rules_of_rest_hook(self) -> None:
        self.assertEqual(violations(ChannelPolicy(), type="message"), [])
        self.assertEqual(
            violations(ChannelPolicy(), type="message", endpoint=None), ["a message channel needs an endpoint"]
        )
        self.assertEqual(len(violations(ChannelPolicy(), type="message", endpoint="http://10.0.0.1/", header=None)), 3)

    def test_websocket_needs_no_header(self) -> None:
        self.assertEqual(violations(ChannelPolicy(), type="websocket", endpoint=None, header=None), [])

    def test_email(self) -> None:
        allowed = ChannelPolicy(STRICT, ("example.org", "*.example.org"))
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
