"""Message types that are answered AE and not stored."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.app.listeners.mllp import is_map_missing


class RefusedTypeTests(TestCase):
    """Required types without a map, and queries."""

    def test_types(self) -> None:
        """A map, and for a query the list of types that are stored unmapped, make it acceptable."""
        required, passthrough, maps = frozenset({"ADT_A01"}), frozenset({"QRY_A19", "ADT_A04"}), {"QBP_Q11"}
        table = [
            ("ADT_A01", True),
            ("ADT_A04", False),
            ("ADT_A08", False),
            ("QBP_Q22", True),
            ("QBP_Q11", False),
            ("QRY_A19", False),
            ("RSP_K22", False),
        ]
        for message_type, refused in table:
            with self.subTest(message_type=message_type):
                found = is_map_missing(required, passthrough, maps.__contains__, message_type)
                self.assertEqual(found, refused)
