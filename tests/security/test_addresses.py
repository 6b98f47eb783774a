"""Addresses and limits by address, on a clock that is moved."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from ipf.security.addresses import MOST_ADDRESSES, AddressLimit, source_of


class AddressTests(SynchronousTestCase):
    def test_what_counts_as_one(self) -> None:
        for address, expected in (
            ("192.0.2.1", "192.0.2.1"), ("::ffff:192.0.2.1", "192.0.2.1"), ("2001:db8::1:2:3:4", "2001:db8::/64"),
            ("fe80::1%eth0", "fe80::/64"), ("", ""), ("unix:x", "unix:x"),
        ):  # fmt: skip
            self.assertEqual(source_of(address), expected, address)


class AddressLimitTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.limit = AddressLimit(3, 60.0, self.clock.seconds)

    def test_one_address_does_not_limit_another(self) -> None:
        for _ in range(3):
            self.assertFalse(self.limit.is_reached("a"))
            self.limit.count("a")
        self.assertTrue(self.limit.is_reached("a"))
        self.assertFalse(self.limit.is_reached("b"))
        self.clock.advance(60)
        self.assertFalse(self.limit.is_reached("a"))
        self.limit.count("a")
        self.assertFalse(self.limit.is_reached("a"))

    def test_what_is_forgiven_does_not_count(self) -> None:
        for _ in range(10):
            self.limit.count("a")
            self.limit.forgive("a")
        self.assertFalse(self.limit.is_reached("a"))
        self.assertEqual(self.limit._counted, {})
        self.limit.forgive("a")

    def test_memory_is_bounded(self) -> None:
        for number in range(2 * MOST_ADDRESSES):
            self.limit.count(f"a{number}")
        self.assertEqual(len(self.limit._counted), MOST_ADDRESSES)
