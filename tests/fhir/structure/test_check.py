"""The structure check: places, kinds of issues, and the published resources that it must not refuse."""

from __future__ import annotations

import json
import re
import tarfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import loads
from ipf.fhir.structure.check import _Checks, check_structure, structure_issues
from ipf.fhir.xml.writer import from_xml
from tests.fhir.examples import examples
from tests.reference import REFERENCE, needs_reference

Json = dict[str, Any]

NO_RESOURCES = {"package-min-ver.json": "a package manifest"}
"""R4 examples that are refused, and why."""


def places(resource: Any) -> list[tuple[str, str]]:
    """(place, category) of each issue."""
    return [(str(one.place), one.category.name if one.category else "") for one in structure_issues(resource)]


def bundle(resource: Json) -> Json:
    """A Bundle with the resource in an entry."""
    return {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": resource}]}


WRONG_FORMATS: tuple[tuple[Json, str], ...] = (
    ({"resourceType": "Patient", "birthDate": "Invalid Date Format"}, "Patient.birthDate"),
    ({"resourceType": "Patient", "birthDate": "2020-13-45"}, "Patient.birthDate"),
    ({"resourceType": "Patient", "gender": "F"}, "Patient.gender"),
    ({"resourceType": "Patient", "name": [{"use": "x"}]}, "Patient.name[0].use"),
    ({"resourceType": "Patient", "name": [{"given": ["a", "\x07"]}]}, "Patient.name[0].given[1]"),
    ({"resourceType": "Patient", "multipleBirthInteger": 2**31}, "Patient.multipleBirthInteger"),
    ({"resourceType": "Patient", "language": "a  b"}, "Patient.language"),
    ({"resourceType": "Patient", "implicitRules": "a b"}, "Patient.implicitRules"),
    ({"resourceType": "Patient", "meta": {"lastUpdated": "2024-01-01"}}, "Patient.meta.lastUpdated"),
    ({"resourceType": "Patient", "meta": {"profile": ["http://x.test", "a b"]}}, "Patient.meta.profile[1]"),
    ({"resourceType": "Patient", "photo": [{"data": "%%%"}]}, "Patient.photo[0].data"),
    ({"resourceType": "Patient", "text": {"status": "generated", "div": "<div>"}}, "Patient.text.div"),
    ({"resourceType": "Binary", "contentType": "text/plain", "data": "%%%"}, "Binary.data"),
    ({"resourceType": "Observation", "status": "done"}, "Observation.status"),
    ({"resourceType": "Observation", "effectiveDateTime": "yesterday"}, "Observation.effectiveDateTime"),
    ({"resourceType": "Observation", "effectiveInstant": "2024-01-01"}, "Observation.effectiveInstant"),
    ({"resourceType": "Observation", "valueTime": "25:00:00"}, "Observation.valueTime"),
    ({"resourceType": "Observation", "valueQuantity": {"comparator": "!"}}, "Observation.valueQuantity.comparator"),
    ({"resourceType": "Observation", "component": [{"valuePeriod": {"start": "x"}}]},
     "Observation.component[0].valuePeriod.start"),
    ({"resourceType": "Observation", "extension": [{"url": "u", "valueDate": "x"}]},
     "Observation.extension[0].valueDate"),
    ({"resourceType": "Observation", "modifierExtension": [{"url": "u", "valueUuid": "x"}]},
     "Observation.modifierExtension[0].valueUuid"),
    ({"resourceType": "Patient", "_birthDate": {"extension": [{"url": "u", "valueDateTime": "x"}]}},
     "Patient._birthDate.extension[0].valueDateTime"),
    ({"resourceType": "Patient", "name": [{"_given": [None, {"extension": [{"url": "u", "valueOid": "1"}]}]}]},
     "Patient.name[0]._given[1].extension[0].valueOid"),
    ({"resourceType": "Patient", "contained": [{"resourceType": "Device", "expirationDate": "x"}]},
     "Patient.contained[0].expirationDate"),
    ({"resourceType": "Parameters", "parameter": [{"name": "a", "part": [{"name": "b", "valueDate": "x"}]}]},
     "Parameters.parameter[0].part[0].valueDate"),
    ({"resourceType": "Questionnaire", "status": "draft", "item": [{"linkId": "1", "item": [{"type": "x"}]}]},
     "Questionnaire.item[0].item[0].type"),
    (bundle({"resourceType": "Patient", "birthDate": "x"}), "Bundle.entry[0].resource.birthDate"),
    (bundle(bundle({"resourceType": "Patient", "gender": "x"})), "Bundle.entry[0].resource.entry[0].resource.gender"),
)  # fmt: skip


ABSENT: Json = {"extension": [{"url": "u", "valueCode": "unknown"}]}
BALANCED: tuple[Json, ...] = (
    {"given": ["a", "b"]},
    {"given": ["a", None], "_given": [None, ABSENT]},
    {"given": ["a", "b"], "_given": [ABSENT, {"id": "x"}]},
    {"given": [None], "_given": [ABSENT]},
    {"given": ["a", "b"], "_given": [None, ABSENT]},
    {"given": ["a"], "_given": [None]},  # no entry is without a value
    {"_given": [ABSENT, {"id": "x"}]},
    {"_given": [ABSENT], "given": [None]},
)
_LENGTH, _NULL, _EMPTY = "must have the same number of entries", "null without an entry of", "must not be empty"
UNBALANCED: tuple[tuple[Json, str, str], ...] = (
    ({"given": [None]}, "given[0]", _NULL),
    ({"given": ["a", None]}, "given[1]", _NULL),
    ({"given": [None], "_given": [None]}, "given[0]", _NULL),
    ({"given": [None, "a"], "_given": [None, ABSENT]}, "given[0]", _NULL),
    ({"_given": [None, ABSENT], "given": [None, "a"]}, "given[0]", _NULL),
    ({"_given": [None, ABSENT]}, "_given[0]", _NULL),
    ({"_given": [None]}, "_given[0]", _NULL),
    ({"given": ["a", "b"], "_given": [ABSENT]}, "given", _LENGTH),
    ({"given": ["a"], "_given": [None, ABSENT]}, "given", _LENGTH),
    ({"given": [None], "_given": [ABSENT, ABSENT]}, "given", _LENGTH),
    ({"given": []}, "given", _EMPTY),
    ({"given": ["a"], "_given": []}, "_given", _EMPTY),
    ({"given": ["a"], "_given": [{}]}, "_given[0]", _EMPTY),
    ({"given": [None], "_given": [{}]}, "_given[0]", _EMPTY),
    ({"family": None}, "family", "a value of type string is expected"),
    ({"_family": None}, "_family", "a JSON object is expected"),
    ({"_family": {}}, "_family", _EMPTY),
    ({"family": "a", "_given": ABSENT}, "_given", "a list is expected"),
    ({"given": ["a"], "_given": ABSENT}, "_given", "a list is expected"),
    ({"given": ["a"], "_given": [5]}, "_given[0]", "a JSON object is expected"),
    ({"given": ["a"], "period": {}}, "period", _EMPTY),
    ({"prefix": [None, None]}, "prefix[0]", _NULL),
)


class CheckTests(TestCase):
    def test_null_stands_for_the_other_list(self) -> None:
        """Of a primitive that repeats, each place has a value, or an entry in the list of extensions."""
        for name in BALANCED:
            self.assertEqual(places({"resourceType": "Patient", "name": [name]}), [], name)
        for name, place, text in UNBALANCED:
            found = structure_issues({"resourceType": "Patient", "name": [name]})
            self.assertEqual(found[0].place, f"Patient.name[0].{place}", name)
            self.assertEqual((found[0].category, text in found[0].text), (Category.MALFORMED, True), (name, found))
        many = structure_issues({"resourceType": "Patient", "name": [{"given": [None] * 100}]})
        self.assertEqual(len(many), 20)
        for other in ({"name": [None]}, {"contact": [None]}, {"name": []}, {"contact": [{}]}):
            self.assertEqual([one for _, one in places({"resourceType": "Patient", **other})], ["MALFORMED"], other)

    def test_formats_and_codes(self) -> None:
        for resource, place in WRONG_FORMATS:
            self.assertEqual(places(resource), [(place, "INVALID")], resource)

    def test_an_absent_value_may_have_extensions(self) -> None:
        absent = {"extension": [{"url": "u", "valueCode": "unknown"}]}
        patient = {"resourceType": "Patient", "_gender": absent, "_birthDate": absent, "name": [{"_family": absent}]}
        self.assertEqual(places(patient), [])

    def test_problems(self) -> None:
        """422 when only formats are wrong, 400 when a shape is; each issue has its own category, none its value."""
        wrong = {"resourceType": "Patient", "gender": "SECRET", "birthDate": "SECRET", "name": [{"x": 1}]}
        refused = self.assertRaises(Problem, check_structure, wrong)
        self.assertEqual(refused.category, Category.MALFORMED)
        self.assertEqual(
            [one.place for one in refused.issues], ["Patient.gender", "Patient.birthDate", "Patient.name[0].x"]
        )
        self.assertNotIn("SECRET", f"{refused} {refused.issues}")
        del wrong["name"]
        refused = self.assertRaises(Problem, check_structure, wrong)
        self.assertEqual(refused.category, Category.INVALID)
        self.assertEqual([one.code for one in refused.issues], ["code-invalid", ""])
        self.assertIn("http://hl7.org/fhir/ValueSet/administrative-gender", refused.issues[0].text)

    def test_names_of_the_mapping_language(self) -> None:
        group = {"name": "PID_Patient", "rule": [{"name": "a_b", "dependent": [{"name": "c_d", "variable": ["e"]}]}]}
        self.assertEqual(places({"resourceType": "StructureMap", "group": [group]}), [])

    def test_at_most_twenty_issues(self) -> None:
        names = [{"use": "x"} for _ in range(100)]
        self.assertEqual(len(structure_issues({"resourceType": "Patient", "name": names})), 20)

    def test_no_resource(self) -> None:
        for value in (None, [], "a", {}, {"resourceType": 1}, {"resourceType": "Nonsense"}):
            self.assertEqual([one for _, one in places(value)], ["MALFORMED"], value)

    def test_threads_compile_together(self) -> None:
        """A check is complete before another thread uses it."""
        patient = {"resourceType": "Patient", "name": [{"family": "x", "period": {"start": "2020"}}]}
        for _ in range(5):
            checks = _Checks()
            with ThreadPoolExecutor(8) as pool:
                found = list(pool.map(lambda _: checks.of("Patient")(patient, 0), range(16)))  # noqa: B023
            self.assertEqual(found, [None] * 16)

    def test_every_type_compiles(self) -> None:
        for name in sorted(definitions().resource_types):
            self.assertEqual(places({"resourceType": name}), [], name)


class PublishedTests(TestCase):
    @needs_reference
    def test_no_example_of_r4_is_refused(self) -> None:
        refused = {name: found for name, text in examples().items() if (found := places(loads(text)))}
        self.assertEqual({*refused}, {*NO_RESOURCES}, refused)

    @needs_reference
    def test_no_definition_of_us_core_is_refused(self) -> None:
        refused, count = {}, 0
        with tarfile.open(next((REFERENCE / "us-core").glob("*.tgz"))) as archive:
            for one in archive:
                file = archive.extractfile(one) if re.fullmatch(r"package/[A-Z][^/]*\.json", one.name) else None
                if file is not None:
                    count += 1
                    if found := places(loads(file.read())):
                        refused[one.name] = found
        self.assertEqual(refused, {})
        self.assertGreater(count, 150)

    @needs_reference
    def test_what_hl7s_validator_accepts(self) -> None:
        """Resources without an error there are not refused here."""
        folder = REFERENCE / "validation"
        cases = [one for one in json.loads((folder / "cases.json").read_text())["cases"] if not one["base"]["error"]]
        self.assertGreater(len(cases), 20)
        refused = {}
        for case in cases:
            data = (folder / "files" / case["file"]).read_bytes()
            if found := places(from_xml(data) if case["file"].endswith(".xml") else loads(data)):
                refused[case["name"]] = found
        self.assertEqual({*refused}, {"contained-resource-bad-id-ignore"}, refused)  # contained ids are checked here
