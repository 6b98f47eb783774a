"""A folder of maps: loaded whole or not at all, chosen by message type, the same message giving the same Bundle."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.config.paths import folder
from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.hl7.message import Message
from ipf.mapping.language.grammar import parse, parse_header
from ipf.mapping.language.structuremap import digest
from ipf.mapping.library.maps import Library
from ipf.ports import Claimed, Mapped, map_and_version
from tests.mapping.support import message

MESSAGE = """
/// url = "urn:ipf:map:ADT_A01"
/// types = "ADT_A01 ADT_A08"
imports "urn:ipf:map:*"
group ADT_A01(source src : ADT_A01, target bundle : Bundle) {
  src.PID as pid -> bundle.entry as e, e.resource = create('Patient') as patient then PID_Patient(pid, patient) {
    src.PV1 as pv1 -> bundle.entry as v, v.resource = create('Encounter') as visit, visit.subject = reference(patient),
      visit.serviceProvider as ref then {
      pv1.PV1_3 as pl -> bundle.entry as o, o.resource = create('Organization') as org,
        ref.reference = reference(org) then {
        pl.PL_4 as name -> org.name = name;
      };
    };
  };
}
"""
SEGMENT = """
/// url = "urn:ipf:map:PID_Patient"
group PID_Patient(source pid : PID, target patient : Patient) {
  pid.PID_3 as cx -> patient.identifier as id then { cx.CX_1 as v -> id.value = v, id.system = 'urn:x'; };
  pid.PID_8 as sex -> patient.gender = translate(sex, 'urn:c', 'code');
}
"""
TABLE = """{"resourceType": "ConceptMap", "url": "urn:c", "group": [{"element": [
  {"code": "M", "target": [{"code": "male", "equivalence": "equal"}]}]}]}"""


def claimed(raw: bytes, message_type: str = "ADT_A01") -> Claimed:
    """A stored message."""
    return Claimed(1, 1, "c", datetime.now(UTC), "APP", "MSG1", message_type, raw, "", 0)


class LibraryTests(TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        for name, text in (
            ("messages/ADT_A01.fml", MESSAGE),
            ("segments/PID_Patient.fml", SEGMENT),
            ("codesystems/c.json", TABLE),
        ):
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def test_maps_by_type(self) -> None:
        library = Library.load(self.folder)
        self.assertEqual(library.message_types, ("ADT_A01", "ADT_A08"))
        self.assertTrue(library.has_map("ADT_A08"))
        self.assertFalse(library.has_map("ADT_A04"))
        self.assertEqual(library.map_url("ADT_A08"), "urn:ipf:map:ADT_A01")
        problem = self.assertRaises(Problem, library.transform, claimed(b"", "ADT_A04"))
        self.assertIs(problem.category, Category.UNMAPPED)

    def test_maps_that_wait_for_their_first_message(self) -> None:
        """What another process has compiled is known at once, and compiled when needed: once for all its types."""
        library = Library.load(self.folder, compiled=False)
        self.assertEqual(library.message_types, ("ADT_A01", "ADT_A08"))
        self.assertEqual(library.map_url("ADT_A08"), "urn:ipf:map:ADT_A01")
        self.assertFalse(library.is_compiled("urn:ipf:map:ADT_A01") or library.is_ready("ADT_A01"))
        self.assertTrue(library.is_ready("ADT_A04"))
        one = message("PID|1||A^^^X|||||M", "PV1|1|I|W^1^2^HOSP")
        self.assertEqual(library.run(one).bundle, Library.load(self.folder).run(one).bundle)
        self.assertTrue(library.is_ready("ADT_A01"))
        self.assertIs(library.program_for("ADT_A08"), library.program_for("ADT_A01"))
        problem = self.assertRaises(Problem, library.program_for, "ADT_A04")
        self.assertIs(problem.category, Category.UNMAPPED)

    def test_what_is_known_to_be_right_is_parsed_when_it_is_looked_at(self) -> None:
        """Canonicals and types are known from the headers; nothing else of a file has been read."""
        self.write("segments/PV1.fml", '/// url = "urn:ipf:map:PV1"\ngroup PV1(source')
        library = Library.load(self.folder, compiled=False)
        self.assertEqual((len(library.maps), "urn:ipf:map:PV1" in library.maps), (3, True))
        self.assertEqual(library.maps["urn:ipf:map:ADT_A01"], parse(MESSAGE))
        self.assertIs(library.maps["urn:ipf:map:ADT_A01"], library.maps["urn:ipf:map:ADT_A01"])
        problem = self.assertRaises(Problem, library.maps.get, "urn:ipf:map:PV1")
        self.assertIn("segments/PV1.fml:2:", str(problem))
        self.write("segments/PV2.fml", '/// url = "urn:ipf:map:PV1"\ngroup PV1(source')
        problem = self.assertRaises(Problem, Library.load, self.folder, compiled=False)
        self.assertIn("has the url of segments/PV1.fml", str(problem))

    def test_the_header_says_what_the_whole_map_says(self) -> None:
        """Of every map that comes with ipf, and where the first declaration is not at the beginning of a line."""
        paths = list(folder("maps").rglob("*.fml"))
        self.assertGreater(len(paths), 50)
        for text in (*(path.read_text() for path in paths), 'map "urn:m" = "m"\n  group g(source s, target t) {}\n'):
            found, whole = parse_header(text), parse(text)
            self.assertEqual((found.url, found.name, found.metadata), (whole.url, whole.name, whole.metadata))

    def test_bundle(self) -> None:
        library = Library.load(self.folder)
        result = library.run(message("PID|1||A^^^X|||||M", "PV1|1|I|W^1^2^HOSP"))
        bundle = result.bundle
        self.assertEqual((bundle["resourceType"], bundle["type"]), ("Bundle", "transaction"))
        patient, visit, organization = bundle["entry"]
        self.assertEqual(patient["resource"]["gender"], "male")
        self.assertEqual(patient["request"], {"method": "PUT", "url": "Patient?identifier=urn:x|A"})
        self.assertEqual(visit["resource"]["subject"], {"reference": patient["fullUrl"]})
        self.assertEqual(visit["resource"]["serviceProvider"], {"reference": organization["fullUrl"]})
        self.assertEqual(organization["request"]["method"], "POST")
        self.assertEqual((result.map_url, result.unmapped, result.steps), ("urn:ipf:map:ADT_A01", (), None))

    def test_the_version_of_a_map(self) -> None:
        """What the map states, else the start of its digest; both are settled with the message."""
        library = Library.load(self.folder)
        stated = library.maps["urn:ipf:map:ADT_A01"]
        digests = library.run(message("PID|1||A")).map_version, digest(stated)[:12]
        self.assertEqual(*digests)
        versioned = replace(stated, metadata=(*stated.metadata, ("version", "7.1")))
        self.assertNotEqual(digest(versioned), digest(stated))
        candidate = library.with_candidate(versioned)
        self.assertEqual(candidate.run(message("PID|1||A")).map_version, "7.1")
        mapped = Mapped({}, "urn:m", map_version="7.1")
        self.assertEqual((mapped.canonical, map_and_version(mapped.canonical)), ("urn:m|7.1", ("urn:m", "7.1")))
        self.assertEqual(map_and_version("urn:m"), ("urn:m", None))

    def test_an_empty_resource_goes_with_its_references(self) -> None:
        bundle = Library.load(self.folder).transform_message(message("PID|1||A", "PV1|1|I|W^1"))
        self.assertEqual([one["resource"]["resourceType"] for one in bundle["entry"]], ["Patient", "Encounter"])
        self.assertNotIn("serviceProvider", bundle["entry"][1]["resource"])

    def test_unmapped_codes_are_noted(self) -> None:
        result = Library.load(self.folder).run(message("PID|1||A|||||Z"))
        self.assertEqual([(one.table, one.code) for one in result.unmapped], [("urn:c", "Z")])
        self.assertNotIn("gender", result.bundle["entry"][0]["resource"])

    def test_codes_that_a_partial_table_lacks_are_no_gap(self) -> None:
        path = self.folder / "codesystems" / "c.json"
        table = json.loads(path.read_text())
        table["extension"] = [{"url": "urn:ipf:extension:partial", "valueBoolean": True}]
        path.write_text(json.dumps(table))
        self.assertEqual(Library.load(self.folder).run(message("PID|1||A|||||Z")).unmapped, ())

    def test_codes_that_a_table_says_match_nothing_are_no_gap(self) -> None:
        path = self.folder / "codesystems" / "c.json"
        table = json.loads(path.read_text())
        elements = table["group"][0]["element"]
        elements.append({"code": "Z", "target": [{"equivalence": "unmatched"}]})
        elements.append({"code": "Y", "noMap": True})
        elements.append({"code": "V", "target": [{"code": "male", "equivalence": "disjoint"}]})
        elements.append({"code": "W"})
        path.write_text(json.dumps(table))
        library = Library.load(self.folder)
        for code, gaps in (("Z", 0), ("Y", 0), ("V", 0), ("W", 1), ("M", 0)):
            self.assertEqual(len(library.run(message(f"PID|1||A|||||{code}")).unmapped), gaps, code)

    def test_the_same_message_gives_the_same_bundle(self) -> None:
        library = Library.load(self.folder)
        stored = claimed(message("PID|1||A", "PV1|1|I|W^1^2^HOSP").raw)
        first, again = library.transform(stored), library.transform(stored)
        self.assertEqual(dumps(first.bundle), dumps(again.bundle))
        self.assertTrue(library.has_map("ADT_A01"))

    def test_trace(self) -> None:
        result = Library.load(self.folder).run(message("PID|1||A"), trace=True)
        self.assertEqual([one.rule for one in result.steps or ()][:2], ["PID", "PID_3"])
        self.assertEqual((result.steps or ())[1].map_url, "urn:ipf:map:PID_Patient")

    def test_a_bad_map_stops_the_load(self) -> None:
        for name, text, place, wanted in (
            (
                "segments/bad.fml",
                "/// url = 'u'\ngroup g(source a, target b) { a -> }",
                "segments/bad.fml:2:36",
                "expected",
            ),
            (
                "messages/bad.fml",
                "/// url = 'u'\ngroup g(source a : X, target b : Patient) {\n a -> b.nme = 'x'; }",
                "messages/bad.fml:3:7",
                "Patient has no element 'nme'",
            ),
            ("datatypes/twin.fml", SEGMENT, "segments/PID_Patient.fml", "has the url of datatypes/twin.fml"),
            (
                "messages/bad.fml",
                "/// url = 'u'\ngroup g(source a, source b, target c) {}",
                "messages/bad.fml:2:1",
                "first group",
            ),
        ):
            self.write(name, text)
            problem = self.assertRaises(Problem, Library.load, self.folder)
            self.assertIs(problem.category, Category.MAPPING)
            self.assertEqual(problem.place, place)
            self.assertIn(wanted, problem.text)
            (self.folder / name).unlink()
        self.assertTrue(Library.load(self.folder).has_map("ADT_A01"))

    def test_a_file_that_goes_away_while_it_is_read(self) -> None:
        """As when files are replaced while the service looks: said, with the file, like any other broken map."""
        (self.folder / "segments" / "gone.fml").symlink_to("nowhere.fml")
        problem = self.assertRaises(Problem, Library.load, self.folder)
        self.assertEqual((problem.category, problem.place), (Category.MAPPING, "segments/gone.fml"))
        self.assertIn("cannot be read: No such file", problem.text)

    def test_the_maps_of_the_project_load(self) -> None:
        maps = folder("maps")
        library = Library.load(maps)
        self.assertTrue(library.has_map("ADT_A01"))
        bundle = library.transform_message(Message.parse(message("PID|1||A1^^^AUTH^MR||DOE^J", "PV1|1|I").raw))
        self.assertIn("Patient", [entry["resource"]["resourceType"] for entry in bundle["entry"]])
