"""The matching index agrees with evaluating every subscription, and evaluates few of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import StoreUnreachable
from ipf.fhir.index.extract import extract
from ipf.fhir.search.evaluation.match import matches
from ipf.fhir.search.language.query import parse_criteria
from ipf.ports import ActiveSubscription, Change, Changes, Json, ServedTopic, Version
from ipf.ports.queries.index import EMPTY
from ipf.subscriptions.guide import FILTER
from ipf.subscriptions.matching import SLICE, MatchingIndex

NOW = datetime(2026, 1, 31, tzinfo=UTC)

CRITERIA = [
    "Patient?",
    "Patient?gender=male",
    "Patient?gender=male,female",
    "Patient?gender=male,other&identifier=urn:a|2",
    "Patient?identifier=urn:a|1",
    "Patient?identifier=1",
    "Patient?identifier=|1",
    "Patient?identifier=urn:a|",
    "Patient?identifier=urn:a|1,urn:b|2",
    "Patient?identifier=urn:a|1&gender=male",
    "Patient?gender:not=male",
    "Patient?gender:missing=true",
    "Patient?name=mu",
    "Patient?name:exact=Muster",
    "Patient?name:contains=ust",
    "Patient?birthdate=ge2000",
    "Patient?birthdate=2000-01-01&gender=male",
    "Patient?_id=p1",
    "Patient?_id=p1,p2&gender=male",
    "Patient?organization=Organization/o1",
    "Patient?organization=o1",
    "Patient?active=true",
    "Patient?name=erg",
    "Patient?name=van",
    "Patient?name=van&gender=male",
    "Patient?_text=bone",
    "Patient?_content=-must&gender=male",
    "Patient?_filter=gender eq male and not(name co ust)",
    "Patient?_filter=identifier eq urn:a|1 or active eq true",
    "Observation?subject=Patient/p1",
]


def change(resource: Json, tenant: str = "default", deleted: bool = False) -> Change:
    """A change with this resource as the new version."""
    version = Version(1, resource["resourceType"], resource["id"], 1, NOW, b"" if deleted else b"{}", deleted)
    after = EMPTY if deleted else extract(resource)
    return Change(tenant, version, None if deleted else resource, EMPTY, after, "c", "create")


def subscriptions(criteria: list[str], tenant: str = "default") -> list[ActiveSubscription]:
    """Numbered from 1."""
    return [
        ActiveSubscription(tenant, number, f"s{number}", {"criteria": text}) for number, text in enumerate(criteria, 1)
    ]


def index(*rows: ActiveSubscription) -> MatchingIndex:
    """An index of these subscriptions."""
    made = MatchingIndex()
    made.load(1, Changes(rows))
    return made


def optional(**members: Any) -> Any:
    """Objects in which each member may be absent."""
    return st.fixed_dictionaries({}, optional=members)


PATIENTS = optional(
    gender=st.sampled_from(["male", "female", "other"]),
    active=st.booleans(),
    birthDate=st.sampled_from(["1999", "2000-01-01", "2001-05"]),
    identifier=st.lists(
        optional(system=st.sampled_from(["urn:a", "urn:b"]), value=st.sampled_from(["1", "2"])), max_size=2
    ),
    name=st.lists(st.builds(dict, family=st.sampled_from(["Muster", "muster", "Must", "Huber van Erg"])), max_size=2),
    text=st.sampled_from([{"status": "generated", "div": "<div>in bone</div>"}, {"status": "empty", "div": "<div/>"}]),
    managingOrganization=st.builds(dict, reference=st.sampled_from(["Organization/o1", "Organization/o2"])),
)


class MatchingTests(TestCase):
    @settings(max_examples=60, deadline=None)
    @given(PATIENTS, st.sampled_from(["p1", "p2", "p3"]), st.lists(st.sampled_from(CRITERIA), max_size=30))
    def test_agrees_with_brute_force(self, members: Json, id: str, criteria: list[str]) -> None:
        """The index and brute force agree."""
        resource = {"resourceType": "Patient", "id": id, **members}
        one = change(resource)
        expected = [
            number
            for number, text in enumerate(criteria, 1)
            if (query := parse_criteria(text)).resource_type == "Patient"
            and matches(query, one.after, id=id, last_updated=NOW, resource=resource)
        ]
        self.assertEqual(index(*subscriptions(criteria)).match(one), expected)

    def test_tenant_type_and_deletion(self) -> None:
        rows = index(*subscriptions(["Patient?"]))
        person = {"resourceType": "Patient", "id": "a"}
        self.assertEqual(rows.match(change(person)), [1])
        self.assertEqual(rows.match(change(person, tenant="other")), [])
        self.assertEqual(rows.match(change(person, deleted=True)), [])
        self.assertEqual(rows.match(change({"resourceType": "Encounter", "id": "a"})), [])

    def test_load_replaces(self) -> None:
        rows = MatchingIndex()
        self.assertEqual(rows.epoch, -1)
        rows.load(4, Changes(subscriptions(["Patient?"])))
        rows.load(5, Changes(subscriptions(["Encounter?"])))
        self.assertEqual(rows.epoch, 5)
        self.assertEqual(rows.match(change({"resourceType": "Patient", "id": "a"})), [])

    def test_large_loads_run_in_slices(self) -> None:
        """The reactor runs between slices; writers that need the new epoch wait and do not read it again."""
        pauses: list[Deferred[None]] = []

        def pause() -> Deferred[None]:
            pauses.append(Deferred())
            return pauses[-1]

        rows, read = MatchingIndex(pause), []

        async def changes(since: int) -> Changes:
            read.append(since)
            return Changes(iter(subscriptions(["Patient?"] * (2 * SLICE))))

        first, second = [Deferred.fromCoroutine(rows.update_to(7, changes)) for _ in range(2)]
        for step in range(4):
            self.assertEqual((len(pauses), rows.epoch), (step + 1, -1))
            self.assertNoResult(first)
            self.assertNoResult(second)
            pauses[step].callback(None)
        self.successResultOf(first)
        self.successResultOf(second)
        self.assertEqual((rows.epoch, read), (7, [-1]))
        self.assertEqual(len(rows.match(change({"resourceType": "Patient", "id": "a"}))), 2 * SLICE)
        older = Deferred.fromCoroutine(rows.update_to(3, changes))  # of a database that was restored
        for step in range(4, 8):
            pauses[step].callback(None)
        self.successResultOf(older)
        self.assertEqual((rows.epoch, read), (3, [-1, -1]))

    def test_cancelled_or_failed_load_leaves_a_complete_index(self) -> None:
        """Cancelling a load completes it; a failed read leaves the index as it was."""
        rows = MatchingIndex(Deferred)

        async def changes(since: int) -> Changes:
            return Changes(subscriptions(["Patient?"] * (SLICE + 1)))

        async def broken(since: int) -> Changes:
            raise StoreUnreachable

        cancelled = Deferred.fromCoroutine(rows.update_to(7, changes))
        cancelled.cancel()
        self.failureResultOf(cancelled, CancelledError)
        self.assertEqual(rows.epoch, 7)
        self.failureResultOf(Deferred.fromCoroutine(rows.update_to(8, broken)), StoreUnreachable)
        self.assertEqual((rows.epoch, len(rows.match(change({"resourceType": "Patient", "id": "a"})))), (7, SLICE + 1))

    def test_unreadable_subscription_does_not_affect_others(self) -> None:
        rows = index(*subscriptions(["Patient?nonsense=1", "Patient?"]))
        self.assertEqual(rows.match(change({"resourceType": "Patient", "id": "a"})), [2])

    def test_few_candidates_are_evaluated(self) -> None:
        """Subscriptions that differ in one equality term are separated by it, whatever the order of terms."""
        criteria = [f"Observation?code=http://loinc.org|8480-6&subject=Patient/p{number}" for number in range(500)]
        criteria += [f"Observation?subject=Patient/q{number}&code=8480-6" for number in range(500)]
        rows = index(*subscriptions(criteria))
        searches = rows._by_search["default", "Observation"]
        coding = [{"system": "http://loinc.org", "code": "8480-6"}]
        resource = {
            "resourceType": "Observation",
            "id": "o",
            "code": {"coding": coding},
            "subject": {"reference": "Patient/q7"},
        }
        one = change(resource)
        self.assertEqual(rows.match(one), [508])
        self.assertLessEqual(len(list(searches.candidates("o", one.after))), 4)

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_incremental_loads_equal_a_full_load(self, data: st.DataObject) -> None:
        """After any sequence of changes, the index gives the same matches as a new one."""
        stepwise, epoch = MatchingIndex(), 1
        stepwise.load(epoch, Changes())
        rows: dict[int, Json | None] = {}
        topics: dict[int, Json | None] = {}
        for _ in range(data.draw(st.integers(1, 8))):
            changes = Changes(
                [ActiveSubscription("default", rid, f"s{rid}", one) for rid, one in data.draw(CHANGED_ROWS).items()],
                [ServedTopic("default", 1000 + rid, one) for rid, one in data.draw(CHANGED_TOPICS).items()],
            )
            rows.update((one.rid, one.resource) for one in changes.subscriptions)
            topics.update((one.rid, one.resource) for one in changes.topics)
            stepwise.load(epoch + 1, changes, epoch)
            stepwise.load(
                epoch, Changes([ActiveSubscription("default", 1, "s1", None)]), epoch - 1
            )  # older than the index
            epoch += 1
        anew = MatchingIndex()
        kept = [ActiveSubscription("default", rid, f"s{rid}", one) for rid, one in sorted(rows.items()) if one]
        anew.load(
            epoch, Changes(kept, [ServedTopic("default", rid, one) for rid, one in sorted(topics.items()) if one])
        )
        self.assertEqual((stepwise.epoch, stepwise.unserved.keys()), (epoch, anew.unserved.keys()))
        for gender in ("male", "female"):
            for id in ("p1", "p2"):
                for deleted in (False, True):
                    one = change({"resourceType": "Patient", "id": id, "gender": gender}, deleted=deleted)
                    if deleted:
                        before = {"resourceType": "Patient", "id": id, "gender": gender}
                        one = replace(one, before=extract(before), previous=before, interaction="delete")
                    self.assertEqual(stepwise.match(one), anew.match(one))


def _subscription(criteria: str, *filters: str) -> Json:
    found: Json = {"criteria": criteria}
    if filters:
        found["_criteria"] = {"extension": [{"url": FILTER, "valueString": text} for text in filters]}
    return found


def _topic(url: str, **trigger: Any) -> Json:
    rules = [{"filterParameter": "gender"}, {"filterParameter": "_id"}]
    return {
        "url": url,
        "status": "active",
        "resourceTrigger": [{"resource": "Patient", **trigger}],
        "canFilterBy": rules,
    }


CHANGED_ROWS = st.dictionaries(
    st.integers(1, 6),
    st.sampled_from(
        [
            None,
            _subscription("Patient?gender=male"),
            _subscription("Patient?_id=p1,p2"),
            _subscription("Patient?"),
            _subscription("urn:t1"),
            _subscription("urn:t1", "gender=male"),
            _subscription("urn:t2", "_id=p1"),
            _subscription("urn:t2", "birthdate=2000"),
        ]
    ),
    max_size=4,
)
CHANGED_TOPICS = st.dictionaries(
    st.integers(1, 3),
    st.sampled_from(
        [
            None,
            _topic("urn:t1"),
            _topic("urn:t1", queryCriteria={"current": "gender=male"}),
            _topic("urn:t2", supportedInteraction=["delete"]),
            _topic("urn:t2", queryCriteria={"previous": "gender=female", "resultForCreate": "test-passes"}),
        ]
    ),
    max_size=2,
)
