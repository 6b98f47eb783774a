"""Regression cases, and whole profiles with and without mistakes."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.vendor_profiles.cases import compare, matches
from ipf.vendor_profiles.profile import Validation, validate_profile
from tests.corpus.samples import library
from tests.vendor_profiles.samples import EXPECTED, MAP, bare, example, small, tar


def check(files: dict[str, str]) -> Validation:
    """The profile of these files, without general maps."""
    return validate_profile(tar(files), "acme.tar.gz", bare())


class CompareTests(TestCase):
    def test_matches(self) -> None:
        for wanted, found, expected in (
            ({"a": 1}, {"a": 1, "b": 2}, True), ({"a": None}, {"b": 1}, True), ({"a": None}, {"a": 1}, False),
            ([1, 2], [2, 3, 1], True), ([1, 1], [1, 2], False), ({"a": [{"b": 1}]}, {"a": [{"c": 1}, {"b": 1}]}, True),
            ("1", 1, False), (True, 1, False), (1.0, 1, True), ([{"a": 1}, {}], [{}, {"a": 1}], True), ({}, [], False),
            ([{}, {"a": 1}], [{"a": 1}, {"b": 1}], True),
        ):  # fmt: skip
            self.assertIs(matches(wanted, found), expected, (wanted, found))

    def test_differences(self) -> None:
        def bundle(*resources: dict[str, Any]) -> dict[str, Any]:
            return {"resourceType": "Bundle", "entry": [{"resource": one} for one in resources]}

        patient, other = {"resourceType": "Patient", "gender": "male"}, {"resourceType": "Basic"}
        for wanted, made, words in (
            (patient, bundle(other, patient), ""),
            ([patient, patient], bundle(patient), "more often than"),
            (patient, bundle(other), "no Patient was made"),
            ({**patient, "gender": "female"}, bundle(patient), 'Patient.gender: expected "female", found "male"'),
            ({**patient, "gender": None}, bundle(patient), "expected nothing"),
            ({**bundle(patient), "total": 2}, bundle(patient), "expected 2 resources, found 1"),
            (bundle(patient), bundle(patient), ""),
            ("x", bundle(patient), "must be a Bundle"), ([{}], bundle(), "must be a Bundle"),
            ({**patient, "gender": "x"}, bundle(patient, patient), "none of the 2 Patient"),
        ):  # fmt: skip
            found = compare(wanted, made)
            self.assertTrue(words in found and bool(words) == bool(found), (wanted, found))


class ProfileTests(TestCase):
    def test_the_example_is_valid(self) -> None:
        """With the maps of ipf, whose groups it uses."""
        checked = validate_profile(example(), "acme.tar.gz", library())
        self.assertEqual([str(one) for one in checked.findings], [])
        self.assertEqual([(one.path, one.message) for one in checked.cases if not one.passed], [])
        self.assertEqual(len(checked.cases), 3)
        assert checked.profile is not None
        self.assertFalse(library().has_map("ADT_A04") and not checked.profile.has_map("ADT_A04"))

    def test_a_small_one(self) -> None:
        answer = check(small()).as_json()
        self.assertEqual((answer["valid"], answer["problems"]), (True, []))
        case = {"path": "tests/a04.hl7", "messageType": "ADT^A04", "sourceType": None, "passed": True, "message": None}
        self.assertEqual(answer["tests"]["cases"], [case])
        self.assertEqual(answer["mappings"][0]["url"], "urn:test:acme:ADT_A04")

    def test_mistakes(self) -> None:
        """Each row: a file, its text (None: missing), path, pointer and a part of the error."""
        for name, text, path, pointer, words in (
            ("maps/a04.fml", MAP.replace("bundle.entry", "bundle.enty"), "maps/a04.fml", "5:", "enty"),
            ("maps/a04.fml", MAP.replace("group", "grup"), "maps/a04.fml", "4:1", "'uses'"),
            ("maps/a04.fml", None, "manifest.yaml", "/mappings/0/map", "there is no file"),
            ("maps/twin.fml", MAP, "maps/twin.fml", "", "has the url of maps/a04.fml"),
            ("maps/sex.json", "{", "maps/sex.json", "", ""),
            ("maps/sex.json", None, "maps/a04.fml", "7:", "urn:test:acme:sex"),
            ("tests/a04.json", '{"resourceType": "Patient", "gender": "male"}', "tests/a04.hl7", "", 'found "female"'),
            ("tests/a04.json", None, "tests/a04.hl7", "", "needs either"),
            ("tests/a04.json", "{", "tests/a04.hl7", "", "cannot be read"),
            ("tests/a04.error", "x", "tests/a04.hl7", "", "needs either"),
            ("tests/a04.hl7", None, "manifest.yaml", "/mappings/0/tests/0", "there is no file"),
            ("tests/a04.hl7", "MSH|^~\\&|A|B|||1||ADT^A08|1|P|2.5", "tests/a04.hl7", "", "type ADT_A08, not ADT_A04"),
            ("manifest.yaml", None, "manifest.yaml", "", "is missing"),
            ("manifest.yaml", "profile: 1", "manifest.yaml", "/profile", "must be a map"),
        ):  # fmt: skip
            files = small()
            files = {one: content for one, content in files.items() if one != name} | ({name: text} if text else {})
            checked = check(files)
            self.assertIsNone(checked.profile)
            shown = [(one.path, one.pointer, one.message) for one in checked.findings if one.severity == "error"]
            fitting = [one for one in shown if one[0] == path and one[1].startswith(pointer) and words in one[2]]
            self.assertTrue(fitting, (name, text, shown))

    def test_cases_that_expect_an_error(self) -> None:
        """Refused on receipt, or not mapped; another error, or none, is a failure."""
        broken = MAP.replace("patient.birthDate = born", "patient.birthDate = born check(false)")
        self.assertNotEqual(broken, MAP)
        for hl7, reason, passed, words in (
            ("MSH|^~\\&|A|B|||1|||1|P|2.5", "the message type is missing", True, ""),
            ("MSH|^~\\&|A|B|||1|||1|P|2.5", "", True, ""),
            ("MSH|^~\\&|A|B|||1|||1|P|2.5", "something else", False, "expected the error 'something else'"),
            (small()["tests/a04.hl7"], "", False, "the message was mapped"),
        ):
            files = small() | {"tests/a04.hl7": hl7, "tests/a04.error": reason + "\n"}
            del files["tests/a04.json"]
            (case,) = check(files).cases
            self.assertEqual(case.passed, passed, case)
            self.assertIn(words, case.message)

    def test_warnings(self) -> None:
        files = small() | {"tests/other.hl7": "MSH", "maps/notes.txt": "x", "tests/a04.json": EXPECTED}
        checked = check(files)
        self.assertIsNotNone(checked.profile)
        self.assertEqual([one.path for one in checked.findings], ["maps/notes.txt", "tests/other.hl7"])
