"""The maps of data types, as tables of what is sent and what comes of it; seen through the fields that use them."""

from __future__ import annotations

from itertools import product
from typing import Any

from twisted.trial.unittest import TestCase

from tests.corpus import samples

MESSAGE = "MSH|^~\\&|APP|{facility}|||2026||ADT^A01^ADT_A01|1|P|2.5.1\nPID|{pid}\nPV1||I|{location}"
PATIENT, ENCOUNTER = "Patient", "Encounter"


def mapped(*, facility: str = "HOSP", location: str = "", **fields: str) -> dict[str, list[dict[str, Any]]]:
    """Resources by type, of a message whose PID has the given fields (`f5="Doe^Jane"`)."""
    numbers = {int(name[1:]): text for name, text in fields.items()}
    pid = "|".join(numbers.get(number, "") for number in range(1, max(numbers, default=1) + 1))
    bundle = samples.library().transform_message(
        samples.parse(MESSAGE.format(facility=facility, pid=pid, location=location))
    )
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in samples.readable(bundle)["entry"]:
        found.setdefault(entry["resource"]["resourceType"], []).append(entry["resource"])
    return found


def patient(**fields: str) -> dict[str, Any]:
    """The Patient of such a message."""
    return mapped(**fields)[PATIENT][0]


class IdentifierTests(TestCase):
    """CX and HD."""

    def test_systems(self) -> None:
        """Universal ID before namespace, namespace before the sender; registered authorities by their own system."""
        table = [
            ("1^^^A&1.2.840.99&ISO", "urn:oid:1.2.840.99"),
            ("1^^^A&1.2.840.99", "urn:oid:1.2.840.99"),
            ("1^^^&0b1d7e7e-0000-4000-8000-000000000001&UUID", "urn:uuid:0b1d7e7e-0000-4000-8000-000000000001"),
            ("1^^^&https://ids.example.org&URI", "https://ids.example.org"),
            ("1^^^&id.example.org&DNS", "urn:ipf:authority:id.example.org"),
            ("1^^^A", "urn:ipf:authority:A"),
            ("1^^^GOOD HEALTH", "urn:ipf:authority:GOOD%20HEALTH"),
            ("1", "urn:ipf:authority:HOSP"),
            ("1^^^USSSA", "http://hl7.org/fhir/sid/us-ssn"),
            ("1^^^&2.16.840.1.113883.4.6&ISO", "http://hl7.org/fhir/sid/us-npi"),
        ]
        for sent, system in table:
            with self.subTest(sent=sent):
                self.assertEqual(patient(f3=sent)["identifier"][0]["system"], system)

    def test_without_facility(self) -> None:
        """A sender that names no facility is named by its application."""
        self.assertEqual(patient(facility="", f3="1")["identifier"][0]["system"], "urn:ipf:authority:APP")

    def test_without_value(self) -> None:
        """An authority and a type alone are no identifier."""
        self.assertEqual([one["value"] for one in patient(f3="^^^A^MR~7^^^A^PI", f5="X")["identifier"]], ["7"])

    def test_order(self) -> None:
        """The medical record number goes first."""
        held = patient(f2="5", f3="1^^^A^PI~2^^^A^MR~3^^^A", f4="6")["identifier"]
        self.assertEqual([one["value"] for one in held], ["2", "1", "3", "5", "6"])

    def test_local_type(self) -> None:
        """A type that the table does not have keeps its code, without the URL of the table, which does not know it."""
        self.assertEqual(patient(f3="1^^^A^QQ")["identifier"][0]["type"], {"coding": [{"code": "QQ"}], "text": "QQ"})


class NameTests(TestCase):
    """XPN, FN, DR."""

    def test_names(self) -> None:
        """Parts in their places; nothing for what was not sent."""
        table: list[tuple[str, dict[str, Any]]] = [
            ("Doe", {"family": "Doe"}),
            ("^Jane", {"given": ["Jane"]}),
            (
                "Doe^Jane^Mary Ann^Jr^Dr^MD^D",
                {
                    "use": "usual",
                    "family": "Doe",
                    "given": ["Jane", "Mary Ann"],
                    "prefix": ["Dr"],
                    "suffix": ["Jr", "MD"],
                },
            ),
            ("Doe^^^^^^^^^2020&2021", {"family": "Doe", "period": {"start": "2020", "end": "2021"}}),
            ("Doe^^^^^^^^^2020&2021^^2022", {"family": "Doe", "period": {"start": "2022"}}),
            ("Doe^^^^^^ZZ", {"family": "Doe"}),
        ]
        for sent, name in table:
            with self.subTest(sent=sent):
                self.assertEqual(patient(f5=sent)["name"], [name])

    def test_called_by(self) -> None:
        """What a person is called is a name of its own."""
        held = patient(f5="Doe^Jane" + "^" * 13 + "Janie")["name"]
        self.assertEqual(held[1], {"use": "nickname", "given": ["Janie"]})

    def test_mothers_maiden_name(self) -> None:
        """Family name, with the given name before it."""
        for sent, text in (("Ruiz", "Ruiz"), ("Ruiz^Eva", "Eva Ruiz")):
            self.assertEqual(patient(f5="X", f6=sent)["extension"][0]["valueString"], text)


