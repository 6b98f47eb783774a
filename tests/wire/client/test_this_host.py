"""Which addresses reach this host itself; the kernel says so."""

from __future__ import annotations

import socket

from twisted.trial.unittest import TestCase

from ipf.wire.client.this_host import is_of_this_host


class ThisHostTests(TestCase):
    def test_loopback_and_own_addresses(self) -> None:
        for address in ("127.0.0.1", "127.9.8.7", "::1"):
            self.assertTrue(is_of_this_host(address), address)
        for address in ("192.0.2.1", "8.8.8.8", "2001:db8::1", "nonsense", "", "fe80::1%nowhere"):
            self.assertFalse(is_of_this_host(address), address)

    def test_the_address_of_an_interface(self) -> None:
        """The source address of this host on the way to another one, where there is a way."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))
            except OSError:
                return
            own = probe.getsockname()[0]
        self.assertTrue(is_of_this_host(own), own)
