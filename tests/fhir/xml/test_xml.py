"""XML and JSON are equivalent: writing and reading again changes nothing."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.xml.writer import from_xml, to_xml
from tests.fhir.examples import examples
from tests.reference import needs_reference

NS = ' xmlns="http://hl7.org/fhir"'
DIV = '<div xmlns="http://www.w3.org/1999/xhtml">'
NO_RESOURCE = {"package-min-ver.json"}  # the description of a package


def in_order(value: Any) -> Any:
    """The JSON with the members of each object sorted, so that bytes can be compared."""
    if isinstance(value, dict):
        return {name: in_order(value[name]) for name in sorted(value)}
    return [in_order(item) for item in value] if isinstance(value, list) else value


class RoundTripTests(TestCase):
    def same(self, resource: Any, name: str = "") -> None:
        """Digits and texts included."""
        again = from_xml(to_xml(resource))
        self.assertEqual(dumps(in_order(again)), dumps(in_order(resource)), name)

    @needs_reference
    def test_every_example(self) -> None:
        files = {name: text for name, text in examples().items() if name not in NO_RESOURCE}
        self.assertGreater(len(files), 700)
        for name, text in files.items():
            self.same(loads(text), name)

    def test_corners(self) -> None:
        for text in (
            '{"name":[{"given":["a",null,"b"],"_given":[null,{"id":"x"},{"extension":[{"url":"u","valueCode":"c"}]}]}]}',
            '{"_birthDate":{"extension":[{"url":"u","valueDecimal":1.50}]}}',
            '{"multipleBirthInteger":3,"active":false,"id":"a","meta":{"versionId":"1"}}',
            '{"contained":[{"resourceType":"Location","id":"l","position":{"longitude":1e-2,"latitude":-0.0}}]}',
            '{"name":[{"id":"n","text":"<a & \\"b\\">\\n\\t\\r\\n]]>"}]}',
            '{"text":{"status":"generated","div":"<div xmlns=\\"http://www.w3.org/1999/xhtml\\">'
            '<p>a &amp; b<br/> </p></div>"}}',
            '{"text":{"status":"empty","div":"<div xmlns=\\"http://www.w3.org/1999/xhtml\\"/>"}}',
        ):
            self.same(loads('{"resourceType":"Patient",' + text[1:]), text)

    def test_narrative_that_is_not_xml_is_escaped(self) -> None:
        for div, expected in (
            (f"{DIV}a&nbsp;b</div>", f"{DIV}a\N{NO-BREAK SPACE}b</div>"),
            ("<div><p></div>", f"{DIV}&lt;div&gt;&lt;p&gt;&lt;/div&gt;</div>"),
            ("</text><evil/>", f"{DIV}&lt;/text&gt;&lt;evil/&gt;</div>"),
            (f"{DIV}&nonsense;</div>", f"{DIV}&amp;nonsense;</div>"),
        ):
            patient = {"resourceType": "Patient", "text": {"status": "generated", "div": div}}
            self.assertEqual(from_xml(to_xml(patient))["text"]["div"], expected)

    def test_a_narrative_with_a_prefix(self) -> None:
        xml = (
            f'<Patient{NS} xmlns:h="http://www.w3.org/1999/xhtml"><text><status value="generated"/>'
            '<h:div><h:p class="a&amp;b">x &lt; y</h:p></h:div></text></Patient>'
        )
        self.assertEqual(from_xml(xml.encode())["text"]["div"], f'{DIV}<p class="a&amp;b">x &lt; y</p></div>')

    def test_control_characters_do_not_break_the_document(self) -> None:
        again = from_xml(to_xml({"resourceType": "Patient", "name": [{"text": "a\x01b\ud800"}]}))
        self.assertEqual(again["name"][0]["text"], "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}")

    def test_resources_without_xml_form(self) -> None:
        for resource in ({"resourceType": "Patient", "nonsense": 1}, {"resourceType": "Nonsense"}, {}):
            problem = self.assertRaises(Problem, to_xml, resource)
            self.assertEqual(problem.category, Category.NOT_ACCEPTABLE)


class RefusedTests(TestCase):
    def test_places(self) -> None:
        for xml, place, message in (
            ("<Patient", None, "not XML"),
            ("", None, "not XML"),
            (f"<Patient{NS}/>x", None, "not XML"),
            ("<Patient/>", None, "namespace"),
            (f"<Nonsense{NS}/>", "Nonsense", "resource type"),
            (f"<Patient{NS}><nonsense/></Patient>", "Patient.nonsense", "no element"),
            (f"<Patient{NS}><name><famly value='x'/></name></Patient>", "Patient.name[0].famly", "no element"),
            (f"<Patient{NS}><active value='yes'/></Patient>", "Patient.active", "true or false"),
            (f"<Patient{NS}><active value='true'/><active value='true'/></Patient>", "Patient.active", "one element"),
            (f"<Patient{NS}><active/></Patient>", "Patient.active", "value or children"),
            (f"<Patient{NS}><birthDate value=''/></Patient>", "Patient.birthDate", "empty"),
            (f"<Patient{NS}><birthDate valeu='2000'/></Patient>", "Patient.birthDate", "attribute"),
            (f"<Patient{NS}>text</Patient>", "Patient", "text outside"),
            (f"<Patient{NS}><multipleBirthInteger value='1.5'/></Patient>", "Patient.multipleBirthInteger", "integer"),
            (f"<Patient{NS}><contained><Patient/><Patient/></contained></Patient>", "Patient.contained[0]", "several"),
            (f'<!DOCTYPE x [<!ENTITY a "b">]><Patient{NS}/>', None, "DOCTYPE"),
            (f'<?xml version="1.0" encoding="UTF-16"?><Patient{NS}/>', None, "UTF-8"),
            (f"<Observation{NS}><valueQuantity><value value='1e9999'/></valueQuantity></Observation>", None, "range"),
            (f"<Patient{NS}>" + "<extension url='u'>" * 300, None, "deep"),
        ):
            problem = self.assertRaises(Problem, from_xml, xml.encode())
            self.assertEqual(problem.category, Category.MALFORMED, xml)
            self.assertIn(message, str(problem), xml)
            if place is not None:
                self.assertEqual(problem.place, place)

    def test_attributes_of_other_namespaces_are_ignored(self) -> None:
        xml = f'<Patient{NS} xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="a b"/>'
        self.assertEqual(from_xml(xml.encode()), {"resourceType": "Patient"})