class TelecomTests(TestCase):
    """XTN."""

    def test_contact_points(self) -> None:
        """Formatted, in parts, unformatted, electronic."""
        table = [
            ("555-1234", "phone", "home", "555-1234"),
            ("555-1234^WPN^PH", "phone", "work", "555-1234"),
            ("^PRN^CP^^^212^5551234", "phone", "mobile", "212 5551234"),
            ("^PRN^PH^^1^212^5551234^99", "phone", "home", "+1 212 5551234 X99"),
            ("^PRN^FX^^^^5551234", "fax", "home", "5551234"),
            ("old^PRN^PH^^^212^5551234^^^^^+12125551234", "phone", "home", "+12125551234"),
            ("^NET^Internet^a@b.example", "email", None, "a@b.example"),
            ("a@b.example^NET^X.400", "email", None, "a@b.example"),
            ("^^^a@b.example", "email", "home", "a@b.example"),
        ]
        for sent, system, use, value in table:
            with self.subTest(sent=sent):
                held = patient(f5="X", f13=sent)["telecom"][0]
                self.assertEqual((held["system"], held.get("use"), held["value"]), (system, use, value))

    def test_spellings(self) -> None:
        """XTN.2 and XTN.3 in any case, with blanks around, and as words."""
        kinds = {
            "email": ("Internet", "X.400", "X400", "email", "e-mail"),
            "phone": ("PH", "phone", "telephone", "tel"),
            "fax": ("FX", "fax"),
            "pager": ("BP", "pager"),
        }
        uses = {"home": ("PRN", "home"), "work": ("WPN", "work"), "mobile": ("PRS", "mobile")}
        for system, names in kinds.items():
            for use, codes in uses.items():
                for name, code in product(names, codes):
                    for spell in (str.upper, str.lower, str.title, " {} ".format):
                        value = "a@b.example" if system == "email" else "555-1234"
                        number, address = ("", value) if system == "email" else (value, "")
                        with self.subTest(name=spell(name), code=spell(code)):
                            sent = f"{number}^{spell(code)}^{spell(name)}^{address}"
                            held = patient(f5="X", f13=sent)["telecom"]
                            self.assertEqual(held, [{"use": use, "system": system, "value": value}])

    def test_address_of_unknown_equipment(self) -> None:
        """It is kept: an e-mail address as such."""
        for sent, system, value in (
            ("^NET^INET^a@b.example", "email", "a@b.example"),
            ("^NET^PH^a@b.example", "email", "a@b.example"),
            ("^NET^INET^x", "other", "x"),
            ("555^NET^INET", "other", "555"),
        ):
            with self.subTest(sent=sent):
                [held] = patient(f5="X", f13=sent)["telecom"]
                self.assertEqual((held["system"], held["value"]), (system, value))

    def test_no_number(self) -> None:
        """A use and an equipment alone are no contact point."""
        self.assertNotIn("telecom", patient(f5="X", f13="^PRN^PH"))


class AddressTests(TestCase):
    """XAD, and PID-12."""

    def test_use_and_type(self) -> None:
        """One code says use, type or neither."""
        table = [
            ("H", "home", None),
            ("B", "work", None),
            ("BA", "old", None),
            ("M", None, "postal"),
            ("L", None, None),
        ]
        for sent, use, kind in table:
            with self.subTest(sent=sent):
                held = patient(f5="X", f11=f"1 Road^^Town^^^^{sent}")["address"][0]
                self.assertEqual((held.get("use"), held.get("type")), (use, kind))

    def test_county(self) -> None:
        """PID-12 joins the only address that has no county; otherwise it stands alone."""
        table = [
            ("1 Road", "KENT", ["KENT"]),
            ("1 Road^^^^^^^^KENT", "KENT", ["KENT"]),
            ("1 Road^^^^^^^^KENT", "SUSSEX", ["KENT", "SUSSEX"]),
            ("1 Road~2 Road", "KENT", [None, None, "KENT"]),
            ("", "KENT", ["KENT"]),
        ]
        for addresses, county, districts in table:
            with self.subTest(addresses=addresses, county=county):
                held = patient(f5="X", f11=addresses, f12=county)["address"]
                self.assertEqual([one.get("district") for one in held], districts)


