"""Filters as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

from twisted.trial.unittest import SynchronousTestCase

from ipf.console.serving.filters import AGO, asked, message_type, moment

NOW = datetime(2026, 11, 29, 18, 15, 49, 123456, tzinfo=UTC)


class FilterTests(SynchronousTestCase):
    def test_types_of_messages(self) -> None:
        for text, found in (
            ("ADT_A08", "ADT_A08"), ("ADT^A08", "ADT_A08"), ("ADT^A08^ADT_A01", "ADT_A08"), ("adt^a08", "ADT_A08"),
            (" adt_a08 ", "ADT_A08"), ("ADT A08", "ADT_A08"), ("ADT-A08", "ADT_A08"), ("ADT", "ADT"), ("^", "^"),
        ):  # fmt: skip
            self.assertEqual(message_type(text), found, text)

    def test_times(self) -> None:
        """Times ago, those that pages and `ipfctl` show, ISO 8601; anything else is the engine's business."""
        for text, found in (
            ("15m", "2026-11-29T18:00:49Z"), ("1h", "2026-11-29T17:15:49Z"), ("1d", "2026-11-28T18:15:49Z"),
            ("30 min", "2026-11-29T17:45:49Z"), ("2 H", "2026-11-29T16:15:49Z"),
            ("2026-11-29 18:15:49", "2026-11-29T18:15:49Z"), ("2026-11-29 18:15:49 UTC", "2026-11-29T18:15:49Z"),
            ("2026-11-29 18:15", "2026-11-29T18:15Z"), ("2026-11-29", "2026-11-29"),
            ("2026-11-29T18:15:49Z", "2026-11-29T18:15:49Z"), ("2026-11-29T18:15:49+01:00",) * 2,
            ("2026-11-29T18:15:49.123456Z",) * 2, ("yesterday", "yesterday"), ("99999999d", "99999999d"),
        ):  # fmt: skip
            self.assertEqual(moment(text, NOW), found, text)
        for ago in AGO:
            self.assertNotEqual(moment(ago, NOW), ago)

    def test_only_times_and_types_are_changed(self) -> None:
        given = {"received_from": "1h", "message_type": "adt^a01", "text": "1h", "source_system": "a^b", "since": "1d"}
        self.assertEqual(asked(given, NOW), {
            "received_from": "2026-11-29T17:15:49Z", "message_type": "ADT_A01", "text": "1h", "source_system": "a^b",
            "since": "2026-11-28T18:15:49Z",
        })  # fmt: skip
