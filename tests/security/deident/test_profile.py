"""Profiles of de-identification: what a file may say."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.security.deident.profile import Action, built_in, read_profile

HEAD = 'name = "own"\nversion = "2"\n'


class ProfileTests(TestCase):
    def read(self, text: str) -> Path:
        """A profile file with this text."""
        path = Path(self.mktemp())
        path.write_text(text)
        return path

    def test_an_own_profile(self) -> None:
        text = 'resources = ["Patient"]\n[code_systems]\n"urn:x" = "A|B"\n[elements]\n"HumanName.given" = "keep"'
        found = read_profile(self.read(HEAD + text))
        self.assertEqual([found.keeps("urn:x", code) for code in ("A", "B", "AB", "C")], [True, True, False, False])
        self.assertEqual((found.resources, found.elements), ({"Patient"}, {"HumanName.given": Action.KEEP}))
        self.assertTrue(found.title.startswith("own 2 "))
        self.assertNotEqual(found.title, read_profile(self.read(HEAD + text + " # other")).title)

    def test_code_systems(self) -> None:
        keeps = built_in().keeps
        v2, sid = "http://terminology.hl7.org/CodeSystem/v2", "http://hl7.org/fhir/sid"
        for system, code in (
            (f"{v2}-0004", "I"), ("http://unitsofmeasure.org", "10*3/uL"), ("http://unitsofmeasure.org", "mm[Hg]"),
            ("http://loinc.org", "718-7"), ("http://loinc.org", "LA6576-8"), ("http://snomed.info/sct", "22298006"),
            (f"{sid}/icd-10-cm", "E11.9"), (f"{sid}/icd-10", "I10"), (f"{sid}/cvx", "141"),
            ("urn:ietf:bcp:47", "de-AT"),
            (f"{sid}/ndc", "0093-2263-01"), ("http://www.nlm.nih.gov/research/umls/rxnorm", "308191"),
            ("http://www.ama-assn.org/go/cpt", "99213"), ("urn:iso:std:iso:4217", "EUR"),
            ("urn:oid:2.16.840.1.113883.6.238", "2106-3"), ("http://hl7.org/fhir/administrative-gender", "male"),
        ):  # fmt: skip
            self.assertTrue(keeps(system, code), (system, code))
        for system, code in (
            ("http://loinc.org/x", "1-8"), ("urn:oid:1.2", "1"), (None, "1"), ("http://loinc.org", "a b"),
            ("http://loinc.org", None), ("http://hl7.org/fhir/ Smith", "1"), ("http://loinc.org", "Smith"),
            ("http://loinc.org", "0170-1234567"), ("http://snomed.info/sct", "Smith"), (f"{v2}-0004", "SMITH"),
            (f"{v2}-0004/x", "I"), (f"{v2}-9999", "I"), (f"{sid}/us-ssn", "123456789"), (f"{sid}/us-npi", "1234567893"),
            (f"{sid}/passport-DEU", "C01X00T47"), ("http://unitsofmeasure.org", "{Smith}"),
            ("urn:ietf:bcp:47", "Smith"),
            ("urn:oid:2.16.840.1.113883.4.1", "123456789"), (f"{sid}/ndc", "Smith"), ("urn:iso:std:iso:3166", "Smith"),
        ):  # fmt: skip
            self.assertFalse(keeps(system, code), (system, code))

    def test_wrong_files_are_refused_with_their_place(self) -> None:
        for text, reason in (
            ("name = 1\nversion = '1'", "name must be a text"),
            (HEAD + "resource = []", "there is no key resource"),
            (HEAD + 'resources = ["Pacient"]', "Pacient is no resource type"),
            (HEAD + "resources = 'Patient'", "resources must be a list of texts"),
            (HEAD + 'code_systems = ["urn:x"]', "code_systems must be a table"),
            (HEAD + "integers = 999", "integers must be a table"),
            (HEAD + '[integers]\n"Patient.name" = 1', "Patient.name is no element of R4 with an integer"),
            (HEAD + '[integers]\n"Patient.multiple" = 1', "is no element"),
            (HEAD + '[integers]\n"Patient.multipleBirth" = -1', "must be a number from 0"),
            (HEAD + '[integers]\n"Patient.multipleBirth" = true', "must be a number from 0"),
            (HEAD + '[integers]\n"Patient.multipleBirth" = "9"', "must be a number from 0"),
            (HEAD + '[code_systems]\n"urn:x/" = "A"', "urn:x/ must be defined"),
            (HEAD + '[code_systems]\n"urn:x" = "("', "code_systems: urn:x: "),
            (HEAD + '[code_systems]\n"urn:x" = "http://x/vs"', "http://x/vs is no value set"),
            (HEAD + '[elements]\n"Patient.nme" = "keep"', "Patient.nme is no element"),
            (HEAD + '[elements]\n"Observation.valueString" = "keep"', "Observation.valueString is no element"),
            (HEAD + '[elements]\n"Patient.name" = "hide"', "must be keep, remove or year"),
            (HEAD + '[elements]\n"Patient.name" = "year"', "is no date"),
            ("name =", "Invalid value"),
        ):
            path = self.read(text)
            problem = self.assertRaises(Problem, read_profile, path)
            self.assertIn(reason, problem.text)
            self.assertIn(str(path), problem.text)
        problem = self.assertRaises(Problem, read_profile, Path("/nowhere.toml"))
        self.assertEqual(problem.place, "IPF_DEIDENT_PROFILE")
