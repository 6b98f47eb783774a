"""The commit of units: resources, versions, references, receipts, events; alone, grouped, and concurrent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from ipf.errors import Category, Problem, WriteConflict
from ipf.fhir.model.json import loads
from ipf.ports import Version, Writes
from ipf.rest.write.prefetch import REFERENCE_HISTORY
from ipf.rest.write.unit import UnitResult
from tests.fakes import MemoryFhirStore
from tests.rest.world import OnMemory, OnPostgres, Suite, World, by_mrn, create, delete, patient, put, unit
from tests.waiting import turns


def outcomes(results: list[Any]) -> list[Any]:
    """For each unit its outcomes with version numbers, or the category of its Problem."""
    return [
        result.category
        if isinstance(result, Problem)
        else [(str(end.outcome), end.version.version_id if end.version else None) for end in result.entries]
        for result in results
    ]


class CommitSuite(Suite):
    """One writer at a time."""

    world: World

    async def test_create_sets_id_version_and_time(self) -> None:
        (result,) = await self.world.commit(unit(create(patient("1", meta={"versionId": "9", "tag": [{"code": "t"}]}))))
        version: Version = result.entries[0].version
        resource = loads(version.body)
        self.assertEqual((result.entries[0].status, version.version_id), (201, 1))
        self.assertEqual(list(resource)[:3], ["resourceType", "id", "meta"])
        self.assertEqual(resource["id"], version.id)
        self.assertRegex(version.id, "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
        self.assertEqual(
            resource["meta"], {"versionId": "1", "lastUpdated": "2026-01-31T08:05:09.120Z", "tag": [{"code": "t"}]}
        )

    async def test_one_unit_after_another(self) -> None:
        """Each row: committed entries and their outcomes; rows build on each other."""
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
        rows = await self.world.versions("Patient/a")
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
        self.assertEqual(await self.world.store.counts(), {"Patient": 3})

    async def test_decimals_keep_their_digits(self) -> None:
        text = b'{"resourceType":"Observation","id":"o","valueQuantity":{"value":1.10}}'
        await self.world.commit(unit(put(loads(text))))
        self.assertIn(b'"value":1.10}', (await self.world.versions("Observation/o"))[0].body)
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
        first, last = results[0].entries[0].version, results[-1].entries[0].version
        self.assertNotEqual(first.id, last.id)
        stored = [len(await self.world.versions(f"Patient/{version.id}")) for version in (first, last)]
        self.assertEqual((stored, await self.world.store.counts()), ([3, 1], {"Patient": 1}))

    async def test_failed_unit_has_no_effect(self) -> None:
        results = await self.world.commit(
            unit(put({**patient("1"), "id": "a"}), put({**patient("2"), "id": "b"}, if_match=1), receipt="r1"),
            unit(put(patient("1"), by_mrn("1"))),
        )
        self.assertEqual(outcomes(results), [Category.PRECONDITION, [("created", 1)]])
        self.assertEqual(await self.world.store.counts(), {"Patient": 1})
        (again,) = await self.world.commit(unit(create(patient("1")), receipt="r1"))
        self.assertFalse(again.already_done)

    async def test_receipts(self) -> None:
        first, second = await self.world.commit(
            unit(create(patient("1")), receipt="m1"), unit(create(patient("1")), receipt="m1")
        )
        (third,) = await self.world.commit(unit(create(patient("1")), receipt="m1"))
        (other,) = await self.world.commit(unit(create(patient("1")), receipt="m1", tenant="b"))
        done = UnitResult(already_done=True)
        self.assertEqual((second, third), (done, done))
        self.assertEqual((outcomes([first]), outcomes([other])), ([[("created", 1)]], [[("created", 1)]]))
        self.assertEqual(await self.world.store.counts(), {"Patient": 2})

    async def test_tenants_are_isolated(self) -> None:
        await self.world.commit(unit(put(patient("1"), by_mrn("1")), tenant="a"))
        results = await self.world.commit(unit(put(patient("1"), by_mrn("1")), tenant="b"))
        self.assertEqual(outcomes(results), [[("created", 1)]])

    async def test_ambiguity_removed_by_an_earlier_unit_is_replanned(self) -> None:
        await self.world.commit(*(unit(put({**patient("1"), "id": f"p{n}"})) for n in range(3)))
        results = await self.world.commit(unit(delete("Patient/p0")), unit(delete(by_mrn("1"))))
        self.assertEqual(outcomes(results), [[("deleted", 2)], Category.AMBIGUOUS])
        results = await self.world.commit(unit(delete("Patient/p1")), unit(delete(by_mrn("1"))))
        self.assertEqual(outcomes(results), [[("deleted", 2)], [("deleted", 2)]])

    async def test_units_that_change_subscriptions_have_their_own_transaction(self) -> None:
        """A Basic is a topic only with the code of a topic; the plan detects when another one replaces a topic."""
        coding = {"system": "http://hl7.org/fhir/fhir-types", "code": "SubscriptionTopic"}
        named = "http://hl7.org/fhir/5.0/StructureDefinition/extension-SubscriptionTopic.url"
        url = {"url": named, "valueUri": "urn:t"}
        topic = {"resourceType": "Basic", "id": "t", "code": {"coding": [coding]}, "extension": [url]}
        plain = {"resourceType": "Basic", "id": "t", "code": {"text": "history"}}
        self.assertTrue(unit(put(topic)).changes_subscriptions)
        self.assertTrue(unit(delete("Basic/t")).changes_subscriptions)
        self.assertFalse(unit(create({**plain, "id": "u"}), put(patient("1") | {"id": "p"})).changes_subscriptions)
        (stored,) = await self.world.commit(unit(put(topic)))
        results = await self.world.commit(unit(put(plain)), unit(create(patient("1"))))
        self.assertEqual(outcomes([stored, *results]), [[("created", 1)], [("updated", 2)], [("created", 1)]])


class ReferenceTests(OnMemory):
    """References of units."""

    async def test_condition_without_its_match_after_an_earlier_unit_creates(self) -> None:
        await self.world.commit(unit(put({**patient("1"), "id": "a"})))
        results = await self.world.commit(
            unit(put({**patient("2"), "id": "a"})), unit(create(patient("1"), by_mrn("1"))), unit(create(patient("3")))
        )
        self.assertEqual(outcomes(results), [[("updated", 2)], [("created", 1)], [("created", 1)]])

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

    async def test_references_to_found_resources(self) -> None:
        await self.world.commit(unit(put({**patient("1"), "id": "there"})))
        (result,) = await self.world.commit(
            unit(
                create({"resourceType": "Encounter", "subject": {"reference": "urn:uuid:1"}}),
                create(patient("1"), by_mrn("1"), "urn:uuid:1"),
            )
        )
        self.assertEqual(loads(result.entries[0].version.body)["subject"]["reference"], "Patient/there")

    async def test_known_references_are_completed_in_place(self) -> None:
        """Other occurrences of an entry's name are left unchanged."""
        subject, part, elsewhere = {"reference": "urn:uuid:1"}, {"reference": "urn:uuid:9"}, {"note": "urn:uuid:1"}
        visit = {"resourceType": "Encounter", "subject": subject, "partOf": part, "extension": [elsewhere]}
        known = [(subject, "reference", 1)]
        person = create(patient("1"), by_mrn("1"), "urn:uuid:1")
        (result,) = await self.world.commit(replace(unit(create(visit), person), references=known))
        stored, made = (end.version for end in result.entries)
        resource = loads(stored.body)
        self.assertEqual(resource["subject"], {"reference": f"Patient/{made.id}"})
        self.assertEqual(resource["partOf"], {"reference": "urn:uuid:9"})
        self.assertEqual(resource["extension"], [elsewhere])

    async def test_conditional_references(self) -> None:
        await self.world.commit(unit(put({**patient("1"), "id": "there"})))
        refers = {"resourceType": "Encounter", "subject": {"reference": by_mrn("1")}}
        (result,) = await self.world.commit(unit(create(refers)))
        self.assertEqual(loads(result.entries[0].version.body)["subject"]["reference"], "Patient/there")

    async def test_conditional_references_with_known_references(self) -> None:
        await self.world.commit(unit(put({**patient("1"), "id": "there"})))
        subject, part = {"reference": by_mrn("1")}, {"reference": "urn:uuid:1"}
        note = {"text": 'what? "reference":"Patient?a=b"'}
        visit = {"resourceType": "Encounter", "subject": subject, "partOf": part}
        outer = {"resourceType": "Encounter", "text": note}
        REFERENCE_HISTORY.eager_units = 0
        for resource, expected in ((visit, "Patient/there"), ({**visit, "subject": {"display": "who?"}}, None)):
            known = [(part, "reference", 0)]
            part["reference"] = "urn:uuid:1"
            asked = replace(unit(create(outer, None, "urn:uuid:1"), create(resource)), references=known)
            (result,) = await self.world.commit(asked)
            first, second = (loads(end.version.body) for end in result.entries)
            self.assertEqual(second["partOf"]["reference"], f"Encounter/{first['id']}")
            self.assertEqual(second["subject"].get("reference"), expected)
            self.assertEqual(first["text"], note)
        self.assertEqual(REFERENCE_HISTORY.eager_units, 999)  # the second unit was searched in advance, after the first

    async def test_unchanged_resources_are_not_searched_for_conditional_references(self) -> None:
        """In units with known references; a refusal affects its unit only."""
        REFERENCE_HISTORY.eager_units = 0
        await self.world.commit(unit(create(patient("1"), by_mrn("1"))))
        link = {"other": {"reference": "Patient?nonsense=1"}, "type": "seealso"}
        linked = [{**patient(mrn), "link": [link]} for mrn in "12"]
        units = [replace(unit(create(one, by_mrn(mrn))), references=[]) for one, mrn in zip(linked, "12", strict=True)]
        plain = [replace(unit(create(patient(mrn), by_mrn(mrn))), references=[]) for mrn in "34"]
        results = await self.world.commit(plain[0], *units, plain[1])
        made, found = [("created", 1)], [("found", 1)]
        self.assertEqual(outcomes(results), [made, found, Category.NOT_SUPPORTED, made])

    async def test_found_result_is_shared_until_the_type_is_written(self) -> None:
        """Units of one transaction: a unit sees the writes of earlier ones."""
        await self.world.commit(unit(create(patient("1"), by_mrn("1"))))
        found = unit(create(patient("1"), by_mrn("1")))
        changed = unit(put({**patient("1"), "active": True}, by_mrn("1")))
        results = await self.world.commit(found, found, changed, found, unit(put(patient("7"), by_mrn("7"))), found)
        ends = [(end.outcome.value, end.version.version_id) for result in results for end in result.entries]
        expected = [("found", 1), ("found", 1), ("updated", 2), ("found", 2), ("created", 1), ("found", 2)]
        self.assertEqual(ends, expected)

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
        self.assertEqual(await self.world.store.counts(), {"Patient": 2 + 3})

    async def test_one_resource_twice(self) -> None:
        a = {**patient("1"), "id": "a"}
        for entries, expected in (
            ((put(a), put(a)), [("created", 1), ("unchanged", 1)]),
            ((put(a), put({**a, "active": True})), Category.VALUE),
            ((delete("Patient/a"), put(a)), Category.VALUE),
            ((put(a, by_mrn("1")), put({**a, "active": True}, by_mrn("1"))), Category.VALUE),
            ((create(patient("8"), by_mrn("8")), create(patient("8"), by_mrn("8"))), [("created", 1), ("found", 1)]),
        ):
            self.assertEqual(outcomes(await self.world.commit(unit(*entries))), [expected])
        new = {**patient("9"), "id": "new"}
        for entries in ((delete("Patient/new"), put(new)), (delete("Patient/new"), delete("Patient/new"))):
            asked = replace(unit(*entries), distinct=True)
            self.assertEqual(outcomes(await self.world.commit(asked)), [Category.VALUE])

    async def test_a_deletion_that_finds_nothing(self) -> None:
        """It changes no resource, so that its condition may be that of an entry that creates one."""
        asked = replace(unit(delete(by_mrn("9")), create(patient("9"))), distinct=True)
        self.assertEqual(outcomes(await self.world.commit(asked)), [[("deleted", None), ("created", 1)]])


