"""XML Patch and JSON Merge Patch, against the published cases and cases of our own."""

from __future__ import annotations

from typing import Any

from lxml import etree
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.patch.merge_patch import merge_patch
from ipf.fhir.patch.xml_patch import patch_document, xml_patch
from ipf.ports import Json
from tests.reference import REFERENCE, needs_reference

FHIR = 'xmlns="http://hl7.org/fhir"'
PATIENT: Json = {
    "resourceType": "Patient",
    "id": "p",
    "text": {"status": "generated", "div": '<div xmlns="http://www.w3.org/1999/xhtml">A <b>B</b>&lt;</div>'},
    "active": True,
    "name": [
        {"use": "official", "family": "Day", "given": ["Ann", "Bea"]},
        {"use": "old", "family": "Night", "_family": {"extension": [{"url": "urn:x", "valueDecimal": 1}]}},
    ],
    "birthDate": "1970-01-01",
}


def normal(document: bytes) -> bytes:
    """The canonical form of a document without white space between its nodes."""
    root = etree.fromstring(document)
    for node in root.iter():
        node.text, node.tail = (text if text and text.strip() else None for text in (node.text, node.tail))
    return bytes(etree.tostring(root, method="c14n"))


def content(part: Any) -> bytes:
    """The document in a part of a published case; empty when there is none."""
    found = [child for child in part if child.tag != "test"]
    return bytes(etree.tostring(found[0], with_tail=False)) if found else b""


@needs_reference
class PublishedTests(TestCase):
    def test_xml_patch(self) -> None:
        cases = list(etree.parse(str(REFERENCE / "patch" / "xml-patch-tests.xml")).getroot().iter("case"))
        self.assertEqual(len(cases), 29)
        for case in cases:
            patch, target = case.find("{http://hl7.org/fhir}patch"), content(case.find("target"))

            def patched(patch: Any = patch, target: bytes = target) -> bytes:
                return patch_document(etree.tostring(patch))(target)

            if case.find("error") is not None:
                self.assertRaises(Problem, patched)
            else:
                self.assertEqual(normal(patched()), normal(content(case.find("patched"))), case.get("name"))


def patched(*operations: str, resource: Json = PATIENT, root: str = f"diff {FHIR}") -> Json:
    """The resource after these operations."""
    return xml_patch(f"<{root}>{''.join(operations)}</{root.split()[0]}>".encode())(resource)


