"""Triggers as tables: which changes fire, with the expressions of published topics, and which cannot be evaluated.

The expressions are those that HL7's Subscriptions Backport guide, R5 and fhir-candle publish for their topics.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.fhir.index.extract import extract
from ipf.fhir.topics.topic import check_topic, read_topic
from ipf.fhir.topics.trigger import TriggerFailed, fires
from ipf.ports import DEFAULT_TENANT, Change, Json, Version
from ipf.ports.queries.index import EMPTY

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LAB = [{"coding": [{"system": "http://terminology.hl7.org/CodeSystem/observation-category", "code": "laboratory"}]}]


def topic(resource: str, **trigger: Any) -> Json:
    """An active topic with one trigger."""
    made = {"resourceType": "SubscriptionTopic", "url": "urn:topic", "status": "active"}
    return {**made, "resourceTrigger": [{"resource": resource, **trigger}]}


def change(before: Json | None, after: Json | None) -> Change:
    """The change from one state of a resource to another; None = there is none."""
    known = after or before
    assert known is not None
    version = Version(1, known["resourceType"], known["id"], 2, NOW, b"", after is None)
    interaction = "create" if before is None else "delete" if after is None else "update"
    entries = [EMPTY if one is None else extract(one) for one in (before, after)]
    return Change(DEFAULT_TENANT, version, after, *entries, "c", interaction, before)


def encounter(status: str, **members: Any) -> Json:
    """An Encounter."""
    return {"resourceType": "Encounter", "id": "e", "status": status, "class": {"code": "AMB"}, **members}


def observation(status: str, *, category: Any = LAB, **members: Any) -> Json:
    """A laboratory Observation."""
    return {"resourceType": "Observation", "id": "o", "status": status, "category": category, **members}


def fired(definition: Json, before: Json | None, after: Json | None) -> bool:
    """Whether the change fires the topic's trigger."""
    return fires(read_topic(definition).triggers[0], change(before, after))


PLANNED, STARTED, DONE = encounter("planned"), encounter("in-progress"), encounter("finished")
HERE, THERE = ([{"location": {"reference": f"Location/{name}"}}] for name in ("a", "b"))


class PublishedTopicTests(TestCase):
    def table(self, definition: Json, rows: list[tuple[Json | None, Json | None, bool]]) -> None:
        for before, after, expected in rows:
            self.assertEqual(fired(definition, before, after), expected, (definition, before, after))

    def test_encounter_complete(self) -> None:
        """All forms of it: with `or`, with `|` (which then has two items in a boolean context), by search."""
        rows = [
            (None, DONE, True),
            (PLANNED, DONE, True),
            (STARTED, DONE, True),
            (DONE, DONE, False),
            (DONE, STARTED, False),
            (None, PLANNED, False),
            (PLANNED, STARTED, False),
            (DONE, None, False),
            (PLANNED, None, False),
        ]
        ends = "and (%current.status = 'finished')"
        for begins in (
            "(%previous.empty() or (%previous.status != 'finished'))",
            "(%previous.empty() | (%previous.status != 'finished'))",
            "(%previous.id.empty() or (%previous.status != 'finished'))",
            "(%previous.id.empty() | (%previous.status != 'finished'))",
            "(%previous.id.exists().not() or (%previous.status != 'finished'))",
            "(%previous.id.exists().not() | (%previous.status != 'finished'))",
        ):
            self.table(topic("Encounter", fhirPathCriteria=f"{begins} {ends}"), rows)
        search = {"previous": "status:not=finished", "resultForCreate": "test-passes", "current": "status=finished",
                  "resultForDelete": "test-fails", "requireBoth": True}  # fmt: skip
        self.table(topic("Encounter", queryCriteria=search), rows)
        both = "(%previous.id.empty() or (%previous.status != 'finished')) and (%current.status = 'finished')"
        self.table(topic("Encounter", queryCriteria=search, fhirPathCriteria=both), rows)

    def test_encounter_start(self) -> None:
        """R5's admission: without `empty()`, a creation does not fire."""
        expression = "%previous.status!='in-progress' and %current.status='in-progress'"
        rows = [(None, STARTED, False), (PLANNED, STARTED, True), (STARTED, STARTED, False), (STARTED, None, False)]
        self.table(topic("Encounter", fhirPathCriteria=expression), rows)

    def test_patient_data_feed(self) -> None:
        """US Core's feed, as fhir-candle has it: status, location and results."""
        status = "%previous.id.empty() or %current.id.empty() or (%previous.status != %current.status)"
        self.table(
            topic("Encounter", fhirPathCriteria=status),
            [(None, PLANNED, True), (PLANNED, DONE, True), (DONE, DONE, False), (DONE, None, True)],
        )
        place = (
            "(%previous.location.empty() and %current.location.empty().not()) or (%previous.location.empty().not() "
            "and %current.location.empty().not() and (%previous.location != %current.location))"
        )
        one, other, both = (encounter("planned", location=found) for found in (HERE, THERE, [*HERE, *THERE]))
        self.table(
            topic("Encounter", fhirPathCriteria=place),
            [(None, one, True), (None, PLANNED, False), (PLANNED, one, True), (one, other, True), (one, one, False),
             (one, both, True), (both, both, False), (one, PLANNED, False), (one, None, False)],
        )  # fmt: skip
        is_lab = (
            "{}.category.coding.exists(system = 'http://terminology.hl7.org/CodeSystem/observation-category' "
            "and code = 'laboratory')"
        )
        value = (
            "(%previous.id.empty() or %current.id.empty() or (%previous.value != %current.value)) and "
            f"({is_lab.format('%previous')} or {is_lab.format('%current')})"
        )
        low, high = (observation("final", valueQuantity={"value": number, "unit": "g"}) for number in (1, 2))
        other_kind = observation("final", category=[{"text": "other"}], valueString="x")
        self.table(
            topic("Observation", fhirPathCriteria=value),
            [(None, low, True), (low, high, True), (low, low, False), (None, other_kind, False), (low, None, True)],
        )

    def test_status_change(self) -> None:
        """The form of several guides: a creation has no previous status, and does not fire."""
        self.table(
            topic("Encounter", fhirPathCriteria="%previous.status != %current.status"),
            [(PLANNED, DONE, True), (DONE, DONE, False), (None, DONE, False), (DONE, None, False)],
        )

    def test_several_items_in_a_boolean_context_are_true(self) -> None:
        two = encounter("planned", location=[*HERE, *THERE])
        for expression, expected in (
            ("%current.location", True),
            ("%current.location and %current.status = 'planned'", True),
            ("%current.location.not()", False),
            ("%current.identifier or %current.location", True),
            ("%current.status.where(%current.location).exists()", True),
            ("%current.identifier", False),
            ("(%current.status = 'x' | %previous.status = 'y')", False),
        ):
            self.assertEqual(fired(topic("Encounter", fhirPathCriteria=expression), None, two), expected, expression)


