"""JSON Patch and FHIRPath Patch, against the published cases and cases of our own."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.patch.fhirpath_patch import fhirpath_patch
from ipf.fhir.patch.json_patch import json_patch
from ipf.fhir.xml.writer import from_xml
from ipf.ports import Json
from tests.reference import REFERENCE, needs_reference

CASES = REFERENCE / "patch"


def body(case: ElementTree.Element, name: str) -> Json:
    """The resource in a part of an XML case; its narrative without the white space of the file."""
    part = case.find(name)
    assert part is not None
    resource = from_xml(ElementTree.tostring(part[0]))
    if "text" in resource:
        resource["text"]["div"] = "".join(resource["text"]["div"].split())
    return resource


@needs_reference
class PublishedTests(TestCase):
    def test_json_patch(self) -> None:
        cases = json.loads((CASES / "json-patch-tests.json").read_text())
        self.assertEqual(len(cases), 16)
        for case in cases:
            patch = json_patch(case["patch"])
            if "error" in case:
                self.assertRaises(Problem, patch, case["doc"])
            else:
                self.assertEqual(patch(case["doc"]), case["expected"], case["comment"])

    def test_fhirpath_patch(self) -> None:
        ElementTree.register_namespace("", "http://hl7.org/fhir")
        cases = list(ElementTree.parse(CASES / "fhir-patch-tests.xml").getroot().iter("case"))
        self.assertEqual(len(cases), 33)
        for case in cases:
            patch = fhirpath_patch(body(case, "diff"))
            if case.find("error") is not None:
                self.assertRaises(Problem, patch, body(case, "input"))
                continue
            patched = patch(body(case, "input"))
            if "text" in patched:
                patched["text"]["div"] = "".join(patched["text"]["div"].split())
            self.assertEqual(patched, body(case, "output"), case.get("name"))


class JsonPatchTests(TestCase):
    def test_input_and_patch_are_not_changed(self) -> None:
        operations = [
            {"op": "add", "path": "/a", "value": {"b": [1]}},
            {"op": "add", "path": "/a/b/-", "value": 2},
        ]
        patch, document = json_patch(operations), {"c": 1}
        self.assertEqual(patch(document), {"c": 1, "a": {"b": [1, 2]}})
        self.assertEqual(patch(document), {"c": 1, "a": {"b": [1, 2]}})
        self.assertEqual(document, {"c": 1})

    def test_digits_are_preserved(self) -> None:
        document = loads('{"a":1.10,"b":2.0}')
        patched = json_patch(loads('[{"op":"move","from":"/a","path":"/c"},{"op":"add","path":"/d","value":3.00}]'))(
            document
        )
        self.assertEqual(dumps(patched), b'{"b":2.0,"c":1.10,"d":3.00}')

    def test_equality(self) -> None:
        for text, other, expected in (
            ("1", "1.0", True), ("1", "true", False), ("0", "false", False), ('"1"', "1", False), ("null", "null", 1),
            ('{"a":1,"b":2}', '{"b":2,"a":1}', True), ("[1,2]", "[2,1]", False), ("[1]", "[1,2]", False),
            ("[1]", "[true]", False), ('{"a":[false]}', '{"a":[0]}', False), ("[1.10]", "[1.1]", True),
        ):  # fmt: skip
            patch = json_patch([{"op": "test", "path": "/v", "value": loads(f"[{other}]")[0]}])
            document = loads(f'{{"v":{text}}}')
            if expected:
                self.assertEqual(patch(document), document)
            else:
                self.assertRaises(Problem, patch, document)

    def test_malformed_patches(self) -> None:
        for operations in (
            {}, "x", [1], [{}], [{"op": "nonsense", "path": "/a"}], [{"op": "add", "path": "/a"}],
            [{"op": "add", "path": "a", "value": 1}], [{"op": "add", "path": "/a~2", "value": 1}],
            [{"op": "add", "path": 1, "value": 1}], [{"op": "move", "path": "/a"}], [{"op": "remove"}],
            [{"op": ["add"], "path": "/a", "value": 1}], [{"op": "remove", "path": "/a"}] * 2001,
            [{"op": "append", "path": "/a", "value": "x"}], [{"op": "copy", "from": None, "path": "/a"}], [None],
        ):  # fmt: skip
            problem = self.assertRaises(Problem, json_patch, operations)
            self.assertEqual(problem.category, Category.MALFORMED)

    def test_patches_that_do_not_fit(self) -> None:
        document = {"a": {"b": 1}, "l": [1, 2], "t": "Hansen"}
        for operation in (
            {"op": "remove", "path": ""},
            {"op": "remove", "path": "/x"},
            {"op": "remove", "path": "/l/2"},
            {"op": "remove", "path": "/l/-"},
            {"op": "remove", "path": "/l/01"},
            {"op": "replace", "path": "/x", "value": 1},
            {"op": "add", "path": "/l/3", "value": 1},
            {"op": "add", "path": "/a/b/c", "value": 1},
            {"op": "move", "from": "/a", "path": "/a/c"},
            {"op": "copy", "from": "/x", "path": "/y"},
            {"op": "copy", "from": "/l/-", "path": "/y"},
            {"op": "move", "from": "/l/-", "path": "/y"},
            {"op": "test", "path": "/l/-", "value": 1},
            {"op": "test", "path": "/t/0", "value": "H"},
            {"op": "add", "path": "/l/\u0661", "value": 1},
            {"op": "add", "path": "/l/-1", "value": 1},
            {"op": "test", "path": "/t", "value": "Berg"},
        ):
            problem = self.assertRaises(Problem, json_patch([operation]), document)
            self.assertEqual((problem.category, problem.place), (Category.INVALID, "operation[0]"), operation)
            self.assertNotIn("Hansen", str(problem))  # the texts of the package quote the document
            self.assertEqual(document, {"a": {"b": 1}, "l": [1, 2], "t": "Hansen"})

    def test_total_size_of_copies_is_limited(self) -> None:
        doubling = [{"op": "copy", "from": "/a", "path": "/a/-"}] * 40
        problem = self.assertRaises(Problem, json_patch(doubling), {"a": ["x" * 1000]})
        self.assertEqual(problem.category, Category.TOO_LARGE)


def operation(kind: str, **parts: Any) -> Json:
    """One operation of a FHIRPath patch; parts are (type, value) or a text."""
    nested = [{"name": "type", "valueCode": kind}]
    for name, part in parts.items():
        kind_, value = part if isinstance(part, tuple) else ("String", part)
        nested.append({"name": name, f"value{kind_}": value})
    return {"name": "operation", "part": nested}


class FhirPathPatchTests(TestCase):
    resource: Json = {
        "resourceType": "Patient",
        "active": True,
        "deceasedBoolean": False,
        "birthDate": "2000",
        "name": [{"given": ["a", "b", "c"], "_given": [None, {"id": "x"}, None]}],
        "contained": [{"resourceType": "Location", "id": "l", "name": "n"}],
        "extension": [{"url": "u", "valueString": "v"}],
    }

    def patched(self, *operations: Json) -> Json:
        """The patched resource."""
        found: Json = fhirpath_patch({"resourceType": "Parameters", "parameter": list(operations)})(self.resource)
        return found

    def test_lists_of_primitives_keep_sibling_properties(self) -> None:
        for change, given, beside in (
            (operation("delete", path="Patient.name.given[0]"), ["b", "c"], [{"id": "x"}, None]),
            (operation("delete", path="Patient.name.given[1]"), ["a", "c"], None),
            (operation("delete", path="Patient.name.given.where($this = 'c')"), ["a", "b"], [None, {"id": "x"}]),
            (operation("insert", path="Patient.name.given", index=("Integer", 0), value="z"),
             ["z", "a", "b", "c"], [None, None, {"id": "x"}, None]),
            (operation("move", path="Patient.name.given", source=("Integer", 1), destination=("Integer", 0)),
             ["b", "a", "c"], [{"id": "x"}, None, None]),
            (operation("replace", path="Patient.name.given.last()", value="z"),
             ["a", "b", "z"], [None, {"id": "x"}, None]),
        ):  # fmt: skip
            name = self.patched(change)["name"][0]
            self.assertEqual((name["given"], name.get("_given")), (given, beside), change)

    def test_choices(self) -> None:
        later = self.patched(operation("replace", path="Patient.deceased", value=("DateTime", "2020")))
        self.assertEqual((later.get("deceasedBoolean"), later["deceasedDateTime"]), (None, "2020"))
        patched = self.patched(operation("delete", path="Patient.deceased.ofType(boolean)"))
        self.assertNotIn("deceasedBoolean", patched)
        twins = self.patched(operation("add", path="Patient", name="multipleBirth", value=("Integer", 2)))
        self.assertEqual(twins["multipleBirthInteger"], 2)

    def test_children_of_primitives(self) -> None:
        extension = {"url": "e", "valueCode": "c"}
        added = self.patched(
            operation("add", path="Patient.birthDate", name="extension", value=("Extension", extension))
        )
        self.assertEqual(added["_birthDate"], {"extension": [extension]})
        given = operation("add", path="Patient.name.given[2]", name="extension", value=("Extension", extension))
        self.assertEqual(self.patched(given)["name"][0]["_given"], [None, {"id": "x"}, {"extension": [extension]}])

    def test_extensions_and_contained(self) -> None:
        changed = self.patched(
            operation("replace", path="Patient.extension('u').value", value=("Integer", 3)),
            operation("replace", path="Patient.contained.where(id = 'l').name", value="new"),
        )
        self.assertEqual(changed["extension"], [{"url": "u", "valueInteger": 3}])
        self.assertEqual(changed["contained"][0]["name"], "new")

    def test_empty_elements_are_removed(self) -> None:
        changed = self.patched(*(operation("delete", path="Patient.name.given[0]") for _ in range(3)))
        self.assertNotIn("name", changed)

    def test_refused(self) -> None:
        no_value = operation("add", path="Patient", name="photo")
        no_value["part"].append({"name": "value"})
        for change, category in (
            (operation("add", path="Patient", name="active", value=("Boolean", True)), Category.INVALID),
            (operation("add", path="Patient", name="nonsense", value="x"), Category.INVALID),
            (operation("add", path="Patient.photo", name="title", value="x"), Category.INVALID),
            (operation("delete", path="Patient.name.given"), Category.INVALID),
            (operation("delete", path="Patient"), Category.INVALID),
            (operation("replace", path="Patient.deceased", value=("Integer", 1)), Category.INVALID),
            (operation("insert", path="Patient.name.given", index=("Integer", 9), value="x"), Category.INVALID),
            (operation("insert", path="Patient.active", index=("Integer", 0), value="x"), Category.INVALID),
            (
                operation("move", path="Patient.name", source=("Integer", 0), destination=("Integer", 1)),
                Category.INVALID,
            ),
            (operation("delete", path="Patient.name.select(given)"), Category.NOT_SUPPORTED),
            (operation("delete", path="1 + 1"), Category.NOT_SUPPORTED),
            (operation("delete", path="Patient..name"), Category.MALFORMED),
            (operation("delete", path=("Integer", 1)), Category.MALFORMED),
            (operation("delete"), Category.MALFORMED),
            (operation("nonsense", path="Patient"), Category.MALFORMED),
            ({"name": "other"}, Category.MALFORMED),
            (no_value, Category.MALFORMED),
        ):
            problem = self.assertRaises(Problem, self.patched, change)
            self.assertEqual(problem.category, category, change)
