"""Matching within the grants of the writers: who learns of which change, and of which criteria."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.fhir.index.extract import extract
from ipf.fhir.model.bundle import instant
from ipf.ports import ActiveSubscription, Caller, Change, Changes, Json, ServedTopic, Version
from ipf.ports.queries.index import EMPTY
from ipf.subscriptions.guide import FILTER
from ipf.subscriptions.matching import MatchingIndex
from tests.subscriptions.test_topic_failures import reported

NOW = datetime(2026, 1, 31, tzinfo=UTC)
URL = "http://example.org/topics/observations"

WIDE = Caller("ehr", "ehr", ("system/*.cruds",))
PLAIN = Caller("signal", "app", ("system/Subscription.crus",))
ADA = Caller("ada", "app", ("system/Subscription.crus", "patient/*.rs"), patient="p1")
BOB = Caller("bob", "app", ("system/Subscription.crus", "patient/*.rs"), patient="p2")
FINAL = Caller("lab", "lab", ("system/Subscription.crus", "system/Observation.rs?status=final"))


def observation(patient: str, status: str = "final", **members: Any) -> Json:
    """An Observation of a patient."""
    return {"resourceType": "Observation", "id": "o", "status": status, "subject": {"reference": f"Patient/{patient}"},
            "meta": {"lastUpdated": instant(NOW - timedelta(days=1))}, **members}  # fmt: skip


def change(before: Json | None, after: Json | None) -> Change:
    """The change from one content to the other; None: there is none."""
    resource = after or before or {}
    version = Version(1, str(resource["resourceType"]), "o", 1 if before is None else 2, NOW,
                      b"{}" if after else b"", after is None)  # fmt: skip
    entries = [EMPTY if one is None else extract(one) for one in (before, after)]
    interaction = "delete" if after is None else "create" if before is None else "update"
    return Change("default", version, after, entries[0], entries[1], "c", interaction, before)


def rows(criteria: str, *writers: tuple[Caller, ...], filters: tuple[str, ...] = ()) -> list[ActiveSubscription]:
    """A subscription for each tuple of writers, numbered from 1."""
    resource: Json = {"criteria": criteria, "status": "active"}
    if filters:
        resource["_criteria"] = {"extension": [{"url": FILTER, "valueString": text} for text in filters]}
    return [ActiveSubscription("default", number, f"s{number}", resource, who) for number, who in enumerate(writers, 1)]


def topic(**trigger: Any) -> list[ServedTopic]:
    """A topic of changes of Observations."""
    resource = {"resourceType": "SubscriptionTopic", "url": URL, "status": "active", "meta": {"versionId": "1"},
                "resourceTrigger": [{"resource": "Observation", **trigger}],
                "canFilterBy": [{"filterParameter": "status"}]}  # fmt: skip
    return [ServedTopic("default", 100, resource)]


WRITERS = ((), (WIDE,), (PLAIN,), (ADA,), (BOB,), (ADA, BOB), (WIDE, ADA), (FINAL,), (ADA, FINAL))
A, B, DRAFT = observation("p1"), observation("p2"), observation("p1", "preliminary")

# (before, after, numbers of the subscriptions of WRITERS that fire)
BY_SEARCH: list[tuple[Json | None, Json | None, list[int]]] = [
    (None, A, [1, 2, 3, 4, 7, 8, 9]),
    (None, B, [1, 2, 3, 5, 8]),
    (None, DRAFT, [1, 2, 3, 4, 7]),
    (A, B, [1, 2, 3, 5, 8]),
    (DRAFT, A, [1, 2, 3, 4, 7, 8, 9]),
    (A, DRAFT, [1, 2, 3, 4, 7]),
    (A, None, []),
]

# The topic fires for each deletion, and for updates only when the version before was preliminary.
BY_TOPIC: list[tuple[Json | None, Json | None, list[int]]] = [
    (None, A, []),
    (DRAFT, A, [1, 2, 3, 4, 7]),
    (A, DRAFT, []),
    (observation("p2", "preliminary"), B, [1, 2, 3, 5]),
    (observation("p2", "preliminary"), A, [1, 2, 3]),
    (A, None, []),
    (DRAFT, None, [1, 2, 3, 4, 7]),
    (observation("p2", "preliminary"), None, [1, 2, 3, 5]),
]


class MatchingTests(TestCase):
    def match(self, index: MatchingIndex, table: list[tuple[Json | None, Json | None, list[int]]]) -> None:
        """Each change fires these subscriptions."""
        for number, (before, after, expected) in enumerate(table):
            self.assertEqual(index.match(change(before, after)), expected, (number, before, after))

    def test_by_search(self) -> None:
        index = MatchingIndex()
        index.load(1, Changes(rows("Observation?", *WRITERS)))
        self.match(index, BY_SEARCH)
        index.load(2, Changes([ActiveSubscription("default", 4, "s4", None)]), 1)
        self.match(index, [(None, A, [1, 2, 3, 7, 8, 9])])
        index.load(3, Changes(rows("Observation?", (BOB,))), 2)
        self.match(index, [(None, A, [2, 3, 7, 8, 9])])

    def test_by_topic(self) -> None:
        """The version before decides only for those that could see it."""
        index = MatchingIndex()
        trigger = {"queryCriteria": {"previous": "status=preliminary", "resultForDelete": "test-passes"}}
        index.load(1, Changes(rows(URL, *WRITERS), topic(**trigger)))
        self.match(index, BY_TOPIC)

    def test_what_comes_within_the_limits_is_a_create(self) -> None:
        index = MatchingIndex()
        index.load(1, Changes(rows(URL, *WRITERS), topic(supportedInteraction=["create"])))
        self.match(index, [(None, A, [1, 2, 3, 4, 7, 8, 9]), (B, A, [4, 7, 9]), (DRAFT, A, [8, 9])])
        index.load(2, Changes((), topic(supportedInteraction=["update"])), 1)
        self.match(index, [(None, A, []), (B, A, [1, 2, 3, 8]), (DRAFT, A, [1, 2, 3, 4, 7])])

    def test_a_failing_topic_is_reported_to_those_who_see_the_change(self) -> None:
        index = MatchingIndex()
        index.load(1, Changes(rows(URL, *WRITERS), topic(fhirPathCriteria="%current.note.single().exists()")))
        notes: Json = {"note": [{"text": "a"}, {"text": "b"}]}
        self.match(index, [(None, {**B, **notes}, [])])
        self.assertEqual(reported(index), ["s1", "s2", "s3", "s5", "s8"])
        self.match(index, [(None, {**DRAFT, **notes}, [])])
        self.assertEqual(reported(index), ["s1", "s2", "s3", "s5", "s8", "s4", "s7"])

    def test_stored_grants_have_no_effect_without_authentication(self) -> None:
        index = MatchingIndex(has_grants=False)
        index.load(1, Changes(rows("Observation?", *WRITERS)))
        self.match(index, [(None, B, list(range(1, 10)))])
        index.check("default", {"criteria": "Condition?code=x"}, caller=FINAL)


EVERY = Caller("x", "x", ("system/Subscription.crus", "system/Observation.s"))
READER = Caller("x", "x", ("system/Subscription.crus", "system/Observation.r"))
NARROW_READER = Caller("x", "x", ("system/Subscription.crus", "patient/Observation.r"), patient="p1")

# (criteria, filters, writer, refused type by default, with needs_search)
CRITERIA: list[tuple[str, tuple[str, ...], Caller, str, str]] = [
    ("Condition?code=x", (), WIDE, "", ""),
    ("Condition?code=x", (), PLAIN, "", "Condition"),
    ("Condition?", (), PLAIN, "", ""),
    ("Condition?_id=1", (), PLAIN, "", "Condition"),
    ("Condition?code=x", (), ADA, "", ""),
    ("Condition?code=x", (), FINAL, "Condition", "Condition"),
    ("Condition?", (), FINAL, "Condition", "Condition"),
    ("Observation?code=x", (), FINAL, "", ""),
    ("Observation?code=x", (), EVERY, "", ""),
    ("Observation?code=x", (), READER, "", "Observation"),
    ("Observation?", (), READER, "", ""),
    ("Observation?", (), NARROW_READER, "", ""),
    ("Observation?code=x", (), NARROW_READER, "Observation", "Observation"),
    (URL, (), PLAIN, "", "Observation"),
    (URL, ("status=final",), PLAIN, "", "Observation"),
    (URL, (), READER, "", "Observation"),
    (URL, (), EVERY, "", ""),
    (URL, (), ADA, "", ""),
    (URL, (), NARROW_READER, "Observation", "Observation"),
    ("Observation?code=x", (), Caller("x", "x", ("patient/*.rs",)), "Observation", "Observation"),
]


class CriteriaTests(TestCase):
    """What may be registered, and what becomes of what is stored."""

    def test_table(self) -> None:
        trigger = {"queryCriteria": {"current": "status=final"}}
        for criteria, filters, writer, *expected in CRITERIA:
            for needs_search, refused in zip((False, True), expected, strict=True):
                index = MatchingIndex(needs_search=needs_search)
                (row,) = rows(criteria, (writer,), filters=filters)
                index.load(1, Changes([row], topic(**trigger)))
                case = criteria, filters, writer, needs_search
                self.assertEqual([one.id for one in index.unserved.values()], ["s1"] if refused else [], case)
                assert row.resource is not None
                found = ""
                try:
                    index.check("default", row.resource, caller=writer)
                except Problem as problem:
                    found = problem.text.rpartition(" ")[2]
                    self.assertEqual(problem.category.value.http_status, 401)
                self.assertEqual(found, refused, case)

    def test_a_topic_without_conditions_is_only_a_signal(self) -> None:
        index = MatchingIndex(needs_search=True)
        index.load(1, Changes(rows(URL, (PLAIN,), (READER,), (FINAL,)), topic()))
        self.assertEqual(index.unserved, {})
        index.load(2, Changes(rows(URL, (PLAIN,), (READER,), (FINAL,), filters=("status=final",))), 1)
        self.assertEqual([one.id for one in index.unserved.values()], ["s1", "s2"])

    def test_all_writers_count(self) -> None:
        index = MatchingIndex(needs_search=True)
        index.load(1, Changes(rows("Observation?code=x", (WIDE, PLAIN), (WIDE,))))
        self.assertEqual([one.id for one in index.unserved.values()], ["s1"])

    def test_signals(self) -> None:
        """What a writer learns of types that it may not search."""
        index = MatchingIndex()
        index.load(1, Changes((), topic(queryCriteria={"current": "status=final"})))
        for criteria, writer, expected in (
            ("Condition?code=x", PLAIN, ["Condition"]),
            ("Condition?", PLAIN, []),
            ("Condition?code=x", WIDE, []),
            (URL, READER, ["Observation"]),
            ("urn:x:no-topic", PLAIN, []),
        ):
            self.assertEqual(list(index.signals("default", {"criteria": criteria}, writer)), expected, criteria)