class FailureTests(TestCase):
    def test_an_expression_that_fails_says_where_and_why(self) -> None:
        two = encounter("planned", location=[*HERE, *THERE], subject={"reference": "Patient/secret"})
        for expression, reason in (
            ("%current.location.location.reference > 'a'", "needs one item, got 2"),
            ("%current.location.single().exists()", "single() found 2 items"),
            ("%former.status = 'x'", "unknown variable %former"),
            ("%current.subject.resolve().active", "topics match single resources"),
            ("%current.subject.reference + 1 = 2", "cannot be applied"),
        ):
            definition = topic("Encounter", fhirPathCriteria=expression)
            with self.assertRaises(TriggerFailed) as caught:
                fired(definition, None, two)
            self.assertEqual(caught.exception.rule, "resourceTrigger[0].fhirPathCriteria")
            self.assertIn(reason, caught.exception.reason)
            self.assertNotIn("secret", str(caught.exception))

    def test_an_unexpected_error_does_not_reach_the_writer(self) -> None:
        """Only the kind of the error is told, since its text may have data."""

        class Broken:
            def test(self, focus: Any, variables: Any = None, /) -> bool:
                raise ValueError("Miller")

        (trigger,) = read_topic(topic("Encounter", fhirPathCriteria="true")).triggers
        trigger = type(trigger)("Encounter", expression=Broken(), place="resourceTrigger[3]")
        with self.assertRaises(TriggerFailed) as caught:
            fires(trigger, change(None, DONE))
        self.assertEqual(str(caught.exception), "resourceTrigger[3].fhirPathCriteria: an unexpected ValueError")


class UnsupportedPartTests(TestCase):
    def test_parts_without_effect_are_listed(self) -> None:
        """Each with its place; what remains is served."""
        definition = {
            **topic("Encounter"),
            "eventTrigger": [{"event": {"text": "x"}, "resource": "Patient"}],
            "canFilterBy": [
                {"resource": "Encounter", "filterParameter": "subject"},
                {"resource": "Encounter", "filterParameter": "_in"},
                {"resource": "Nonsense", "filterParameter": "x"},
                {"resource": "*", "filterParameter": "patient"},
            ],
            "notificationShape": [
                {"resource": "Encounter", "include": ["Encounter:patient&iterate=Patient.link", "Encounter:nonsense"]},
                {"resource": "Nonsense"},
            ],
        }
        places = [issue.place for issue in check_topic(definition)]
        self.assertEqual(places, [
            "SubscriptionTopic.eventTrigger[0]",
            "SubscriptionTopic.canFilterBy[1]",
            "SubscriptionTopic.canFilterBy[2].resource",
            "SubscriptionTopic.notificationShape[0].include[0]",
            "SubscriptionTopic.notificationShape[0].include[1]",
            "SubscriptionTopic.notificationShape[1].resource",
        ])  # fmt: skip
        served = read_topic(definition)
        self.assertEqual([one.parameter for one in served.filters], ["subject", "patient"])
        assert served.shapes is not None
        self.assertEqual([one.code for one in served.shapes["Encounter"]], ["patient"])

    def test_a_topic_that_cannot_fire_or_fires_less_is_refused(self) -> None:
        events = [{"event": {"text": "x"}, "resource": "Patient"}]
        for definition in (
            {**topic("Encounter"), "resourceTrigger": [], "eventTrigger": events},
            topic("Nonsense"),
            topic("Encounter", fhirPathCriteria="status ="),
            topic("Encounter", queryCriteria={"current": "nonsense=1"}),
        ):
            self.assertRaises(Problem, check_topic, definition)
