"""Endpoint rules as tables: what a Subscription may name, and what a connection may be opened to."""

from __future__ import annotations

import itertools
from ipaddress import IPv4Address

from twisted.trial.unittest import TestCase

from ipf.subscriptions.endpoints import EndpointRules, port_of, split_endpoint

ALLOW, DENY = "SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW", "SUBSCRIPTION_SERVICE_ENDPOINT_DENY"
LAN = ["10.1.2.3", "172.16.0.1", "172.31.255.254", "192.168.1.1", "fc00::1", "fd12:3456::1"]
LOOPBACK = ["127.0.0.1", "127.8.9.10", "::1"]
PUBLIC = ["8.8.8.8", "2606:4700::1111"]
NEVER = [
    "169.254.169.254",
    "169.254.0.1",
    "fe80::1",
    "fe80::1%eth0",
    "fe80::a9fe:a9fe",
    "0.0.0.0",
    "0.1.2.3",
    "::",
    "224.0.0.1",
    "239.1.2.3",
    "ff02::1",
    "255.255.255.255",
    "240.0.0.1",
    "168.63.129.16",
    "100.100.100.200",
    "fd00:ec2::254",
    "192.0.0.192",
]
OPEN, TENANTS = EndpointRules(), EndpointRules(has_tenants=True)
NAMES = ["hook.example.org", "printer.local", "db.internal", "localhost", "a.localhost"]


def in_ipv6(address: str) -> list[str]:
    """The IPv6 forms of an IPv4 address: mapped, translated, compatible, NAT64 (two prefixes), 6to4, Teredo."""
    number = int(IPv4Address(address))
    high, low = f"{number >> 16:x}", f"{number & 0xFFFF:x}"
    inverted = number ^ 0xFFFFFFFF
    return [
        f"::ffff:{address}", f"::ffff:{high}:{low}", f"::ffff:0:{high}:{low}", f"::{high}:{low}",
        f"64:ff9b::{high}:{low}", f"64:ff9b:1::{high}:{low}", f"2002:{high}:{low}::1",
        f"2001:0:4136:e378:8000:63bf:{inverted >> 16:x}:{inverted & 0xFFFF:x}",
    ]  # fmt: skip


def in_numbers(address: str) -> list[str]:
    """The spellings of an IPv4 address that only some programs read."""
    a, b, c, d = IPv4Address(address).packed
    number = int(IPv4Address(address))
    return [
        str(number), hex(number), hex(number).upper(), f"0{number:o}", f"{a}.{(b << 16) + (c << 8) + d}",
        f"{a}.{b}.{(c << 8) + d}", f"0{a:o}.0{b:o}.0{c:o}.0{d:o}", f"0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}",
        f"{a:04d}.{b}.{c}.{d}", f"x.{number}",
    ]  # fmt: skip


class AddressTests(TestCase):
    def test_which_addresses_are_endpoints(self) -> None:
        """The same at registration and at connection."""
        for address in (*LAN, *LOOPBACK, *PUBLIC, "100.64.0.1", "198.18.0.1"):
            self.assertEqual((OPEN.refusal(address, 443), OPEN.forbids("x", address, 443)), (None, None), address)
        for address, rules in itertools.product(NEVER, (OPEN, EndpointRules(("*", "0.0.0.0/0", "::/0")))):
            for found in (rules.refusal(address, 443), rules.forbids("hook.example.org", address, 443)):
                self.assertIn(ALLOW, found or "", address)

    def test_ipv4_addresses_in_ipv6_forms(self) -> None:
        for inner, is_good in (("10.1.2.3", True), ("8.8.8.8", True), ("169.254.169.254", False), ("224.0.0.1", False)):
            for address in in_ipv6(inner):
                self.assertEqual(OPEN.refusal(address, 443) is None, is_good, address)
                self.assertEqual(OPEN.forbids("x", address, 443) is None, is_good, address)
                is_public = inner == "8.8.8.8"
                self.assertEqual(TENANTS.forbids("x", address, 443) is None, is_public, address)

    def test_other_spellings_are_refused(self) -> None:
        for address in ("127.0.0.1", "169.254.169.254", "10.1.2.3", "8.8.8.8"):
            for host in in_numbers(address):
                self.assertIn("written as an address", OPEN.refusal(host, 443) or "", host)
        for host in ("a%2eb", "ex ample", "-", "%31%32", "a/b", "::1::"):
            self.assertIsNotNone(OPEN.refusal(host, 443), host)
        for host in ("3com.example", "x1", "0x.example", "1.2.3.example", "example.org."):
            self.assertIsNone(OPEN.refusal(host, 443), host)

    def test_what_is_no_address_is_not_connected_to(self) -> None:
        self.assertEqual(OPEN.forbids("x", "nonsense", 443), "it is not an address")


