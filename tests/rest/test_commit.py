"""What becomes of units: resources, versions, references, receipts, events; alone, together, and against others."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem, WriteConflict
from ipf.fhir.json import loads
from ipf.ports import Json, Version
from ipf.rest.unit import UnitResult
from tests.rest.world import World, by_mrn, create, delete, patient, put, unit


def outcomes(results: list[Any]) -> list[Any]:
    """For each unit its outcomes with version numbers, or the category of its Problem."""
    return [
        result.category
        if isinstance(result, Problem)
        else [(str(end.outcome), end.version.version_id if end.version else None) for end in result.entries]
        for result in results
    ]


class CommitTests(TestCase):
    def setUp(self) -> None:
        self.world = World()

    async def body(self, reference: str) -> Json:
        """The current resource."""
        resource_type, id = reference.split("/")
        version = await self.world.store.read("default", resource_type, id)
        resource: Json = loads(version.body)
        return resource

    async def test_create_sets_id_version_and_time(self) -> None:
        (result,) = await self.world.commit(unit(create(patient("1", meta={"versionId": "9", "tag": [{"code": "t"}]}))))
        version: Version = result.entries[0].version
        resource = loads(version.body)
        self.assertEqual((result.entries[0].status, version.version_id, version.rid), (201, 1, 1))
        self.assertEqual(list(resource)[:3], ["resourceType", "id", "meta"])
        self.assertEqual(resource["id"], version.id)
        self.assertRegex(version.id, "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
        self.assertEqual(
            resource["meta"], {"versionId": "1", "lastUpdated": "2026-01-31T08:05:09.120Z", "tag": [{"code": "t"}]}
        )

    async def test_one_unit_after_another(self) -> None:
        """Each row: what is committed, and what becomes of it, on the store as the rows before leave it."""
        sent = {**patient("1"), "id": "a"}
        for entry, outcome, version in (
            (put(sent), "created", 1),
            (put(sent), "unchanged", 1),
            (put({**sent, "meta": {"versionId": "7", "lastUpdated": "2000-01-01T00:00:00Z"}}), "unchanged", 1),
            (put(dict(reversed(sent.items()))), "unchanged", 1),
            (put({**sent, "active": True}), "updated", 2),
            (create(patient("1"), by_mrn("1")), "found", 2),
            (put(patient("1", "Neu"), by_mrn("1")), "updated", 3),
            (put(patient("1", "Neu"), by_mrn("1")), "unchanged", 3),
            (delete("Patient/a"), "deleted", 4),
            (delete("Patient/a"), "deleted", 4),
            (delete("Patient/unknown"), "deleted", None),
            (delete(by_mrn("1")), "deleted", None),
            (put(sent), "created", 5),
            (put(sent, if_match=5), "unchanged", 5),
            (put({**sent, "active": False}, if_match=5), "updated", 6),
            (delete(by_mrn("1")), "deleted", 7),
        ):
            self.world.pass_time()
            results = await self.world.commit(unit(entry))
            self.assertEqual(outcomes(results), [[(outcome, version)]], entry)
        rows = self.world.store.versions["default", "Patient", "a"]
        self.assertEqual([row.version_id for row in rows], [1, 2, 3, 4, 5, 6, 7])
        self.assertEqual({row.rid for row in rows}, {rows[0].rid})
        self.assertEqual([row.deleted for row in rows], [False, False, False, True, False, False, True])
        self.assertEqual(rows[3].body, b"")

    async def test_refusals(self) -> None:
        await self.world.commit(*(unit(put({**patient(mrn), "id": f"p{n}"})) for n, mrn in enumerate("122")))
        for entry, category in (
            (put({**patient("1"), "id": "p0"}, if_match=2), Category.PRECONDITION),
            (put({**patient("1"), "id": "new"}, if_match=1), Category.PRECONDITION),
            (put(patient("2"), by_mrn("2")), Category.AMBIGUOUS),
            (create(patient("2"), by_mrn("2")), Category.AMBIGUOUS),
            (delete(by_mrn("2")), Category.AMBIGUOUS),
            (put({**patient("1"), "id": "other"}, by_mrn("1")), Category.VALUE),
            (put({**patient("9"), "id": "p0"}, by_mrn("9")), Category.CONFLICT),
        ):
            self.assertEqual(outcomes(await self.world.commit(unit(entry))), [category], entry)
        self.assertEqual(self.world.store.commits, 1)

    async def test_decimals_keep_their_digits(self) -> None:
        text = b'{"resourceType":"Observation","id":"o","valueQuantity":{"value":1.10}}'
        await self.world.commit(unit(put(loads(text))))
        self.assertIn(b'"value":1.10}', self.world.store.current(("default", "Observation", "o")).body)
        self.assertEqual(outcomes(await self.world.commit(unit(put(loads(text))))), [[("unchanged", 1)]])
        finer = loads(text.replace(b"1.10", b"1.100"))
        self.assertEqual(outcomes(await self.world.commit(unit(put(finer)))), [[("updated", 2)]])

    async def test_many_units_of_one_commit_see_each_other(self) -> None:
        results = await self.world.commit(
            unit(put(patient("1"), by_mrn("1"))),
            unit(put(patient("1"), by_mrn("1"))),
            unit(put(patient("1", "Neu"), by_mrn("1"))),
            unit(create(patient("1"), by_mrn("1"))),
            unit(delete(by_mrn("1"))),
            unit(put(patient("1"), by_mrn("1"))),
        )
        self.assertEqual(
            outcomes(results),
            [
                [("created", 1)],
                [("unchanged", 1)],
                [("updated", 2)],
                [("found", 2)],
                [("deleted", 3)],
                [("created", 1)],
            ],
        )
        self.assertEqual(self.world.store.commits, 1)
        self.assertEqual(sorted(map(len, self.world.store.versions.values())), [1, 3])

    async def test_a_failed_unit_leaves_no_trace(self) -> None:
        results = await self.world.commit(
            unit(put({**patient("1"), "id": "a"}), put({**patient("2"), "id": "b"}, if_match=1), receipt="r1"),
            unit(put(patient("1"), by_mrn("1"))),
        )
        self.assertEqual(outcomes(results), [Category.PRECONDITION, [("created", 1)]])
        self.assertEqual(self.world.store.receipts, set())
        self.assertEqual(len(self.world.store.versions), 1)

    async def test_receipts(self) -> None:
        first, second = await self.world.commit(
            unit(create(patient("1")), receipt="m1"), unit(create(patient("1")), receipt="m1")
        )
        (third,) = await self.world.commit(unit(create(patient("1")), receipt="m1"))
        (other,) = await self.world.commit(unit(create(patient("1")), receipt="m1", tenant="b"))
        done = UnitResult(already_done=True)
        self.assertEqual((second, third), (done, done))
        self.assertEqual((outcomes([first]), outcomes([other])), ([[("created", 1)]], [[("created", 1)]]))
        self.assertEqual(len(self.world.store.versions), 2)

    async def test_tenants_are_apart(self) -> None:
        await self.world.commit(unit(put(patient("1"), by_mrn("1")), tenant="a"))
        results = await self.world.commit(unit(put(patient("1"), by_mrn("1")), tenant="b"))
        self.assertEqual(outcomes(results), [[("created", 1)]])

    async def test_ambiguity_that_an_earlier_unit_removes_is_asked_again(self) -> None:
        await self.world.commit(*(unit(put({**patient("1"), "id": f"p{n}"})) for n in range(3)))
        results = await self.world.commit(unit(delete("Patient/p0")), unit(delete(by_mrn("1"))))
        self.assertEqual(outcomes(results), [[("deleted", 2)], Category.AMBIGUOUS])
        results = await self.world.commit(unit(delete("Patient/p1")), unit(delete(by_mrn("1"))))
        self.assertEqual(outcomes(results), [[("deleted", 2)], [("deleted", 2)]])


class ReferenceTests(TestCase):
    def setUp(self) -> None:
        self.world = World()

    async def test_names_of_entries_become_references_everywhere(self) -> None:
        encounter = {
            "resourceType": "Encounter",
            "text": {"div": '<div><a href="urn:uuid:1">p</a></div>'},
            "subject": {"reference": "urn:uuid:1"},
            "contained": [{"resourceType": "Location", "managingOrganization": {"reference": "urn:uuid:3"}}],
            "extension": [{"url": "http://x", "valueUri": "urn:uuid:1"}],
            "partOf": {"reference": "Encounter/temporary"},
            "identifier": [{"value": "urn:uuid:10"}],
        }
        outer = {"resourceType": "Encounter", "status": "planned"}
        (result,) = await self.world.commit(
            unit(
                create(encounter, full_url="urn:uuid:2"),
                create(patient("1"), by_mrn("1"), "urn:uuid:1"),
                put({"resourceType": "Organization", "id": "org"}, full_url="urn:uuid:3"),
                create(outer, full_url="http://elsewhere/fhir/Encounter/temporary"),
            )
        )
        stored, person, organization, part = (end.version for end in result.entries)
        resource = loads(stored.body)
        self.assertEqual(resource["subject"]["reference"], f"Patient/{person.id}")
        self.assertEqual(resource["contained"][0]["managingOrganization"]["reference"], "Organization/org")
        self.assertEqual(resource["extension"][0]["valueUri"], f"Patient/{person.id}")
        self.assertIn(f'href="Patient/{person.id}"', resource["text"]["div"])
        self.assertEqual(resource["partOf"]["reference"], f"Encounter/{part.id}")
        self.assertEqual(resource["identifier"][0]["value"], "urn:uuid:10")
        self.assertEqual(encounter["subject"], {"reference": "urn:uuid:1"})
        self.assertEqual(organization.id, "org")

    async def test_a_found_resource_gives_its_name_to_references(self) -> None:
        await self.world.commit(unit(put({**patient("1"), "id": "there"})))
        (result,) = await self.world.commit(
            unit(
                create({"resourceType": "Encounter", "subject": {"reference": "urn:uuid:1"}}),
                create(patient("1"), by_mrn("1"), "urn:uuid:1"),
            )
        )
        self.assertEqual(loads(result.entries[0].version.body)["subject"]["reference"], "Patient/there")

    async def test_conditional_references(self) -> None:
        await self.world.commit(unit(put({**patient("1"), "id": "there"})))
        refers = {"resourceType": "Encounter", "subject": {"reference": by_mrn("1")}}
        (result,) = await self.world.commit(unit(create(refers)))
        self.assertEqual(loads(result.entries[0].version.body)["subject"]["reference"], "Patient/there")

    async def test_conditional_references_to_the_same_unit(self) -> None:
        for mrn, other in (
            ("2", put(patient("2"), by_mrn("2"))),
            ("3", create(patient("3"))),
            ("4", put({**patient("4"), "id": "four"})),
        ):
            refers = {"resourceType": "Encounter", "subject": {"reference": by_mrn(mrn)}}
            (result,) = await self.world.commit(unit(create(refers), other))
            reference = loads(result.entries[0].version.body)["subject"]["reference"]
            self.assertEqual(reference, f"Patient/{result.entries[1].version.id}")

    async def test_conditional_references_that_fail(self) -> None:
        await self.world.commit(*(unit(put({**patient("1"), "id": f"p{n}"})) for n in range(2)))
        for search, category in (
            (by_mrn("1"), Category.AMBIGUOUS),
            (by_mrn("2"), Category.PRECONDITION),
            ("Patient?nonsense=1", Category.NOT_SUPPORTED),
        ):
            refers = {"resourceType": "Encounter", "subject": {"reference": search}}
            results = await self.world.commit(unit(create(patient("5"))), unit(create(patient("6")), create(refers)))
            self.assertEqual(outcomes(results)[1], category)
        self.assertEqual(len(self.world.store.versions), 2 + 3)

    async def test_one_resource_twice(self) -> None:
        a = {**patient("1"), "id": "a"}
        for entries, expected in (
            ((put(a), put({**a, "active": True})), Category.VALUE),
            ((delete("Patient/a"), put(a)), Category.VALUE),
            ((put(a), put(a)), [("created", 1), ("unchanged", 1)]),
            ((put(a, by_mrn("1")), put({**a, "active": True}, by_mrn("1"))), Category.VALUE),
            ((create(patient("8"), by_mrn("8")), create(patient("8"), by_mrn("8"))), [("created", 1), ("found", 1)]),
        ):
            world = World()
            if expected is Category.VALUE:
                await world.commit(unit(put({**a, "gender": "male"})))
            self.assertEqual(outcomes(await world.commit(unit(*entries))), [expected])


class ConcurrencyTests(TestCase):
    async def test_equal_conditional_creates_at_once_make_one_resource(self) -> None:
        world = World()
        world.store.pause = Deferred()
        work = [Deferred.fromCoroutine(world.commit(unit(put(patient("1"), by_mrn("1"))))) for _ in range(50)]
        world.store.pause.callback(None)
        results = [result for (result,) in await gatherResults(work)]
        self.assertEqual(sorted(outcomes(results)), [[("created", 1)]] + [[("unchanged", 1)]] * 49)

    async def test_conflicts_are_planned_again(self) -> None:
        world = World()
        world.store.pause = Deferred()
        work = [Deferred.fromCoroutine(world.commit(unit(put({**patient(str(n)), "id": "a"})))) for n in range(8)]
        world.store.pause.callback(None)
        results = [result for (result,) in await gatherResults(work)]
        self.assertEqual(sorted(end.entries[0].version.version_id for end in results), list(range(1, 9)))

    async def test_endless_conflicts_end_unit_by_unit(self) -> None:
        world = World()
        world.store = Overtaken(world.store)
        results = await world.commit(
            unit(put({**patient("1"), "id": "hot"})), unit(put({**patient("2"), "id": "cold"}))
        )
        self.assertIsInstance(results[0], WriteConflict)
        self.assertEqual(outcomes(results[1:]), [[("created", 1)]])


class Overtaken:
    """A store in which somebody is always faster with Patient/hot."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def transaction(self) -> Any:
        """A transaction that loses."""
        outer = self._store.transaction()

        class Losing:
            async def __aenter__(self) -> Any:
                transaction = await outer.__aenter__()
                commit = transaction.commit

                async def lose(writes: Any) -> None:
                    if any(change.version.id == "hot" for change in writes.changes):
                        raise WriteConflict
                    await commit(writes)

                transaction.commit = lose
                return transaction

            async def __aexit__(self, *reason: Any) -> Any:
                return await outer.__aexit__(*reason)

        return Losing()
