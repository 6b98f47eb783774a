"""Codes of HL7's tables: only a code that the table has gets the URL of the table; every other one is kept, and asked.

The oracle of membership is the validator's own table of R4, read here without the code under test.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.config.paths import folder
from ipf.errors import Problem
from ipf.mapping.bundle.merging import TWO_OWNERS
from ipf.mapping.language.concepts import Overrides
from ipf.mapping.language.hl7_tables import codes_of, hl7_table
from tests.corpus import samples
from tests.mapping_maps import generator
from tests.reference import REFERENCE, needs_reference

FAMILY = "maps"

HL7 = "http://terminology.hl7.org/CodeSystem/v2-"
HEAD = "MSH|^~\\&|LAB|GEN|||20260310120000||ADT^A01^ADT_A01|1|P|2.5.1\nEVN|A01|20260310\n"
PID = "PID|1||1^^^GEN^MR||X\n"


def published() -> dict[str, set[str]]:
    """The codes of each table that R4 publishes, by URL."""
    found: dict[str, set[str]] = {}
    for line in (folder("fhir") / "r4" / "codesystems.jsonl").read_text(encoding="utf-8").splitlines()[1:]:
        url, facts = json.loads(line)
        if url.startswith(HL7):
            found.setdefault(url.partition("|")[0], set()).update(row[0] for row in facts.get("concepts", ()))
    found[f"{HL7}0203"] |= {"PGN", "FGN", "SHIP"}  # of the guide
    return found


def codings(value: Any) -> Iterator[tuple[str, str]]:
    """System and code of everything in a resource that has both."""
    if isinstance(value, dict):
        if isinstance(value.get("system"), str) and isinstance(value.get("code"), str):
            yield value["system"], value["code"]
        for one in value.values():
            yield from codings(one)
    elif isinstance(value, list):
        for one in value:
            yield from codings(one)


def unknown(bundle: Any, known: dict[str, set[str]]) -> list[tuple[str, str]]:
    """The codings that name a table without the code."""
    return [(system, code) for system, code in codings(bundle) if code not in known.get(system, {code})]


def made(text: str, overrides: Overrides | None = None) -> tuple[dict[str, Any], set[tuple[str, str]]]:
    """The resources of a message by type (the last of each), and its unmapped codes."""
    library = samples.library()
    result = library.run(samples.parse(text), overrides=overrides)
    found = {entry["resource"]["resourceType"]: entry["resource"] for entry in result.made.bundle()["entry"]}
    asked = library.unmapped_codes(result.unmapped)
    return found, {(one.concept_map, one.code) for one in asked if one.concept_map != "urn:ipf:concepts:HL70396"}


def admitted(pv1_4: str, overrides: Overrides | None = None) -> tuple[Any, set[tuple[str, str]]]:
    """The type of the Encounter (PV1-4, table 0007), and the unmapped codes."""
    found, asked = made(f"{HEAD}{PID}PV1|1|I||{pv1_4}\n", overrides)
    return found["Encounter"]["type"][0], asked


class MembershipTests(TestCase):
    def test_every_message(self) -> None:
        """Of the corpus, and generated ones of every mapped type."""
        known = published()
        texts = {name: (samples.HERE / f"{name}.hl7").read_text(encoding="utf-8") for name in samples.names()}
        texts |= generator.messages(samples.library().message_types, range(1, 3))
        for name, text in texts.items():
            try:
                bundle = samples.library().transform_message(samples.parse(text), checked=False)
            except Problem as problem:  # one number for things of two patients
                self.assertEqual(problem.text, TWO_OWNERS)
            else:
                self.assertEqual(unknown(bundle, known), [], name)

    @needs_reference
    def test_messages_of_others(self) -> None:
        """The published test messages."""
        known = published()
        files = sorted((REFERENCE / "v2-pairs" / "messages").glob("*.hl7"))
        self.assertGreater(len(files), 60)
        for path in files:
            text = path.read_text(encoding="utf-8").replace("\r\n", "\n").replace("\r", "\n")
            bundle = samples.library().transform_message(samples.parse(text), checked=False)
            self.assertEqual(unknown(bundle, known), [], path.name)

    def test_every_code_of_every_table(self) -> None:
        """The tables know what R4 publishes, of both versions of table 0006."""
        for url, codes in published().items():
            self.assertEqual(set(codes_of(url)), codes, url)
        self.assertIsNone(hl7_table("http://loinc.org"))
        self.assertIsNone(hl7_table(f"{HL7}00631"))

    def test_every_table_of_a_map(self) -> None:
        """No rule writes the URL of a table beside a code of the message without asking the table."""
        literal = re.compile(
            r"(?:cc?\(|\.system = )'http://terminology\.hl7\.org/CodeSystem/v2-\d{4}'(?:, (?:\w+\.code = )?)(?!')\w+"
        )
        for path in sorted(folder("maps").glob("*/*.fml")):
            self.assertEqual(literal.findall(path.read_text(encoding="utf-8")), [], path.name)


class CodeTests(TestCase):
    def test_table(self) -> None:
        """What the sender names counts first; what no table has is a coding without a system, and text."""
        url = f"{HL7}0007"
        table: list[tuple[str, Any, Any, str | None]] = [
            ("E", url, None, None),
            (" E ", url, None, None),
            ("QQ", None, "QQ", url),
            ("QQ^Quick", None, "Quick", url),
            ("QQ^Quick^L", None, None, None),
            ("QQ^Quick^99GEN", "urn:ipf:coding-system:99GEN", None, None),
            ("QQ^Quick^HL70007", None, "Quick", url),
            ("E^Emergency^HL70007", url, None, None),
            ("I^In^HL70004", f"{HL7}0004", None, None),
            ("E^Emergency^HL70001", None, "Emergency", f"{HL7}0001"),
            ("V^Very^HL70099", f"{HL7}0099", None, None),  # HL7 defines no codes of this table
            ("QQ^Quick^^^^^^^as said", None, "as said", url),
            ("QQ^Quick^^^^^^^^^^^^1.2.3", "urn:oid:1.2.3", None, None),
        ]
        for sent, system, text, asked in table:
            with self.subTest(sent=sent):
                concept, unmapped = admitted(sent)
                coding = {"code": sent.partition("^")[0].strip()}
                found = concept["coding"][0]
                self.assertEqual((found.get("system"), found["code"]), (system, coding["code"]))
                self.assertEqual(len(concept["coding"]), 1)
                self.assertEqual(concept.get("text"), text)
                self.assertEqual(unmapped, {(asked, coding["code"])} if asked else set())

    def test_further_codings(self) -> None:
        """The alternate codings of a concept are asked as well."""
        concept, unmapped = admitted("QQ^Quick^99GEN^ZZ^Zed^HL70007^^^^E^Em^HL70007")
        self.assertEqual(
            [(one.get("system"), one["code"]) for one in concept["coding"]],
            [("urn:ipf:coding-system:99GEN", "QQ"), (None, "ZZ"), (f"{HL7}0007", "E")],
        )
        self.assertEqual(unmapped, {(f"{HL7}0007", "ZZ")})

    def test_a_translated_field_asks_once(self) -> None:
        """PV1-10: neither table 0069 nor the ConceptMap that translates it has the code."""
        found, unmapped = made(f"{HEAD}{PID}PV1|1|I||||||||CARDIO^Cardiology\n")
        concept = found["Encounter"]["serviceType"]
        self.assertEqual(concept, {"coding": [{"code": "CARDIO", "display": "Cardiology"}], "text": "Cardiology"})
        self.assertEqual(unmapped, {("urn:ipf:concepts:HL70069", "CARDIO")})

    def test_codes_alone(self) -> None:
        """ID and IS: processing, event, kind of identifier, section, confidentiality."""
        found, unmapped = made(
            "MSH|^~\\&|LAB|GEN|||20260310120000||ORU^Z99^ORU_R01|1|Q|2.5.1\n"
            "PID|1||1^^^GEN^LOC||X\nOBR|1||F1|T^Test^L||||||||||||||||||||QQ|F\n".replace("ORU^Z99", "ORU^R01")
        )
        self.assertEqual(found["Patient"]["identifier"][0]["type"], {"coding": [{"code": "LOC"}], "text": "LOC"})
        self.assertEqual(found["DiagnosticReport"]["category"], [{"coding": [{"code": "QQ"}], "text": "QQ"}])
        self.assertIn({"code": "Q"}, found["MessageHeader"]["meta"]["tag"])
        self.assertEqual(found["MessageHeader"]["eventCoding"]["system"], f"{HL7}0003")
        expected = {(f"{HL7}0203", "LOC"), (f"{HL7}0103", "Q"), (f"{HL7}0074", "QQ")}
        self.assertLessEqual(expected, unmapped)

    def test_the_answer_of_an_operator(self) -> None:
        """It replaces code, system and display; the code as sent stays beside it."""
        url = f"{HL7}0007"
        own = {"system": url, "code": "E", "display": "Emergency"}
        concept, unmapped = admitted("QQ^Quick", Overrides([(url, "QQ", own)]))
        self.assertEqual(concept, {"coding": [own, {"code": "QQ", "display": "Quick"}]})
        self.assertEqual(unmapped, set())
        concept, unmapped = admitted("QQ^Quick", Overrides([(url, "QQ", None)]))
        self.assertEqual((concept["text"], unmapped), ("Quick", set()))
        answered = Overrides([("urn:ipf:concepts:HL70069", "CARDIO", {"system": "urn:s", "code": "394"})])
        found, unmapped = made(f"{HEAD}{PID}PV1|1|I||||||||CARDIO^Cardiology\n", answered)
        self.assertEqual([one["code"] for one in found["Encounter"]["serviceType"]["coding"]], ["394", "CARDIO"])
        self.assertEqual(unmapped, set())
        typed = Overrides([(f"{HL7}0203", "LOC", {"system": f"{HL7}0203", "code": "PI"})])
        found, _ = made(f"{HEAD}PID|1||1^^^GEN^LOC||X\n", typed)
        kinds = [one["code"] for one in found["Patient"]["identifier"][0]["type"]["coding"]]
        self.assertEqual(kinds, ["PI", "LOC"])
