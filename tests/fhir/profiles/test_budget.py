"""Snapshots that multiply end at a budget: counted in elements, not in time."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import loads
from ipf.fhir.profiles import library, snapshot
from ipf.fhir.profiles.library import Structures
from ipf.fhir.profiles.snapshot import SnapshotError
from tests.rest.terminology.test_terminology import validated
from tests.rest.world import World

Json = dict[str, Any]
URL = "http://x.test/worst"
PATIENT = "http://hl7.org/fhir/StructureDefinition/Patient"


def profile(ids: list[str], base: str = PATIENT) -> Json:
    """A profile on Patient with elements of these ids."""
    paths = [".".join([part.partition(":")[0] for part in id.split(".")]) for id in ids]
    elements = [{"id": id, "path": path} for id, path in zip(ids, paths, strict=True)]
    return {
        "resourceType": "StructureDefinition", "id": "worst", "url": URL, "name": "Worst", "status": "active",
        "kind": "resource", "abstract": False, "type": "Patient", "derivation": "constraint", "baseDefinition": base,
        "differential": {"element": elements},
    }  # fmt: skip


def doubled(levels: int) -> list[str]:
    """From the deepest level to the first, each slice copies all that is below its siblings."""
    within = [f"Patient{'.extension' * level}" for level in range(levels + 1)]
    return [f"{within[levels]}.id", *[f"{within[level]}:a.id" for level in range(levels, 0, -1)]]


REFUSED = {
    "slices that double": (doubled(40), "20000 elements"),
    "slices with children": ([f"Patient.identifier:s{number}.value" for number in range(8000)], "40000000 steps"),
    "slices": ([f"Patient.identifier:s{number}" for number in range(19_000)], "40000000 steps"),
    "levels": ([f"Patient{'.extension' * 3000}.id"], "50 deep"),
}
ACCEPTED = {
    "slices that double a few times": doubled(8),
    "slices with children": [f"Patient.identifier:s{number}.value" for number in range(300)],
    "slices": [f"Patient.identifier:s{number}" for number in range(2000)],
    "levels": [f"Patient{'.extension' * 40}.id"],
}


class SnapshotBudgetTests(TestCase):
    def test_what_is_refused(self) -> None:
        for name, (ids, reason) in REFUSED.items():
            found = Structures({URL: profile(ids)}.get)
            error = self.assertRaises(SnapshotError, found.snapshot, URL)
            self.assertIn(URL, str(error))
            self.assertIn(reason, str(error), name)

    def test_what_is_accepted(self) -> None:
        for name, ids in ACCEPTED.items():
            made = {one["id"] for one in Structures({URL: profile(ids)}.get).snapshot(URL)}
            self.assertLessEqual(set(ids), made, name)

    def test_a_failure_is_remembered(self) -> None:
        """Each resource that names the profile would begin anew."""
        found = Structures({URL: profile(doubled(40))}.get)
        first = self.assertRaises(SnapshotError, found.snapshot, URL)
        self.patch(library, "make_snapshot", lambda *given: self.fail("it is made again"))
        self.assertEqual(str(self.assertRaises(SnapshotError, found.snapshot, URL)), str(first))

    def test_a_failure_of_a_profile_within_is_its_own(self) -> None:
        """Profiles that are derived from each other fail, whichever comes first; one that uses them works again."""
        inner, outer = {**profile([]), "url": "urn:a", "baseDefinition": "urn:b"}, {**profile([]), "url": "urn:b"}
        known = {"urn:a": inner, "urn:b": {**outer, "baseDefinition": "urn:a"}}
        found = Structures(known.get)
        for url in ("urn:a", "urn:b", "urn:a"):
            self.assertRaises(SnapshotError, found.snapshot, url)
        self.assertTrue(Structures({**known, "urn:b": outer}.get).snapshot("urn:a"))

    def test_constraints_of_types_that_are_derived_from_each_other(self) -> None:
        rule = {"path": "Element", "constraint": [{"key": "a-1"}]}
        known = {
            "urn:a": {"baseDefinition": "urn:b", "differential": {"element": [rule]}},
            "urn:b": {"baseDefinition": "urn:a", "differential": {"element": [rule]}},
        }
        self.assertEqual(Structures(known.get).rules("urn:a"), [{"key": "a-1"}] * 2)

    async def test_validation_says_why(self) -> None:
        world = World()
        validated(world)
        answer = await world.send("PUT", "StructureDefinition/worst", profile(doubled(40)))
        self.assertEqual(answer.status, 201, answer.body)
        patient = {"resourceType": "Patient", "meta": {"profile": [URL]}, "active": True}
        answer = await world.send("POST", "Patient/$validate", patient)
        self.assertEqual(answer.status, 200)
        said = [one["diagnostics"] for one in loads(answer.body)["issue"]]
        self.assertTrue(any(f"more than {snapshot.MOST_ELEMENTS} elements" in one for one in said), said)
