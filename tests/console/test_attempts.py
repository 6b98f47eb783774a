"""Attempts by time, events with their attempts, and the answer of a dry run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.console.content.attempts import buckets, dry_run_of, events

NOON = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)


def tried(after: timedelta, outcome: str = "success", first: int | None = 1, last: int | None = None) -> dict[str, Any]:
    return {
        "attempted_at": (NOON + after).isoformat(), "outcome": outcome,
        "event_number": first, "to_event_number": last or first,
    }  # fmt: skip


class BucketTests(TestCase):
    def test_nothing_was_tried(self) -> None:
        self.assertEqual(buckets([]), [])

    def test_attempts_of_some_minutes_are_shown_by_the_minute(self) -> None:
        found = buckets([tried(timedelta(minutes=2), "failure"), tried(timedelta(seconds=20)), tried(timedelta())])
        self.assertEqual(
            [(one.at.minute, one.succeeded, one.failed) for one in found], [(0, 2, 0), (1, 0, 0), (2, 0, 1)]
        )
        self.assertEqual(found[0].at, NOON.replace(second=0))

    def test_the_width_follows_from_the_time_covered(self) -> None:
        for covered in (
            timedelta(),
            timedelta(minutes=59),
            timedelta(hours=3),
            timedelta(days=2),
            timedelta(days=4000),
        ):
            found = buckets([tried(covered), tried(timedelta())])
            self.assertLessEqual(len(found), 62, covered)
            self.assertEqual(sum(one.succeeded for one in found), 2, covered)
            self.assertLessEqual(found[0].at, NOON)
            steps = {two.at - one.at for one, two in pairwise(found)}
            self.assertLessEqual(len(steps), 1)


class EventTests(TestCase):
    def test_an_event_has_the_attempts_that_sent_it(self) -> None:
        def noted(number: int, focus: str | None) -> dict[str, Any]:
            part = [{"name": "event-number", "valueString": str(number)},
                    {"name": "timestamp", "valueInstant": NOON.isoformat()}]  # fmt: skip
            if focus is not None:
                part.append({"name": "focus", "valueReference": {"reference": focus}})  # type: ignore[dict-item]
            return {"name": "notification-event", "part": part}

        noted_ones = noted(1, "http://h/fhir/Patient/7/_history/2"), noted(2, None), noted(3, "Patient/8")
        status = {"parameter": [{"name": "status", "valueCode": "active"}, *noted_ones]}
        items = [tried(timedelta(), "failure", 3), tried(timedelta(), "success", 1, 2), tried(timedelta(), first=None)]
        found = events({"entry": [{"resource": status}]}, items, delivered=2)
        self.assertEqual(
            [(one.number, one.target, one.is_delivered, [each["outcome"] for each in one.attempts]) for one in found],
            [
                (3, "Patient/8", False, ["failure"]),
                (2, "", True, ["success"]),
                (1, "Patient/7/_history/2", True, ["success"]),
            ],
        )

    def test_no_events(self) -> None:
        self.assertEqual(events({}, [], 0), [])

    def test_at_most_five_attempts_are_shown(self) -> None:
        part = [{"name": "event-number", "valueString": "1"}]
        bundle = {"entry": [{"resource": {"parameter": [{"name": "notification-event", "part": part}]}}]}
        (event,) = events(bundle, [tried(timedelta(), "failure")] * 9, 0)
        self.assertEqual((len(event.attempts), event.attempt_count), (5, 9))


class DryRunTests(TestCase):
    def test_its_answer(self) -> None:
        reference = {"reference": "http://h/fhir/Patient/7/_history/2"}
        parts = [{"name": "focus", "valueReference": reference}, {"name": "timestamp", "valueInstant": "2026"}]
        day = [{"name": "date", "valueDate": "2026-03-04"}, {"name": "count", "valueInteger": 3}]
        found = dry_run_of({"parameter": [
            {"name": "count", "valueInteger": 3}, {"name": "complete", "valueBoolean": False},
            {"name": "day", "part": day}, {"name": "example", "part": parts},
        ]})  # fmt: skip
        self.assertEqual((found["count"], found["complete"], found["failed"]), (3, False, 0))
        self.assertEqual(found["days"], [{"date": "2026-03-04", "count": 3}])
        self.assertEqual(found["examples"], [{"focus": "Patient/7", "timestamp": "2026"}])
