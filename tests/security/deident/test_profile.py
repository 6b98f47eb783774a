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
        text = 'resources = ["Patient"]\ncode_systems = ["urn:x"]\n[elements]\n"HumanName.given" = "keep"'
        found = read_profile(self.read(HEAD + text))
        self.assertEqual((found.resources, found.elements), ({"Patient"}, {"HumanName.given": Action.KEEP}))
        self.assertTrue(found.title.startswith("own 2 "))
        self.assertNotEqual(found.title, read_profile(self.read(HEAD + text + " # other")).title)

    def test_code_systems(self) -> None:
        keeps = built_in().keeps
        self.assertTrue(keeps("http://terminology.hl7.org/CodeSystem/v2-0004", "I"))
        self.assertTrue(keeps("http://unitsofmeasure.org", "10*3/uL"))
        for system, code in (
            ("http://loinc.org/x", "1-8"), ("urn:oid:1.2", "1"), (None, "1"), ("http://loinc.org", "a b"),
            ("http://loinc.org", None), ("http://hl7.org/fhir/ Smith", "1"),
        ):  # fmt: skip
            self.assertFalse(keeps(system, code), (system, code))

    def test_wrong_files_are_refused_with_their_place(self) -> None:
        for text, reason in (
            ("name = 1\nversion = '1'", "name must be a text"),
            (HEAD + "resource = []", "there is no key resource"),
            (HEAD + 'resources = ["Pacient"]', "Pacient is no resource type"),
            (HEAD + "resources = 'Patient'", "resources must be a list of texts"),
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