class CodedTests(TestCase):
    """CWE."""

    def test_systems(self) -> None:
        """Names of table 0396, v2 tables, OIDs, URIs, local names."""
        table = [
            ("x^y^LN", "http://loinc.org"),
            ("x^y^I10C", "http://hl7.org/fhir/sid/icd-10-cm"),
            ("M^y^HL70001", "http://terminology.hl7.org/CodeSystem/v2-0001"),
            ("x^y^HL70001", None),
            ("x^y^HL70099", "http://terminology.hl7.org/CodeSystem/v2-0099"),
            ("x^y^2.16.1.5", "urn:oid:2.16.1.5"),
            ("x^y^http://c.example/s", "http://c.example/s"),
            ("x^y^99MINE", "urn:ipf:coding-system:99MINE"),
            ("x^y^MY CODES", "urn:ipf:coding-system:MY%20CODES"),
            ("x^y^L", None),
            ("x^y", None),
        ]
        for sent, system in table:
            with self.subTest(sent=sent):
                coding = patient(f5="X", f15=sent)["communication"][0]["language"]["coding"][0]
                self.assertEqual(coding.get("system"), system)

    def test_triplets(self) -> None:
        """Three codings and the original text, with versions."""
        concept = patient(f5="X", f15="a^A^LN^b^B^SCT^1^2^said^c^C^99Z^3")["communication"][0]["language"]
        self.assertEqual(concept["text"], "said")
        held = [(one["code"], one["display"], one["version"]) for one in concept["coding"][:-1]]
        self.assertEqual(held, [("a", "A", "1"), ("b", "B", "2"), ("c", "C", "3")])

    def test_text_only(self) -> None:
        """Without a code the text is also the text of the concept; a language needs a tag."""
        concept = patient(f5="X", f15="^Klingon")["communication"][0]["language"]
        undetermined = {"code": "und", "system": "urn:ietf:bcp:47"}
        self.assertEqual(concept, {"coding": [{"display": "Klingon"}, undetermined], "text": "Klingon"})

    def test_local_code_in_a_translated_field(self) -> None:
        """A code that the table does not have stays as it was sent, as text and as a coding without a system."""
        coding = {"code": "Q", "display": "Quiet"}
        self.assertEqual(patient(f5="X", f16="Q^Quiet")["maritalStatus"], {"coding": [coding], "text": "Quiet"})

    def test_races(self) -> None:
        """Categories and details of CDC; letters of old senders only as text; other systems not at all."""
        table: list[tuple[str, list[tuple[str, str]]]] = [
            ("2106-3^White^CDCREC", [("ombCategory", "2106-3"), ("text", "White")]),
            ("2036-2^Filipino^HL70005", [("detailed", "2036-2"), ("text", "Filipino")]),
            ("W", [("text", "W")]),
            ("1^A^99X", []),
        ]
        for sent, parts in table:
            with self.subTest(sent=sent):
                held = patient(f5="X", f10=sent).get("extension", [{"extension": []}])[0]["extension"]
                told = [(one["url"], one.get("valueString") or one["valueCoding"]["code"]) for one in held]
                self.assertEqual(told, parts)


class LocationTests(TestCase):
    """PL."""

    def test_chains(self) -> None:
        """Most granular first, each part of the next; what was not sent is passed over."""
        table = [
            ("4E^12^A^HOSP^^N^MAIN^2", ["bd", "ro", "lvl", "wa", "bu", "si"]),
            ("4E^12^A^HOSP", ["bd", "ro", None, "si"]),
            ("^^^HOSP", ["si"]),
            ("^^A", ["bd"]),
        ]
        for sent, kinds in table:
            with self.subTest(sent=sent):
                found = mapped(f5="X", location=sent)
                held = {f"Location-{number}": one for number, one in enumerate(found["Location"], start=1)}
                place = found[ENCOUNTER][0]["location"][0]["location"]["reference"]
                chain = []
                while place is not None:
                    chain.append(held[place])
                    place = held[place].get("partOf", {}).get("reference")
                told = [one["physicalType"].get("coding", [{}])[0].get("code") for one in chain]
                self.assertEqual(told, kinds)

    def test_same_bed_number_in_two_rooms(self) -> None:
        """They are two beds; and a room of one sender is not that of another."""
        values = {
            mapped(f5="X", location=sent, facility=facility)["Location"][0]["identifier"][0]["value"]
            for sent, facility in (("4E^12^1", "A"), ("4E^13^1", "A"), ("4E^12^1", "B"))
        }
        self.assertEqual(len(values), 3)