class XmlPatchTests(TestCase):
    def test_everything_else_is_preserved(self) -> None:
        before = dumps(PATIENT)
        found = patched('<replace sel="Patient/active/@value">false</replace>')
        self.assertEqual(found, {**PATIENT, "active": False})
        self.assertEqual(dumps(PATIENT), before)
        number = loads(b'{"resourceType": "Observation", "status": "final", "valueQuantity": {"value": 1.00}}')
        changed = patched('<replace sel="f:Observation/f:status/@value">amended</replace>', resource=number)
        self.assertEqual(dumps(changed["valueQuantity"]), b'{"value":1.00}')

    def test_operations(self) -> None:
        for operation, path, value in (
            ('<remove sel="f:Patient/f:birthDate"/>', ("birthDate",), None),
            ('<remove sel="/f:Patient/f:name[f:use/@value=\'old\']"/>', ("name",), PATIENT["name"][:1]),
            ('<remove sel="f:Patient/f:name[1]/f:given[last()]"/>', ("name", 0, "given"), ["Ann"]),
            ('<add sel="f:Patient/f:name[1]/f:given[1]" pos="before"><given value="0"/></add>',
             ("name", 0, "given"), ["0", "Ann", "Bea"]),
            ('<add sel="f:Patient/f:name[1]/f:given[1]" pos="after"><given value="1"/><given value="2"/></add>',
             ("name", 0, "given"), ["Ann", "1", "2", "Bea"]),
            ('<add sel="f:Patient/f:name[2]"><given value="1"/></add>', ("name", 1, "given"), ["1"]),
            ('<replace sel="f:Patient/f:birthDate"><birthDate value="1980"/></replace>', ("birthDate",), "1980"),
            ('<add sel="f:Patient/f:birthDate" type="@id">b</add>', ("_birthDate",), {"id": "b"}),
            ('<remove sel="//f:birthDate"/>', None, Category.MALFORMED),
        ):  # fmt: skip
            if path is None:
                self.refuse(operation, value)
                continue
            found: Any = patched(operation)
            for step in path:
                found = found[step] if not isinstance(found, dict) else found.get(step)
            self.assertEqual(found, value, operation)

    def test_namespaces(self) -> None:
        """Prefixes of the patch, its default namespace, and FHIR's own where the patch has none."""
        for root, sel in (
            ('x xmlns:q="http://hl7.org/fhir"', "q:Patient/q:active/@value"),
            ("x", "Patient/active/@value"),
            ("x", "f:Patient/fhir:active/@value"),
            ('x xmlns="urn:other" xmlns:q="http://hl7.org/fhir"', "q:Patient/q:active/@value"),
        ):
            operation = f'<replace sel="{sel}">false</replace>'
            self.assertIs(patched(operation, root=root)["active"], False, sel)
        self.refuse('<replace sel="Patient/active/@value">false</replace>', Category.INVALID, 'x xmlns="urn:other"')
        self.refuse('<remove sel="q:Patient/q:active"/>', Category.MALFORMED)
        narrative = patched('<replace sel="f:Patient/f:text/h:div/h:b/text()">C &amp; D</replace>')["text"]["div"]
        self.assertEqual(narrative, '<div xmlns="http://www.w3.org/1999/xhtml">A <b>C &amp; D</b>&lt;</div>')
        narrative = patched('<remove sel="f:Patient/f:text/h:div/h:b"/>')["text"]["div"]
        self.assertEqual(narrative, '<div xmlns="http://www.w3.org/1999/xhtml">A &lt;</div>')

    def test_texts_around_what_is_inserted_and_removed(self) -> None:
        document = b"<a>1<b/>2<c/>3</a>"
        for operation, result in (
            ('<add sel="q:a" pos="prepend">x<d/>y</add>', b"<a>x<d/>y1<b/>2<c/>3</a>"),
            ('<add sel="q:a">x<d/>y</add>', b"<a>1<b/>2<c/>3x<d/>y</a>"),
            ('<add sel="q:a/q:b" pos="before">x<d/>y</add>', b"<a>1x<d/>y<b/>2<c/>3</a>"),
            ('<add sel="q:a/q:b" pos="after">x<d/>y</add>', b"<a>1<b/>x<d/>y2<c/>3</a>"),
            ('<add sel="q:a/q:b" pos="after">x</add>', b"<a>1<b/>x2<c/>3</a>"),
            ('<remove sel="q:a/q:b"/>', b"<a>12<c/>3</a>"),
            ('<replace sel="q:a/text()[2]">x</replace>', b"<a>1<b/>x<c/>3</a>"),
            ('<replace sel="q:a/*[2]"><d/></replace>', b"<a>1<b/>2<d/>3</a>"),
        ):
            patch = f'<diff xmlns:q="">{operation}</diff>'.replace(' xmlns:q=""', "").replace("q:", "")
            change = patch_document(patch.replace("<diff>", '<diff xmlns="urn:n">').encode())
            named = document.replace(b"<a>", b'<a xmlns="urn:n">', 1)
            self.assertEqual(change(named), result.replace(b"<a>", b'<a xmlns="urn:n">', 1), operation)

    def test_white_space(self) -> None:
        document = b'<a xmlns="urn:n"> <b/>\n<c/>x<d/></a>'
        for operation, result in (
            ('<remove sel="a/b" ws="before"/>', b"\n<c/>x<d/>"),
            ('<remove sel="a/b" ws="after"/>', b" <c/>x<d/>"),
            ('<remove sel="a/b" ws="both"/>', b"<c/>x<d/>"),
            ('<remove sel="a/c" ws="after"/>', None),
            ('<remove sel="a/d" ws="after"/>', None),
        ):
            change = patch_document(f'<diff xmlns="urn:n">{operation}</diff>'.encode())
            if result is None:
                self.assertRaises(Problem, change, document)
            else:
                self.assertEqual(change(document), b'<a xmlns="urn:n">' + result + b"</a>", operation)

    def refuse(self, operation: str, category: Category, root: str = f"diff {FHIR}") -> None:
        """A patch with this operation is refused."""
        with self.assertRaises(Problem) as raised:
            patched(operation, root=root)
        self.assertEqual(raised.exception.category, category, operation)

    def test_malformed_patches(self) -> None:
        for text in (
            b"",
            b"<diff>",
            b"\xff<diff/>",
            '<?xml version="1.0" encoding="UTF-16"?><diff/>'.encode("utf-16"),
            b"<diff/>",
            b'<!DOCTYPE diff [<!ENTITY x "y">]><diff><remove sel="&x;"/></diff>',
            b'<!DOCTYPE diff SYSTEM "http://localhost:1/x.dtd"><diff><remove sel="a"/></diff>',
            b'<diff><remove sel="&x;"/></diff>',
            b"<diff>" + b'<remove sel="a"/>' * 2001 + b"</diff>",
            b"<a>" * 400 + b"</a>" * 400,
        ):
            with self.assertRaises(Problem) as raised:
                xml_patch(text)
            self.assertEqual(raised.exception.category, Category.MALFORMED, text[:60])
        for operation in (
            "<remove/>",
            "<move sel='a'/>",
            "<remove sel=''/>",
            "<remove sel='a' pos='before'/>",
            "<remove sel='a' ws='none'/>",
            "<add sel='a' pos='inside'/>",
            "<remove sel='a/..'/>",
            "<remove sel='a//b'/>",
            "<remove sel='//*[count(//*)>1]'/>",
            "<remove sel='document(\"file:///etc/passwd\")'/>",
            "<remove sel='a/namespace::b'/>",
            "<remove sel='a[position()=1]'/>",
            f"<remove sel='{'a/' * 2000}a'/>",
            "<add sel='f:Patient' type='name'>x</add>",
            "<add sel='f:Patient' type='@q:x'>x</add>",
            "<add sel='f:Patient' type='@id'><b/></add>",
            "<replace sel='f:Patient/f:active'>x</replace>",
            "<replace sel='f:Patient/f:active'><a/><b/></replace>",
            "<remove sel='f:Patient/f:active'><a/></remove>",
            "<remove sel='f:Patient/f:active/@value' ws='both'/>",
        ):
            self.refuse(operation, Category.MALFORMED)

    def test_patches_that_do_not_fit(self) -> None:
        for operation in (
            "<remove sel='f:Patient/f:photo'/>",
            "<remove sel='f:Patient/f:name'/>",
            "<remove sel='f:Patient'/>",
            "<remove sel='f:Patient/f:active' ws='before'/>",
            "<add sel='f:Patient' pos='before'><a/></add>",
            "<add sel='f:Patient/f:active/@value'>x</add>",
            "<add sel='f:Patient/f:active' type='@value'>x</add>",
            "<add sel='f:Patient' type='namespace::f'>urn:a</add><add sel='f:Patient' type='namespace::f'>urn:b</add>",
            "<replace sel='f:Patient/f:active'><!-- x --></replace>",
        ):
            self.refuse(operation, Category.INVALID)
        for operation in ("<add sel='f:Patient'><nonsense/></add>", "<add sel='f:Patient'>text</add>"):
            self.refuse(operation, Category.MALFORMED)
        with self.assertRaises(Problem) as raised:
            patched("<remove sel='f:X/f:a'/>", resource={"resourceType": "Patient", "nonsense": 1})
        self.assertEqual(raised.exception.category, Category.INVALID)

    def test_entities_are_not_read(self) -> None:
        """A file that a patch names is not in what it makes."""
        text = '<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]><d><add sel="f:Patient">&x;</add></d>'
        self.assertRaises(Problem, xml_patch, text.encode())


class MergePatchTests(TestCase):
    def test_cases_of_the_rfc(self) -> None:
        """RFC 7396 appendix A, where the patch is an object."""
        for document, patch, result in (
            ({"a": "b"}, {"a": "c"}, {"a": "c"}),
            ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
            ({"a": "b"}, {"a": None}, {}),
            ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
            ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
            ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
            ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
            ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
            ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
            ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
            ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ):
            before = dumps(document)
            self.assertEqual(merge_patch(patch)(document), result, patch)
            self.assertEqual(dumps(document), before)

    def test_other_values_are_refused(self) -> None:
        for patch in (None, [], "x", 1):
            self.assertRaises(Problem, merge_patch, patch)