class ConcurrencySuite(Suite):
    """Concurrent writers."""

    world: World

    async def at_once(self, units: list[Any]) -> list[Any]:
        """The results of commits that run together."""
        work = [Deferred.fromCoroutine(self.world.commit(one)) for one in units]
        return [result for (result,) in await gatherResults(work)]

    async def test_equal_conditional_creates_make_one_resource(self) -> None:
        results = await self.at_once([unit(create(patient("1"), by_mrn("1"))) for _ in range(50)])
        self.assertEqual(sorted(outcomes(results)), [[("created", 1)]] + [[("found", 1)]] * 49)

    async def test_known_references_are_right_after_every_attempt(self) -> None:
        """All visits reference the one patient, although most attempts used an id that was not stored."""
        units = []
        for number in range(20):
            subject = {"reference": "urn:uuid:1"}
            visit = {"resourceType": "Encounter", "identifier": [{"value": str(number)}], "subject": subject}
            entries = create(visit), create(patient("1"), by_mrn("1"), "urn:uuid:1")
            units.append(replace(unit(*entries), references=[(subject, "reference", 1)]))
        results = await self.at_once(units)
        subjects = {loads(result.entries[0].version.body)["subject"]["reference"] for result in results}
        people = {f"Patient/{result.entries[1].version.id}" for result in results}
        self.assertEqual((len(subjects), subjects), (1, people))

    async def test_conditional_updates_of_the_same_resources_in_any_order(self) -> None:
        units = [
            unit(*(put(patient(str((number + step) % 5)), by_mrn(str((number + step) % 5))) for step in range(3)))
            for number in range(20)
        ]
        results = await self.at_once(units)
        self.assertEqual([one for one in results if isinstance(one, Problem)], [])
        self.assertEqual(await self.world.store.counts(), {"Patient": 5})

    async def test_conflicts_are_planned_again(self) -> None:
        results = await self.at_once([unit(put({**patient(str(number)), "id": "a"})) for number in range(8)])
        self.assertEqual(sorted(end.entries[0].version.version_id for end in results), list(range(1, 9)))

    async def test_equal_receipts_are_stored_once(self) -> None:
        results = await self.at_once([unit(create(patient("1")), receipt="m1") for _ in range(8)])
        self.assertEqual(sorted(result.already_done for result in results), [False] + [True] * 7)
        self.assertEqual(await self.world.store.counts(), {"Patient": 1})


