"""Every sample message becomes the Bundle that was found right, and every Bundle is well formed R4."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import dumps, loads
from tests.corpus import checks, samples

FAMILY = "maps"


class CorpusTests(TestCase):
    """Message in, Bundle out."""

    maxDiff = None

    def test_there_are_samples(self) -> None:
        """The folder is not empty, and nothing in it is without its other half."""
        expected = sorted(path.stem for path in samples.HERE.glob("*.json"))
        self.assertEqual(samples.names(), expected)
        self.assertGreaterEqual(len(expected), 12)

    def test_bundles(self) -> None:
        """Each sample gives its expected Bundle."""
        for name in samples.names():
            with self.subTest(sample=name):
                self.assertEqual(samples.readable(samples.bundle(name)), samples.expected(name))

    def test_bundles_are_well_formed(self) -> None:
        """Known elements, right cardinality and types, required codes, references that resolve; also after JSON."""
        for name in samples.names():
            with self.subTest(sample=name):
                self.assertEqual(checks.faults(loads(dumps(samples.bundle(name)))), [])

    def test_same_message_gives_same_bundle(self) -> None:
        """Byte for byte, so that a conversion that is repeated changes nothing."""
        for name in samples.names():
            with self.subTest(sample=name):
                self.assertEqual(dumps(samples.bundle(name)), dumps(samples.bundle(name)))

    def test_every_entry_is_found_again(self) -> None:
        """Nothing is created blindly: each request names an identifier, or an id where R4 has none; none twice."""
        for name in samples.names():
            with self.subTest(sample=name):
                requests = [entry["request"] for entry in samples.bundle(name)["entry"]]
                found = [(one["url"].partition("?")[0], condition(one)) for one in requests]
                for url, by in found:
                    self.assertRegex(by or url, r"^(identifier=.+|(MessageHeader|Provenance)/[0-9a-f-]{36})$")
                self.assertEqual(len(set(found)), len(found))

    def test_every_resource_can_be_indexed(self) -> None:
        """Search index entries can be made of each of them."""
        for name in samples.names():
            for entry in samples.bundle(name)["entry"]:
                with self.subTest(sample=name, type=entry["resource"]["resourceType"]):
                    self.assertTrue(extract(loads(dumps(entry["resource"]))))

    def test_decimals_keep_their_digits(self) -> None:
        """A weight of 71.50 stays 71.50."""
        self.assertIn(b'"value":71.50', dumps(samples.bundle("a01_inpatient")))


def condition(request: dict[str, str]) -> str:
    """What an entry is found by; empty when it is by its id."""
    return request.get("ifNoneExist") or request["url"].partition("?")[2]


class SameThingsMeetTests(TestCase):
    """Two messages about the same thing name it by the same condition."""

    def conditions(self, name: str, resource_type: str) -> set[str]:
        """Conditions of all entries of a type."""
        entries = samples.bundle(name)["entry"]
        found = [one["request"] for one in entries if one["resource"]["resourceType"] == resource_type]
        return {one.get("ifNoneExist") or one["url"] for one in found}

    def test_patient_and_visit(self) -> None:
        """Admit, transfer, update and discharge of one visit update one Patient and one Encounter."""
        for resource_type in ("Patient", "Encounter"):
            first = self.conditions("a01_inpatient", resource_type)
            self.assertEqual(len(first), 1)
            for name in ("a02_transfer", "a03_discharge", "a08_update"):
                self.assertEqual(self.conditions(name, resource_type), first, (name, resource_type))

    def test_places_and_people(self) -> None:
        """The bed that was left is the bed that was assigned; the attending doctor is one person."""
        self.assertLess(self.conditions("a08_update", "Location"), self.conditions("a02_transfer", "Location"))
        doctors = self.conditions("a01_inpatient", "Practitioner")
        self.assertLess(self.conditions("a02_transfer", "Practitioner"), doctors)

    def test_derived_keys(self) -> None:
        """A diagnosis and a next of kin without identifiers are the same in the next message."""
        self.assertTrue(self.conditions("a01_inpatient", "Condition") & self.conditions("a03_discharge", "Condition"))
        kin = self.conditions("a01_inpatient", "RelatedPerson")
        self.assertEqual(self.conditions("a08_update", "RelatedPerson"), kin)

    def test_of_other_patients(self) -> None:
        """The same allergy of another patient is another allergy."""
        made = [samples.library().transform_message(samples.parse(ALLERGY.format(number))) for number in (1, 2)]
        urls = {entry["request"]["url"] for one in made for entry in one["entry"]}
        self.assertEqual(len([one for one in urls if one.startswith("AllergyIntolerance?identifier=")]), 2)


ALLERGY = "MSH|^~\\&|A|B|||2026||ADT^A01|1|P|2.5.1\nPID|||{}^^^B^MR\nAL1|1||70618^Penicillin^RXNORM"
