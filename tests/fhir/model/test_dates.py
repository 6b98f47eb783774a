"""Dates become ranges by their precision."""

from __future__ import annotations

from datetime import UTC, datetime

from twisted.trial.unittest import TestCase

from ipf.fhir.model.dates import DAY, FOREVER, date_range, microseconds, moment

SECOND = 1_000_000
RANGES = [
    ("2015", datetime(2015, 1, 1, tzinfo=UTC), 365 * DAY),
    ("2016", datetime(2016, 1, 1, tzinfo=UTC), 366 * DAY),
    ("2016-02", datetime(2016, 2, 1, tzinfo=UTC), 29 * DAY),
    ("2015-12", datetime(2015, 12, 1, tzinfo=UTC), 31 * DAY),
    ("2015-02-28", datetime(2015, 2, 28, tzinfo=UTC), DAY),
    ("2015-02-07T13:28", datetime(2015, 2, 7, 13, 28, tzinfo=UTC), 60 * SECOND),
    ("2015-02-07T13:28:17Z", datetime(2015, 2, 7, 13, 28, 17, tzinfo=UTC), SECOND),
    ("2015-02-07T13:28:17-05:00", datetime(2015, 2, 7, 18, 28, 17, tzinfo=UTC), SECOND),
    ("2015-02-07T13:28:17.5+01:00", datetime(2015, 2, 7, 12, 28, 17, 500_000, tzinfo=UTC), SECOND // 10),
    ("2015-02-07T13:28:17.1234567Z", datetime(2015, 2, 7, 13, 28, 17, 123_456, tzinfo=UTC), 1),
    ("2016-12-31T23:59:60Z", datetime(2017, 1, 1, tzinfo=UTC), SECOND),
    ("0001", datetime(1, 1, 1, tzinfo=UTC), 365 * DAY),
]
NOT_DATES = [
    "",
    "15",
    "2015-13",
    "2015-02-30",
    "2015-2-1",
    "20150207",
    "2015-W01-1",
    "2015-02-07T25:00",
    "0000",
    "x" * 99,
]


class Ranges(TestCase):
    """`date_range`, `microseconds` and `moment`."""

    def test_precision_is_the_length_of_the_range(self) -> None:
        for text, first, length in RANGES:
            lo = microseconds(first)
            self.assertEqual(date_range(text), (lo, lo + length), text)

    def test_invalid_dates_have_no_range(self) -> None:
        for text in NOT_DATES:
            self.assertIsNone(date_range(text), text)

    def test_range_of_the_last_year(self) -> None:
        self.assertEqual(date_range("9999"), (253_370_764_800 * SECOND, 253_402_300_800 * SECOND))

    def test_moments_stay_within_the_calendar(self) -> None:
        now = datetime(2024, 5, 6, 7, 8, 9, 123_456, tzinfo=UTC)
        self.assertEqual(moment(microseconds(now)), now)
        self.assertEqual(moment(FOREVER).year, 9999)
        self.assertEqual(moment(-FOREVER).year, 1)