class CommitTests(OnMemory, CommitSuite):
    pass


class CommitOnPostgresTests(OnPostgres, CommitSuite):
    """SQL stores, locks and rolls back."""


class ConcurrencyTests(OnMemory, ConcurrencySuite):
    async def setUp(self) -> None:
        await super().setUp()
        self.world.store = Slow(self.world.store)

    async def test_repeated_conflicts_end_with_single_units(self) -> None:
        self.world.store = Overtaken(MemoryFhirStore())
        results = await self.world.commit(
            unit(put({**patient("1"), "id": "hot"})), unit(put({**patient("2"), "id": "cold"}))
        )
        self.assertIsInstance(results[0], WriteConflict)
        self.assertEqual(outcomes(results[1:]), [[("created", 1)]])


class ConcurrencyOnPostgresTests(OnPostgres, ConcurrencySuite):
    pass


class Intercepted:
    """A store that runs other work before each commit."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """A transaction of the store within."""
        async with self._store.transaction() as transaction:
            commit = transaction.commit

            async def intercepted(writes: Writes, reads: Any = None) -> None:
                await self.before(writes)
                await commit(writes, reads)

            transaction.commit = intercepted
            yield transaction

    async def before(self, writes: Writes) -> None:
        """The work before a commit."""


class Slow(Intercepted):
    """Other writers run between lookup and commit."""

    async def before(self, writes: Writes) -> None:
        await turns(1)


class Overtaken(Intercepted):
    """Another writer always changes Patient/hot first."""

    async def before(self, writes: Writes) -> None:
        if any(change.version.id == "hot" for change in writes.changes):
            raise WriteConflict
