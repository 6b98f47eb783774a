"""The contract of `ports.FhirStore` and `ports.FhirTransaction`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from twisted.internet import defer
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem, WriteConflict
from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.search.language.query import parse_criteria
from ipf.ports import (
    Change,
    FhirStore,
    Json,
    Lookup,
    NewEvent,
    Receipt,
    ReindexRequest,
    SubscriptionState,
    TopicState,
    Version,
    Writes,
)
from ipf.ports.queries.index import EMPTY
from ipf.ports.queries.search import Query, Sort
from ipf.rest.write.match_locks import locks_of

T0 = datetime(2024, 1, 1, tzinfo=UTC)
CORRELATION = str(uuid4())


def patient(id: str, **content: Any) -> Json:
    """A Patient resource."""
    return {"resourceType": "Patient", "id": id, **content}


def identified(id: str, value: str, system: str = "urn:mrn") -> Json:
    """A Patient with one identifier."""
    return patient(id, identifier=[{"system": system, "value": value}])


def change(rid: int, resource: Json, number: int = 1, before: Json | None = None, **other: Any) -> Change:
    """Version `number` of `resource`; `deleted=True` makes it a deletion."""
    deleted = bool(other.get("deleted"))
    at = other.get("at", T0.replace(minute=number % 60))
    body = b"" if deleted else dumps(resource)
    method = "DELETE" if deleted else "PUT"
    version = Version(rid, resource["resourceType"], resource["id"], number, at, body, deleted, method)
    return Change(
        other.get("tenant", "default"), version, None if deleted else resource,
        EMPTY if before is None else extract(before), EMPTY if deleted else extract(resource), CORRELATION,
        "create" if number == 1 else "update",
    )  # fmt: skip


def ids(versions: Sequence[Version]) -> list[str]:
    """Logical ids in order."""
    return [version.id for version in versions]


class Writing(TestCase):
    """Ways to write into `self.store`."""

    store: FhirStore

    async def write(self, *changes: Change, subscriptions_change: bool = False, **writes: Any) -> None:
        """One transaction."""
        async with self.store.transaction() as transaction:
            await transaction.look_up(Lookup(), subscriptions_change=subscriptions_change)
            await transaction.commit(Writes(changes, **writes))

    async def create(self, *resources: Json, tenant: str = "default") -> list[int]:
        """Store resources that are new; their rids."""
        rids = [await self.store.new_rid() for _ in resources]
        changes = [change(rid, resource, tenant=tenant) for rid, resource in zip(rids, resources, strict=True)]
        await self.write(*changes)
        return rids

    async def subscribe(self, id: str, status: str = "active", **state_members: Any) -> int:
        """A Subscription with its state; its rid."""
        named: Json = {"resourceType": "Subscription", "id": id, "meta": {"versionId": "1"}}
        resource = {**named, "status": status, "criteria": "Patient?"}
        rid = await self.store.new_rid()
        state = SubscriptionState("default", rid, id, status, **state_members)
        await self.write(change(rid, resource), subscriptions_change=True, subscriptions=[state])
        return rid


class FhirStoreContract(Writing):
    """Tests for a subclass that sets `self.store` in `setUp`."""

    async def found(self, criteria: str, **other: Any) -> list[str]:
        """Ids that a search finds, in order."""
        query = replace(parse_criteria(criteria), **other)
        return ids((await self.store.search("default", query)).matches)

    # -- versions

    async def test_rids_grow(self) -> None:
        """Unique, also for concurrent callers and beyond a block."""
        rids = [await self.store.new_rid() for _ in range(1500)]
        self.assertEqual(rids, sorted(set(rids)))

    async def test_bytes_and_history(self) -> None:
        """Bodies are returned byte for byte; a deletion is a version; history is newest first."""
        rid = await self.store.new_rid()
        odd = b'{"resourceType":"Patient","id":"p","x":1.00,"y":"it\'s \\u0000 \\u001f \xc3\xa9 \\\\"}'
        first = change(rid, patient("p"))
        first = replace(first, version=replace(first.version, body=odd))
        await self.write(first)
        stored = await self.store.read("default", "Patient", "p")
        assert stored is not None
        self.assertEqual(stored, first.version)
        await self.write(change(rid, patient("p", active=True), 2, patient("p")))
        await self.write(change(rid, patient("p"), 3, patient("p", active=True), deleted=True))
        history = await self.store.history("default", "Patient", "p", 50, None)
        self.assertEqual([(v.version_id, v.deleted, v.method) for v in history],
                         [(3, True, "DELETE"), (2, False, "PUT"), (1, False, "PUT")])  # fmt: skip
        self.assertEqual(history[0].body, b"")
        older = await self.store.history("default", "Patient", "p", 1, 3)
        self.assertEqual([v.version_id for v in older], [2])
        self.assertEqual(await self.store.read_version("default", "Patient", "p", 1), first.version)
        self.assertIsNone(await self.store.read_version("default", "Patient", "p", 10**12))
        self.assertIsNone(await self.store.read("other", "Patient", "p"))
        self.assertEqual(await self.store.counts(), {})

    async def test_several_tenants_and_times_in_one_transaction(self) -> None:
        """Each change keeps its own tenant, time, type and index entries."""
        rids = [await self.store.new_rid() for _ in range(4)]
        other = {"resourceType": "Basic", "id": "p", "identifier": [{"value": "1"}]}
        await self.write(
            change(rids[0], identified("p", "1")),
            change(rids[1], identified("p", "1"), tenant="north", at=T0.replace(second=7)),
            change(rids[2], other, at=T0.replace(second=9)),
            change(rids[3], identified("q", "1"), 1, tenant="north"),
        )
        for tenant, type_, id_, rid, second in (
            ("default", "Patient", "p", 0, T0.second), ("north", "Patient", "p", 1, 7), ("default", "Basic", "p", 2, 9),
            ("north", "Patient", "q", 3, T0.second),
        ):  # fmt: skip
            found = await self.store.read(tenant, type_, id_)
            assert found is not None
            self.assertEqual((found.rid, found.last_updated.second), (rids[rid], second))
        for tenant, expected in (("default", ["p"]), ("north", ["p", "q"])):
            page = await self.store.search(tenant, parse_criteria("Patient?identifier=urn:mrn|1"))
            self.assertEqual(ids(page.matches), expected)

    async def test_several_versions_in_one_transaction(self) -> None:
        """Two versions of one resource in one plan: both in the history, the last is current and found."""
        rid = await self.store.new_rid()
        one, two = identified("p", "1"), identified("p", "2")
        await self.write(change(rid, one), change(rid, two, 2, one))
        self.assertEqual([v.version_id for v in await self.store.history("default", "Patient", "p", 9, None)], [2, 1])
        self.assertEqual(await self.found("Patient?identifier=1"), [])
        self.assertEqual(await self.found("Patient?identifier=2"), ["p"])
        self.assertEqual(await self.store.counts(), {"Patient": 1})

    async def test_write_conflicts(self) -> None:
        """A stale version, a used id or an existing receipt: nothing is written."""
        (rid,) = await self.create(identified("p", "1"))
        await self.write(change(rid, identified("p", "2"), 2, identified("p", "1")))
        stale = change(rid, identified("p", "3"), 2, identified("p", "1"))
        other = change(await self.store.new_rid(), identified("q", "4"))
        taken = change(await self.store.new_rid(), identified("p", "5"))
        receipt = Receipt("default", "message 1", CORRELATION)
        await self.write(receipts=[receipt])
        for writes in (Writes([other, stale]), Writes([other, taken]), Writes([other], receipts=[receipt])):
            await self.assertFailure(self._commit(writes), WriteConflict)
        self.assertEqual(await self.found("Patient?identifier=2,3,4,5"), ["p"])
        self.assertIsNone(await self.store.read("default", "Patient", "q"))

    def _commit(self, writes: Writes) -> defer.Deferred[None]:
        return defer.Deferred.fromCoroutine(
            self.write(*writes.changes, receipts=writes.receipts, events=writes.events)
        )  # fmt: skip

    # -- asking

    async def test_lookup(self) -> None:
        """Results are in the order of the lookup, of the tenant only."""
        rids = await self.create(*(identified(f"p{n}", "same") for n in range(3)), identified("q", "other"))
        await self.create(identified("n", "north"), tenant="north")
        await self.write(change(rids[3], identified("q", "other"), 2, identified("q", "other"), deleted=True))
        await self.write(receipts=[Receipt("default", "k1", CORRELATION)])
        conditions = ["identifier=none", "identifier=same", "identifier=urn:mrn|other", "_id=p2", "identifier=north",
                      "identifier=urn:mrn|same&_id=p1"]  # fmt: skip
        lookup = Lookup(
            [("default", "Patient", "q"), ("default", "Patient", "x"), ("default", "Patient", "p1")],
            [("default", parse_criteria(f"Patient?{text}")) for text in conditions],
            [("default", "k1"), ("default", "k2"), ("north", "k1")],
        )
        async with self.store.transaction() as transaction:
            result = await transaction.look_up(lookup)
        by_id = [None if version is None else (version.id, version.deleted) for version in result.by_id]
        self.assertEqual(by_id, [("q", True), None, ("p1", False)])
        self.assertEqual(
            [sorted(ids(found)) for found in result.by_condition],
            [[], ["p0", "p1", "p2"], [], ["p2"], [], ["p1"]],
        )
        self.assertEqual(result.receipts, frozenset({("default", "k1")}))

    async def test_sources_of_elements(self) -> None:
        """What is read for a change has them, however it is found; they belong to the version."""
        first = change(await self.store.new_rid(), identified("p", "1"))
        first = replace(first, version=replace(first.version, sources='{"gender":"PID-8"}'))
        await self.write(first, change(await self.store.new_rid(), identified("q", "2")))
        conditions = [("default", parse_criteria(one)) for one in ("Patient?identifier=urn:mrn|1", "Patient?_id=p,q")]
        async with self.store.transaction() as transaction:
            found = await transaction.look_up(Lookup([("default", "Patient", "p")], conditions))
            again = await transaction.lock(conditions, locks_of(conditions))
        for versions in (found.by_id, found.by_condition[0], again[0]):
            self.assertEqual([one and one.sources for one in versions], ['{"gender":"PID-8"}'])
        for versions in (found.by_condition[1], again[1]):
            self.assertEqual({one.id: one.sources for one in versions}, {"p": '{"gender":"PID-8"}', "q": ""})
        await self.write(change(first.version.rid, identified("p", "3"), 2, identified("p", "1")))
        async with self.store.transaction() as transaction:
            later = await transaction.look_up(Lookup([("default", "Patient", "p")]))
        self.assertEqual([one and one.sources for one in later.by_id], [""])

    async def test_concurrent_conditional_creates(self) -> None:
        """Fifty writers, each creates only when the locked lookup finds nothing: one resource is created."""
        wanted = [("default", parse_criteria("Patient?identifier=urn:mrn|77"))]
        locks = locks_of(wanted)
        created: list[str] = []

        async def create_unless_there(number: int) -> None:
            async with self.store.transaction() as transaction:
                result = await transaction.look_up(Lookup(conditions=wanted))
                if result.by_condition[0] or (await transaction.lock(wanted, locks))[0]:
                    return
                rid = await self.store.new_rid()
                await transaction.commit(Writes([change(rid, identified(f"p{number}", "77"))]))
                created.append(f"p{number}")

        await gather_all([create_unless_there(number) for number in range(50)])
        self.assertEqual(len(created), 1)
        self.assertEqual(await self.found("Patient?identifier=77"), created)

    # -- search

    async def test_search(self) -> None:
        """SQL and the matcher in memory return the same matches."""
        await self.create(
            patient("a", name=[{"family": "Müller", "given": ["Ann"]}], birthDate="1980-05-05", gender="female",
                    active=True),
            patient("b", name=[{"family": "Mull's \\%_"}], birthDate="1980", gender="male"),
            patient("c", identifier=[{"system": "s", "value": "1"}], gender="female", multipleBirthInteger=2),
            {"resourceType": "Observation", "id": "o", "status": "final", "code": {"coding": [{"code": "x"}]},
             "valueQuantity": {"value": 5.4, "unit": "mg", "code": "mg", "system": "http://unitsofmeasure.org"},
             "subject": {"reference": "Patient/a"}},
        )  # fmt: skip
        for criteria, expected in (
            ("Patient?gender=female", ["a", "c"]), ("Patient?gender=female,male", ["a", "b", "c"]),
            ("Patient?gender:not=female", ["b"]), ("Patient?family=mul", ["a", "b"]), ("Patient?family=muller", ["a"]),
            ("Patient?family:exact=Müller", ["a"]), ("Patient?family:contains=ll's \\%25_", ["b"]),
            ("Patient?birthdate=1980", ["a", "b"]), ("Patient?birthdate=gt1980-05-05", ["b"]),
            ("Patient?birthdate=lt1980-06-01&gender=female", ["a"]), ("Patient?birthdate:missing=true", ["c"]),
            ("Patient?name=ann&family=mul", ["a"]), ("Patient?identifier=s|", ["c"]), ("Patient?identifier=|1", []),
            ("Patient?_id=a,c", ["a", "c"]), ("Patient?_lastUpdated=gt2030", []), ("Patient?active=true", ["a"]),
            ("Observation?value-quantity=5.4|http://unitsofmeasure.org|mg", ["o"]),
            ("Observation?value-quantity=gt6", []),
            ("Observation?subject=Patient/a", ["o"]), ("Observation?patient=a", ["o"]), ("Condition?code=x", []),
            ("Patient?family=nobody,ann", []),
        ):  # fmt: skip
            self.assertEqual(await self.found(criteria), expected, criteria)

    async def test_pages(self) -> None:
        """Pages neither repeat nor skip rows in any order; totals count all matches."""
        everyone = [f"p{n}" for n in range(7)]
        for number, id_ in enumerate(everyone):
            rid = await self.store.new_rid()
            await self.write(change(rid, patient(id_, gender="male"), at=T0.replace(hour=7 - number)))
        for sort, expected in (
            ((), everyone),
            ((Sort("_id", "id", True),), everyone[::-1]),
            ((Sort("_lastUpdated", "last_updated"),), everyone[::-1]),
            ((Sort("_lastUpdated", "last_updated", True),), everyone),
        ):
            self.assertEqual(await self._walk(parse_criteria("Patient?gender=male"), sort), expected)
            self.assertEqual(await self._walk(Query("Patient"), sort), expected)

    async def _walk(self, query: Query, sort: tuple[Sort, ...]) -> list[str]:
        found: list[str] = []
        after: str | None = None
        while True:
            page = await self.store.search("default", replace(query, sort=sort, count=3), after)
            self.assertEqual(page.total, 7)
            found += ids(page.matches)
            after = page.next
            if after is None:
                return found

    async def test_totals_and_tokens(self) -> None:
        """A count only, no total, and an invalid token."""
        await self.create(patient("a"), patient("b"))
        query = Query("Patient")
        page = await self.store.search("default", replace(query, summary_count=True))
        self.assertEqual((page.total, page.matches, page.next), (2, (), None))
        page = await self.store.search("default", replace(query, total="none", count=1))
        self.assertEqual((page.total, ids(page.matches)), (None, ["a"]))
        for token in ("x", "'; DROP TABLE resources; --", "e30"):
            search = defer.Deferred.fromCoroutine(self.store.search("default", query, token))
            refused = await self.assertFailure(search, Problem)
            self.assertIs(refused.category, Category.VALUE)

    # -- subscriptions

    async def test_subscriptions_and_epoch(self) -> None:
        """The epoch grows with each change; subscriptions that are off or deleted do not fire."""
        epochs = []
        for id_, status in (("s1", "requested"), ("s2", "off"), ("s3", "error")):
            await self.subscribe(id_, status)
            async with self.store.transaction() as transaction:
                epochs.append((await transaction.look_up(Lookup())).epoch)
                firing = (await transaction.changes_since()).subscriptions
        self.assertEqual(epochs, sorted(set(epochs)))
        said = [(one.id, one.resource and one.resource["status"]) for one in firing]
        self.assertEqual(said, [("s1", "requested"), ("s2", None), ("s3", "error")])
        careless = Writes(subscriptions=[SubscriptionState("default", 1, "s1", "off")])
        refused = defer.Deferred.fromCoroutine(self.write(subscriptions=careless.subscriptions))
        await self.assertFailure(refused, Problem)

    async def test_changes_since_an_epoch(self) -> None:
        """Subscriptions and topics that changed after an epoch, also those that fire no longer; search parameters."""
        rid = await self.subscribe("s1")
        topic = {"resourceType": "SubscriptionTopic", "id": "t", "url": "http://t.example.org", "status": "active"}
        topic_rid = await self.store.new_rid()
        await self.write(
            change(topic_rid, topic),
            subscriptions_change=True,
            topics=[TopicState("default", topic_rid, topic["url"], True)],
        )
        before = await self._epoch()
        self.assertEqual(await self._news(before), ([], [], False))
        await self.subscribe("s2")
        self.assertEqual(await self._news(before), ([("s2", True)], [], False))
        off = [SubscriptionState("default", rid, "s1", "off")]
        withdrawn = [TopicState("default", topic_rid, topic["url"], False)]
        await self.write(subscriptions_change=True, subscriptions=off, topics=withdrawn)
        self.assertEqual(await self._news(before), ([("s1", False), ("s2", True)], [(topic_rid, False)], False))
        self.assertEqual((await self._news(-1))[:2], ([("s1", False), ("s2", True)], []))
        now = await self._epoch()
        reindex = ReindexRequest("default", ("Patient",), is_definition=True)
        await self.write(subscriptions_change=True, reindex=[reindex])
        self.assertEqual(await self._news(now), ([], [], True))

    async def _epoch(self) -> int:
        async with self.store.transaction() as transaction:
            return (await transaction.look_up(Lookup())).epoch

    async def _news(self, since: int) -> tuple[list[tuple[str, bool]], list[tuple[int, bool]], bool]:
        async with self.store.transaction() as transaction:
            await transaction.look_up(Lookup())
            changes = await transaction.changes_since(since)
        return (
            [(one.id, one.resource is not None) for one in changes.subscriptions],
            [(one.rid, one.resource is not None) for one in changes.topics],
            changes.search_parameters is not None,
        )

    async def test_event_numbers_have_no_gaps(self) -> None:
        """Twenty concurrent writers, some fail after the lookup: numbers 1 to n in order, each once."""
        rid = await self.subscribe("s1")
        (taken,) = await self.create(patient("taken"))

        async def write(number: int) -> bool:
            fresh = change(await self.store.new_rid(), patient(f"p{number}"))
            spoiled = change(taken, patient("taken"), 9)
            changes = [fresh, spoiled] if number % 4 == 0 else [fresh]
            try:
                await self.write(*changes, events=[NewEvent(rid, 0), NewEvent(rid, 0)])
            except WriteConflict:
                return False
            return True

        written = sum(await gather_all([write(number) for number in range(20)]))
        self.assertEqual(written, 15)
        self.assertEqual(await self.numbers(rid), list(range(1, 31)))

    async def numbers(self, subscription_rid: int) -> list[int]:
        """Event numbers of a subscription as stored, in order of number; implemented by the test case."""
        raise NotImplementedError

    async def test_indexed_values(self) -> None:
        """Each once, in order, of resources that are there."""
        resources = [identified(f"p{number}", str(number % 3)) for number in range(7)]
        rids = await self.create(*resources, identified("gone", "9"), patient("none"))
        await self.create(identified("other", "8"), tenant="other")
        gone = change(rids[7], identified("gone", "9"), 2, identified("gone", "9"), deleted=True)
        await self.write(gone)
        for limit in (9, 2):
            found = await self.store.indexed("default", "Patient", "identifier", limit)
            self.assertEqual(found, [f"{number}\turn:mrn" for number in range(3)][:limit])
        self.assertEqual(await self.store.indexed("default", "Patient", "_tag", 9), [])
        self.assertEqual(await self.store.indexed("nobody", "Patient", "identifier", 9), [])

    async def test_reads_before_the_commit(self) -> None:
        """They see the writes, others do not need to; when one raises, nothing is stored."""
        rid = await self.store.new_rid()
        written = change(rid, identified("a", "1"))
        for fails in (True, False):
            try:
                async with self.store.transaction() as transaction:
                    await transaction.look_up(Lookup())
                    store = self.store.within(transaction)

                    async def read(store: FhirStore = store, fails: bool = fails) -> None:
                        found = await store.search("default", parse_criteria("Patient?identifier=urn:mrn|1"))
                        self.assertEqual(ids(found.matches), ["a"])
                        self.assertEqual(ids(await store.read_many("default", [("Patient", "a")])), ["a"])
                        self.assertEqual(len(await store.history("default", "Patient", "a", 9, None)), 1)
                        with self.assertRaises(Problem):
                            store.transaction()
                        if fails:
                            raise Problem(Category.NOT_FOUND, "no")

                    await transaction.commit(Writes([written]), read)
            except Problem as problem:
                self.assertTrue(fails, problem)
            self.assertEqual(await self.store.read("default", "Patient", "a") is None, fails)
            self.assertEqual(await self.found("Patient?identifier=urn:mrn|1"), [] if fails else ["a"])

    async def test_uncommitted_is_gone(self) -> None:
        """A transaction that ends without commit, or by an exception, writes nothing; the next one works."""
        try:
            async with self.store.transaction() as transaction:
                await transaction.look_up(Lookup())
                raise ValueError
        except ValueError:
            pass
        async with self.store.transaction() as transaction:
            await transaction.look_up(Lookup())
            await transaction.commit(Writes())
        await self.create(patient("a"))
        self.assertEqual(loads((await self.store.search("default", Query("Patient"))).matches[0].body)["id"], "a")


async def gather_all(coroutines: list[Any]) -> list[Any]:
    """Run all at once; their results in order."""
    return await defer.gatherResults([defer.Deferred.fromCoroutine(one) for one in coroutines], consumeErrors=True)