class OwnPortTests(TestCase):
    """A notification to the service itself would be a request from this host, which needs no token there."""

    RULES = EndpointRules(
        ("127.0.0.0/8", "localhost", "*"),
        own_ports=lambda: {8090: "IPF_HTTP_LISTEN", 2575: "IPF_MLLP_LISTEN"},
        is_of_this_host=lambda address: address in ("127.0.0.1", "127.8.9.10", "::1", "10.1.2.3"),
    )

    def test_this_host_and_a_port_of_the_service(self) -> None:
        for host in ("127.0.0.1", "127.8.9.10", "::1", "10.1.2.3", *in_ipv6("127.0.0.1"), "localhost", "LOCALHOST."):
            self.assertIn("IPF_HTTP_LISTEN", self.RULES.refusal(host, 8090) or "", host)
            self.assertIn("IPF_MLLP_LISTEN", self.RULES.refusal(host, 2575) or "", host)
            self.assertIsNone(self.RULES.refusal(host, 8091), host)
        self.assertIsNone(self.RULES.refusal("10.1.2.4", 8090))
        self.assertIsNone(self.RULES.refusal("hook.example.org", 8090))

    def test_names_that_resolve_here(self) -> None:
        for address in ("127.0.0.1", "10.1.2.3", "::ffff:127.0.0.1"):
            self.assertIn("IPF_HTTP_LISTEN", self.RULES.forbids("hook.example.org", address, 8090) or "")
            self.assertIsNone(self.RULES.forbids("hook.example.org", address, 443))


class SettingTests(TestCase):
    def test_allow_adds_and_limits_nothing(self) -> None:
        rules = EndpointRules(("*.example.org", "10.1.0.0/16", "sink"))
        for host in (*LAN, *LOOPBACK, *PUBLIC, *NAMES, "other.example.net", "sink"):
            self.assertIsNone(rules.refusal(host, 443), host)

    def test_deny_narrows(self) -> None:
        rules = EndpointRules(("10.1.0.0/16", "good.evil.example"), ("10.1.2.0/24", "*.evil.example", "fd00::/8"))
        for host, is_good in (
            ("10.1.2.3", False), ("::ffff:10.1.2.3", False), ("10.1.3.3", True), ("fd00::1", False),
            ("a.evil.example", False), ("good.evil.example", False), ("A.EVIL.example.", False), ("8.8.8.8", True),
        ):  # fmt: skip
            found = rules.refusal(host, 443)
            self.assertEqual(found, None if is_good else f"{DENY} excludes it", host)
        self.assertEqual(rules.forbids("hook.example.org", "10.1.2.3", 443), f"{DENY} excludes it")
        self.assertEqual(rules.forbids("a.evil.example", "8.8.8.8", 443), f"{DENY} excludes it")

    def test_deny_everything_but_what_allow_names(self) -> None:
        """As `ENDPOINT_ALLOW` alone was before 0.2."""
        rules = EndpointRules(("*.example.org", "10.1.0.0/16", "sink"), ("*",))
        for host, is_good in (
            ("hook.example.org", True), ("HOOK.example.org.", True), ("example.org", False),
            ("evil-example.org", False), ("10.1.2.3", True), ("10.2.2.3", False), ("sink", True), ("8.8.8.8", False),
        ):  # fmt: skip
            found = rules.refusal(host, 443)
            self.assertEqual(found is None, is_good, host)
            if not is_good:
                self.assertIn(DENY, found or "")
                self.assertIn(ALLOW, found or "")

    def test_tenants_reach_only_what_allow_names(self) -> None:
        for host in (*LAN, *LOOPBACK, *NAMES[1:], "100.64.0.1"):
            self.assertIn(ALLOW, TENANTS.refusal(host, 443) or "", host)
        for host in (*PUBLIC, NAMES[0]):
            self.assertIsNone(TENANTS.refusal(host, 443), host)
        hook = "hook.example.org"
        for allow, host, address, is_good in (
            ((), hook, "10.1.2.3", False),
            ((), hook, "8.8.8.8", True),
            (("10.1.0.0/16",), hook, "10.1.2.3", True),
            (("10.1.0.0/16",), hook, "10.2.2.3", False),
            (("*.example.org",), hook, "10.1.2.3", True),
            (("*.example.org",), hook, "127.0.0.1", False),  # a pattern for many names does not mean this host
            ((hook,), hook, "127.0.0.1", True),
            (("127.0.0.0/8",), hook, "127.0.0.1", True),
            (("localhost",), "localhost", "::1", True),
        ):
            found = EndpointRules(allow, has_tenants=True).forbids(host, address, 443)
            self.assertEqual(found is None, is_good, (allow, host, address))
            self.assertIn(ALLOW, found or ALLOW)


class UrlTests(TestCase):
    def test_ports(self) -> None:
        for url, port in (("http://a/", 80), ("https://a/", 443), ("https://a:8443/", 8443), ("http://[::1]:1", 1)):
            found = split_endpoint(url)
            assert found is not None
            self.assertEqual(port_of(found), port)
        for url in ("ftp://a/", "https:///x", "https://a:99999/", "https://a\\@b/", "//a/", "https://[::1/", "a"):
            self.assertIsNone(split_endpoint(url), url)
