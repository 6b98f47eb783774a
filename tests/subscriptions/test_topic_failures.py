"""Topics that fail on a change: what is counted, logged and reported, and when a report is out of date."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.logger import globalLogPublisher
from twisted.trial.unittest import TestCase

from ipf.fhir.index.extract import extract
from ipf.fhir.topics.topic import read_topic
from ipf.fhir.topics.trigger import TriggerFailed
from ipf.ports import ActiveSubscription, Change, Changes, Json, ServedTopic, Version
from ipf.ports.queries.index import EMPTY
from ipf.subscriptions.criteria import Criteria
from ipf.subscriptions.dry_run import DryRun
from ipf.subscriptions.guide import FILTER
from ipf.subscriptions.matching import MatchingIndex
from ipf.subscriptions.topic_failures import LOG_INTERVAL, FailingTopic, TopicFailures, error_text, failing_topic

URL = "http://example.org/topics/one-location"
RULE = "resourceTrigger[0].fhirPathCriteria"
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def topic(version: str = "1", expression: str = "%current.location.single().exists()", **members: Any) -> Json:
    """A topic that fails on encounters with two locations."""
    trigger = {"resource": "Encounter", "fhirPathCriteria": expression}
    made = {"resourceType": "SubscriptionTopic", "url": URL, "status": "active", "resourceTrigger": [trigger],
            "canFilterBy": [{"filterParameter": "patient"}], "meta": {"versionId": version}}  # fmt: skip
    return {**made, **members}


def row(number: int, *filters: str, status: str = "active", **members: Any) -> ActiveSubscription:
    """A stored subscription to the topic."""
    extensions = [{"url": FILTER, "valueString": text} for text in filters]
    made = {"criteria": URL, "status": status, "_criteria": {"extension": extensions}, **members}
    return ActiveSubscription("default", number, f"s{number}", made)


def change(locations: int, patient: str = "p1") -> Change:
    """A created Encounter with so many locations."""
    places = [{"location": {"reference": f"Location/{number}"}} for number in range(locations)]
    resource: Json = {"resourceType": "Encounter", "id": "e", "status": "planned", "location": places,
                      "subject": {"reference": f"Patient/{patient}"}}  # fmt: skip
    version = Version(1, "Encounter", "e", 1, NOW, b"{}")
    return Change("default", version, resource, EMPTY, extract(resource), "c", "create")


def reported(index: MatchingIndex) -> list[str]:
    """The ids of the subscriptions to report to."""
    return [id for _, id, _ in index.failures.pending(9)]


class MatchingTests(TestCase):
    def setUp(self) -> None:
        self.counted = 0
        self.index = MatchingIndex(None, self.count)
        rows = [row(1), row(2, "patient=Patient/p2"), row(3, status="off"), row(4, status="requested")]
        rows += [row(5, status="error")]
        self.index.load(1, Changes(rows, [ServedTopic("default", 100, topic())]))

    def count(self) -> None:
        self.counted += 1

    def test_a_change_that_fails_does_not_fire_and_is_reported_to_those_whom_it_concerns(self) -> None:
        self.assertEqual(self.index.match(change(1)), [1, 3, 4, 5])
        self.assertEqual((self.counted, reported(self.index)), (0, []))
        self.assertEqual(self.index.match(change(2)), [])
        self.assertEqual((self.counted, reported(self.index)), (1, ["s1", "s4"]))
        self.assertEqual(self.index.match(change(2, "p2")), [])
        self.assertEqual((self.counted, reported(self.index)), (2, ["s1", "s4", "s2"]))
        _, _, text = self.index.failures.pending(9)[0]
        self.assertEqual(text, f"the topic {URL} (version 1) cannot be evaluated: {RULE}: single() found 2 items; "
                               "changes since 2026-01-01T12:00:00.000Z may not have been notified")  # fmt: skip
        self.assertEqual([id for _, id, _ in self.index.failures.pending(2)], ["s1", "s4"])
        self.index.failures.postponed("default", "s1")
        self.index.failures.postponed("default", "s9")
        self.assertEqual(reported(self.index), ["s4", "s2", "s1"])
        self.index.failures.reported("default", "s1")
        self.assertEqual(reported(self.index), ["s4", "s2"])

    def test_a_version_of_a_topic_is_reported_once(self) -> None:
        """A Subscription that has the report is not reported to again, also by another process or for another rule."""
        told = error_text(read_topic(topic()), TriggerFailed("resourceTrigger[7].queryCriteria", "x"), NOW)
        self.index.load(2, Changes([row(1, error=told), row(4), row(2, error="HTTP status 500")]), 1)
        self.index.match(change(2, "p2"))
        self.assertEqual(reported(self.index), ["s2", "s4"], "s1 has it")

    def test_another_trigger_still_fires(self) -> None:
        triggers = [*topic()["resourceTrigger"], {"resource": "Encounter"}]
        self.index.load(2, Changes([], [ServedTopic("default", 100, topic("2", resourceTrigger=triggers))]), 1)
        self.assertEqual(self.index.match(change(2)), [1, 3, 4, 5])
        self.assertEqual(self.counted, 1)

    def test_a_report_is_out_of_date_when_the_topic_has_another_version(self) -> None:
        told = error_text(read_topic(topic()), TriggerFailed(RULE, "x"), NOW)
        rows = [row(1, error=told), row(2, error="HTTP status 500"), row(5, status="error", error=told)]
        self.index.load(2, Changes(rows), 1)
        self.assertEqual([(one.id, current) for one, _, current in self.index.failing()], [("s1", True)])
        self.index.load(3, Changes([], [ServedTopic("default", 100, topic("2"))]), 2)
        self.assertEqual([(one.id, current) for one, _, current in self.index.failing()], [("s1", False)])
        self.index.load(4, Changes([row(1)]), 3)
        self.assertEqual(self.index.failing(), [])
        anew = MatchingIndex()  # another process, or after a restart
        anew.load(3, Changes(rows, [ServedTopic("default", 100, topic())]))
        self.assertEqual([(one.id, current) for one, _, current in anew.failing()], [("s1", True)])

    def test_a_dry_run_counts_them(self) -> None:
        candidate = DryRun("default", {"criteria": URL, "status": "requested"}, read_topic(topic()))
        self.assertEqual([candidate.fires(change(number)) for number in (0, 1, 2, 3)], [False, True, False, False])
        self.assertEqual(candidate.failed_count, 2)  # single() of nothing is empty: no failure


class RecordTests(TestCase):
    def test_one_line_an_interval_for_each_topic_and_rule(self) -> None:
        lines: list[tuple[object, object]] = []

        def observe(event: dict[str, Any]) -> None:
            if str(event.get("log_format")).startswith("event=topic_failed"):
                lines.append((event["rule"], event["total"]))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        failures, served = TopicFailures(), read_topic(topic())
        subscriber = [Criteria("default", "s1", URL, URL, status="active")]
        for number in range(50):
            failures.record("default", served, TriggerFailed("a", "x"), NOW + timedelta(seconds=number), subscriber)
        failures.record("default", served, TriggerFailed("b", "x"), NOW, subscriber)
        failures.record("default", served, TriggerFailed("a", "x"), NOW + LOG_INTERVAL, subscriber)
        self.assertEqual(lines, [("a", 1), ("b", 1), ("a", 51)])
        self.assertEqual(len(failures.pending(9)), 1)

    def test_texts_are_read_back(self) -> None:
        text = error_text(read_topic(topic("7")), TriggerFailed(RULE, "no: (version 8)"), NOW)
        self.assertEqual(failing_topic(text), FailingTopic(URL, "7", RULE))
        for other in (None, "", "HTTP status 500", "the handshake failed: timeout", 5):
            self.assertIsNone(failing_topic(other))
