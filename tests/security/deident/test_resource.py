"""What becomes of resources in a de-identified export: tables by data type, and a proof that no text gets through."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.index.extract import extract
from ipf.fhir.model.definitions import Element, definitions
from ipf.fhir.model.json import dumps
from ipf.ports import Json
from ipf.security.deident.profile import built_in
from ipf.security.deident.pseudonyms import Pseudonyms, earlier, not_older
from ipf.security.deident.resource import Deidentification, Deidentifier

NOW = datetime(2026, 3, 1, tzinfo=UTC)
MARK = "Zyxomark"
NINE_DIGITS = 867530912
LOINC, OWN = "http://loinc.org", "urn:oid:1.2.3.4"
SYSTEMS = tuple(one + "v2-0004" if one.endswith("CodeSystem/") else one for one in built_in().code_systems)
DATES = {"date": "2019-03-04", "dateTime": "2019-03-04T10:00:00+01:00", "instant": "2019-03-04T10:00:00Z"}
NUMBERS: dict[str, Any] = {"boolean": True, "integer": 7, "positiveInt": 7, "unsignedInt": 7, "decimal": 7.5}


def deidentifier(secret: str = "secret", tenant: str = "default") -> Deidentifier:
    """With the built-in profile."""
    return Deidentification(built_in(), Pseudonyms(secret)).of(tenant, NOW)


def copy(resource: Json) -> Json:
    """The copy of a resource that is exported."""
    found = deidentifier().copy(resource)
    assert found is not None
    return found


def observation(**elements: Any) -> Json:
    """An Observation of one patient."""
    return {"resourceType": "Observation", "id": "o1", "subject": {"reference": "Patient/p1"}, **elements}


def filled(type_path: str, depth: int) -> Json:
    """An object with a value in every element; every text is a mark."""
    found: Json = {}
    for name, element in definitions().members(type_path).items():
        if name in ("modifierExtension", "contained"):
            continue
        value = value_of(element, element.types[0], depth)
        if value is not None:
            found[element.json_name(element.types[0])] = [value] if element.many else value
    return found


def value_of(element: Element, type_name: str, depth: int) -> Any:
    """A value of one type."""
    if type_name in DATES or type_name in NUMBERS:
        return DATES.get(type_name, NUMBERS.get(type_name))
    if type_name == "time":
        return "10:00:00"
    if type_name in definitions().primitive_types:
        return MARK
    if type_name == "Coding":
        return {"system": LOINC, "code": MARK, "display": MARK, "version": MARK}
    if type_name == "CodeableConcept":
        marked = [
            {"system": system, "code": MARK} for system in (f"urn:{MARK}", f"http://hl7.org/fhir/{MARK}", *SYSTEMS)
        ]
        return {"coding": [{"system": LOINC, "code": "1-8", "display": MARK}, {"code": MARK}, *marked], "text": MARK}
    if type_name == "Reference":
        return {"reference": f"Patient/{MARK}", "display": MARK, "identifier": {"value": MARK}}
    if type_name == "Extension":
        return {"url": f"http://{MARK}", "valueString": MARK}
    return filled(type_name, depth - 1) if depth else None


class ProofTests(TestCase):
    def test_no_text_gets_through(self) -> None:
        """A mark in every text, code, id, reference, extension and contained resource of every exported type."""
        for kind in sorted(built_in().resources):
            resource = {**filled(kind, 5), "resourceType": kind, "id": MARK, "contained": [{"id": MARK}]}
            resource["_status"] = {"extension": [{"url": f"http://{MARK}", "valueString": MARK}]}
            resource["unheardOf"] = {"text": MARK}
            text = dumps(resource).decode()
            self.assertGreater(text.count(MARK), 10, kind)
            found = dumps(copy(resource)).decode()
            self.assertNotIn(MARK.lower(), found.lower(), kind)
            self.assertNotIn("2019-03-04", found, kind)

    def test_the_proof_can_fail(self) -> None:
        """The walk over the definitions reaches names, identifiers, notes and inner structures."""
        patient, request = filled("Patient", 5), filled("ServiceRequest", 5)
        self.assertEqual(patient["name"][0]["family"], MARK)
        self.assertEqual(patient["contact"][0]["name"]["family"], MARK)
        self.assertEqual(patient["photo"][0]["data"], MARK)
        self.assertEqual((request["note"][0]["text"], request["identifier"][0]["value"]), (MARK, MARK))

    def test_what_research_needs_stays(self) -> None:
        found = copy(observation(**{**filled("Observation", 5), **observation(), "status": "final"}))
        self.assertEqual(found["code"], {"coding": [{"system": LOINC, "code": "1-8"}]})
        self.assertEqual(found["status"], "final")
        self.assertEqual(found["valueQuantity"]["value"], 7.5)
        self.assertEqual(found["component"][0]["valueQuantity"]["value"], 7.5)
        self.assertIn("effectiveDateTime", found)

    def test_other_resources_are_left_out(self) -> None:
        for kind in (
            "Binary",
            "DocumentReference",
            "AuditEvent",
            "Provenance",
            "RelatedPerson",
            "Subscription",
            "Group",
        ):
            self.assertIsNone(deidentifier().copy({"resourceType": kind, "id": "x"}), kind)
        for modified in ({"modifierExtension": []}, {"component": [{"modifierExtension": [{"url": "http://x"}]}]}):
            self.assertIsNone(deidentifier().copy(observation(**modified)))


def long_integers(value: Any) -> Any:
    """A copy with a number of nine digits instead of every integer."""
    if isinstance(value, dict):
        return {name: long_integers(one) for name, one in value.items()}
    if isinstance(value, list):
        return [long_integers(one) for one in value]
    return NINE_DIGITS if type(value) is int else value


class IntegerTests(TestCase):
    def test_no_long_integer_gets_through(self) -> None:
        """Every type with a number of nine digits in every element; choices by each of their types."""
        kept = 0
        for kind in sorted(built_in().resources):
            given = {**filled(kind, 5), "resourceType": kind, "id": "r1"}
            found = deidentifier().copy(long_integers(given))
            self.assertNotIn(str(NINE_DIGITS), dumps(found).decode(), kind)
            kept += dumps(copy(given)).decode().replace("}", ",").replace("]", ",").count(":7,")
        self.assertGreater(kept, 20, "the resources have integers, and short ones are kept")

    def test_choices(self) -> None:
        """An answer, an extension, a dose: elements whose first type is no integer."""
        race = "http://hl7.org/fhir/us/core/StructureDefinition/us-core-race"
        answer = {"linkId": "1", "answer": [{"valueInteger": NINE_DIGITS}]}
        for resource in (
            {"resourceType": "QuestionnaireResponse", "item": [answer]},
            {
                "resourceType": "Patient",
                "multipleBirthInteger": 1234,
                "extension": [
                    {
                        "url": race,
                        "extension": [
                            {"url": "ombCategory", "valueInteger": NINE_DIGITS},
                            {"url": "detailed", "valuePositiveInt": NINE_DIGITS},
                        ],
                    }
                ],
            },
            {"resourceType": "Immunization", "protocolApplied": [{"doseNumberPositiveInt": NINE_DIGITS}]},
            {"resourceType": "Goal", "target": [{"detailInteger": NINE_DIGITS}]},
        ):
            found = dumps(copy({"id": "r1", **resource})).decode()
            self.assertFalse(str(NINE_DIGITS) in found or "1234" in found.replace(deidentifier_id(found), ""), found)


def deidentifier_id(dumped: str) -> str:
    """The hashed id of a copy, which may have any digits."""
    return dumped.partition('"id":"')[2].partition('"')[0]


class TypeTests(TestCase):
    def test_by_data_type(self) -> None:
        ucum = {"system": "http://unitsofmeasure.org", "code": "mg"}
        for given, expected in (
            ({"valueString": "Smith"}, None),
            ({"valueInteger": [4]}, None),
            ({"valueInteger": True}, None),
            ({"valueBoolean": 5551234567}, None),
            ({"valueQuantity": {"value": ["Smith"], **ucum}}, None),
            ({"valueDateTime": "2020-01-01T10:00:00.5551234567Z"}, {"valueDateTime": "2020"}),
            ({"valueQuantity": {"value": 2, "unit": "mg"}}, {"valueQuantity": {"value": 2, "unit": "mg"}}),
            ({"valueQuantity": {"value": 2, "unit": "{Smith}"}}, {"valueQuantity": {"value": 2}}),
            ({"valueInteger": 4}, {"valueInteger": 4}),
            ({"valueInteger": "Smith"}, None),
            ({"valueInteger": 9999}, {"valueInteger": 9999}),
            ({"valueInteger": 10000}, None),
            ({"valueInteger": -5551234567}, None),
            ({"component": [{"code": {"coding": [{"system": LOINC, "code": "718-7"}]}, "valueInteger": 5551234567}]},
             {"component": [{"code": {"coding": [{"system": LOINC, "code": "718-7"}]}}]}),
            ({"valueBoolean": False}, {"valueBoolean": False}),
            ({"valueTime": "10:00:00"}, {"valueTime": "10:00:00"}),
            ({"valueTime": "Smith"}, None),
            ({"valueQuantity": {"value": 2, "unit": "Smith", **ucum}}, {"valueQuantity": {"value": 2, **ucum}}),
            ({"valueQuantity": {"value": 2, "comparator": "<"}}, {"valueQuantity": {"value": 2, "comparator": "<"}}),
            ({"valueQuantity": {"value": 2, "comparator": "x"}}, {"valueQuantity": {"value": 2}}),
            ({"valueCodeableConcept": {"text": "Smith"}}, None),
            ({"valueCodeableConcept": {"coding": [{"system": OWN, "code": "1"}]}}, None),
            ({"valueCodeableConcept": {"coding": [{"system": LOINC, "code": "John Smith"}]}}, None),
            ({"valueCodeableConcept": {"coding": [{"system": f"{LOINC}/Smith", "code": "1"}]}}, None),
            ({"status": "final"}, {"status": "final"}),
            ({"status": "Smith"}, None),
            ({"note": [{"text": "Smith"}]}, None),
            ({"text": {"status": "generated", "div": "<div>Smith</div>"}}, None),
            ({"identifier": [{"system": "urn:x", "value": "1"}]}, None),
            ({"implicitRules": "urn:x", "language": "de"}, None),
            ({"performer": [{"display": "Smith"}, {"reference": "http://h/fhir/Practitioner/1"}]}, None),
            ({"valueSampledData": {"data": "1 2", "origin": {"value": 0}}}, None),
        ):  # fmt: skip
            code = {"coding": [{"system": LOINC, "code": "718-7"}]}
            found = copy(observation(code=code, **given))
            for name in ("resourceType", "id", "meta", "subject", "code"):
                del found[name]
            self.assertEqual(found, expected or {}, given)

    def test_a_patient(self) -> None:
        race = "http://hl7.org/fhir/us/core/StructureDefinition/us-core-race"
        coding = {"system": "urn:oid:2.16.840.1.113883.6.238", "code": "2106-3"}
        found = copy({
            "resourceType": "Patient", "id": "p1", "gender": "female", "birthDate": "1980-04-05",
            "meta": {"versionId": "3", "lastUpdated": "2026-01-01T00:00:00Z", "source": "urn:x", "profile": ["http://x"],
                     "security": [{"system": "http://terminology.hl7.org/CodeSystem/v3-Confidentiality", "code": "R"}]},
            "name": [{"family": "Smith"}], "address": [{"line": ["1 Elm"], "city": "York", "state": "NY",
                                                        "postalCode": "10001", "country": "US", "use": "home"}],
            "extension": [{"url": race, "extension": [{"url": "ombCategory", "valueCoding": coding},
                                                      {"url": "text", "valueString": "Smith"}]},
                          {"url": "http://x", "valueString": "Smith"}],
            "multipleBirthInteger": 2, "contact": [{"gender": "male"}],
        })  # fmt: skip
        meta = found.pop("meta")
        self.assertEqual([one["code"] for one in meta["security"]], ["R", "PSEUDED"])
        self.assertEqual([one["code"] for one in meta["tag"]], ["SUBSETTED"])
        self.assertEqual(set(meta), {"security", "tag"})
        self.assertNotEqual(found.pop("id"), "p1")
        self.assertEqual(found, {
            "resourceType": "Patient", "gender": "female", "birthDate": "1980", "multipleBirthInteger": 2,
            "extension": [{"url": race, "extension": [{"url": "ombCategory", "valueCoding": coding}]}],
        })  # fmt: skip

    def test_ages(self) -> None:
        ucum = "http://unitsofmeasure.org"
        for given, expected in (
            ({"value": 40, "system": ucum, "code": "a"}, {"value": 40, "system": ucum, "code": "a"}),
            ({"value": 97, "system": ucum, "code": "a"}, {"value": 90, "system": ucum, "code": "a"}),
            ({"value": 1100, "system": ucum, "code": "mo"}, {"value": 1080, "system": ucum, "code": "mo"}),
            ({"value": 97, "unit": "years"}, None),
        ):
            condition = {
                "resourceType": "Condition",
                "id": "c",
                "subject": {"reference": "Patient/p1"},
                "onsetAge": given,
            }
            self.assertEqual(copy(condition).get("onsetAge"), expected, given)

    def test_an_age_as_a_range_or_as_an_observation(self) -> None:
        years = {"system": "http://unitsofmeasure.org", "code": "a"}
        condition = {"resourceType": "Condition", "id": "c", "subject": {"reference": "Patient/p1"},
                     "onsetRange": {"low": {"value": 95, **years}, "high": {"value": 20, **years}}}  # fmt: skip
        ends = copy(condition)["onsetRange"]
        self.assertEqual((ends["low"]["value"], ends["high"]["value"]), (90, 20))
        age, other = ({"coding": [{"system": LOINC, "code": code}]} for code in ("30525-0", "718-7"))
        for code, given, expected in (
            (age, {"valueQuantity": {"value": 97, **years}}, {"valueQuantity": {"value": 90, **years}}),
            (age, {"valueQuantity": {"value": 97, "unit": "a"}}, {"valueQuantity": {"value": 90, "unit": "a"}}),
            (age, {"valueQuantity": {"value": 97, "unit": "years"}}, {}),
            (age, {"valueInteger": 97}, {}),
            (other, {"valueInteger": 97}, {"valueInteger": 97}),
        ):
            found = copy(observation(code=code, component=[{"code": code, **given}], **given))
            for one in (found, found["component"][0]):
                self.assertEqual({name: one[name] for name in one if name.startswith("value")}, expected, given)

    def test_a_number_without_a_meaning_is_removed(self) -> None:
        """An interface sent a telephone number under a code of its own."""
        for code in ({"text": "Phone"}, {"coding": [{"system": OWN, "code": "PHONE"}]}):
            self.assertNotIn("555", str(copy(observation(code=code, valueQuantity={"value": 5551234567}))))

    def test_a_name_of_an_inner_extension_is_removed(self) -> None:
        race = "http://hl7.org/fhir/us/core/StructureDefinition/us-core-race"
        inner = [{"url": "Smith", "valueBoolean": True}, {"url": "ombCategory", "valueBoolean": True}]
        found = copy({"resourceType": "Patient", "id": "p", "extension": [{"url": race, "extension": inner}]})
        self.assertEqual(found["extension"], [{"url": race, "extension": inner[1:]}])


class DateTests(TestCase):
    def test_days(self) -> None:
        for text, expected in (
            ("2026-01-10", "2026-01-07"),
            ("2026-01-02T23:30:00.120+01:00", "2025-12-30T23:30:00.120+01:00"),
            ("2024-03-01", "2024-02-27"),
            ("2026-01", "2026"),
            ("2026", "2026"),
            ("0001-01-02", None),
            ("2026-13-40", None),
            ("2026-01-10T25", "2026"),
            ("Smith", None),
        ):
            self.assertEqual(earlier(text, 3), expected, text)

    def test_births(self) -> None:
        for text, expected in (
            ("1980", "1980"),
            ("1936-01-02", "1936-01-02"),
            ("1921-01-01", "1936"),
            ("0001", "1936"),
        ):
            self.assertEqual(not_older(text, NOW), expected, text)
        for text, expected in (("1980-04-05", "1980"), ("1921-01-01", "1936")):
            self.assertEqual(copy({"resourceType": "Patient", "id": "p", "birthDate": text})["birthDate"], expected)

    def test_no_date_tells_an_age_over_89(self) -> None:
        """A congenital condition of a person of 101 years."""
        condition = {"resourceType": "Condition", "id": "c", "subject": {"reference": "Patient/p1"},
                     "onsetPeriod": {"start": "1925-03-04", "end": "2025-03-04"}}  # fmt: skip
        found = copy(condition)["onsetPeriod"]
        self.assertEqual((found["start"], found["end"][:3]), ("1936", "202"))

    def test_the_time_between_events_of_a_patient_stays(self) -> None:
        """Across resources; of two patients it differs with the key."""
        first = copy(observation(effectiveDateTime="2026-01-01T08:00:00Z"))["effectiveDateTime"]
        second = copy(observation(id="o2", effectiveDateTime="2026-01-31T09:30:00Z"))["effectiveDateTime"]
        between = datetime.fromisoformat(second) - datetime.fromisoformat(first)
        self.assertEqual((between.days, between.seconds), (30, 5400))
        days = [Pseudonyms("secret").days("default", f"p{number}") for number in range(200)]
        self.assertTrue(all(1 <= one <= 365 for one in days))
        self.assertGreater(len(set(days)), 100)

    def test_without_one_patient_only_years(self) -> None:
        """A resource of two patients would tell how far the dates of one are from those of the other."""
        both = [{"actor": {"reference": f"Patient/p{number}"}, "status": "accepted"} for number in (1, 2)]
        appointment = {"resourceType": "Appointment", "id": "a", "status": "booked", "participant": both,
                       "start": "2026-01-01T08:00:00Z", "created": "2026-01-01"}  # fmt: skip
        found = copy(appointment)
        self.assertEqual((found.get("start"), found["created"]), (None, "2026"))
        medication = {"resourceType": "Medication", "id": "m", "batch": {"expirationDate": "2027-05-06"}}
        self.assertEqual(copy(medication)["batch"], {"expirationDate": "2027"})


class HostileTests(TestCase):
    def test_any_shape_is_copied_or_left_out(self) -> None:
        """Values of wrong types in every place end no export, and no text of them gets through."""
        chance = random.Random(7)
        wrong = (MARK, [MARK], {"value": MARK}, 4, True, None, [], {}, [[MARK]], [{"reference": MARK}], 10**400, 1e300)

        def spoiled(value: Any) -> Any:
            if chance.random() < 0.05:
                return chance.choice(wrong)
            if isinstance(value, dict):
                named = {f"{MARK}{chance.random()}": MARK} if chance.random() < 0.2 else {}
                return {name: spoiled(one) for name, one in value.items()} | named
            return [spoiled(one) for one in value] if isinstance(value, list) else value

        tried = 0
        for kind in sorted(built_in().resources):
            filled_in = filled(kind, 5)
            for _ in range(20):
                spoilt = {name: spoiled(one) for name, one in filled_in.items()}
                resource = {**spoilt, "resourceType": kind, "id": MARK}
                try:
                    extract(resource)
                except (AttributeError, TypeError, ValueError):
                    continue  # such a resource cannot be stored
                tried += 1
                self.assertNotIn(MARK.lower(), str(deidentifier().copy(resource)).lower(), kind)
        self.assertGreater(tried, 100)


class PseudonymTests(TestCase):
    def test_references_name_the_copies(self) -> None:
        patient = copy({"resourceType": "Patient", "id": "p1"})
        for reference in ("Patient/p1", "Patient/p1/_history/3"):
            found = copy(observation(subject={"reference": reference, "display": "Smith"}))
            self.assertEqual(found["subject"], {"reference": f"Patient/{patient['id']}"})

    def test_an_id_depends_on_key_tenant_and_type(self) -> None:
        ids = {
            Pseudonyms(secret).id(tenant, kind, "x")
            for secret in ("a", "b")
            for tenant in ("here", "there")
            for kind in ("Patient", "Encounter")
        }
        self.assertEqual(len(ids), 8)
        self.assertEqual(Pseudonyms("a").id("here", "Patient", "x"), Pseudonyms("a").id("here", "Patient", "x"))
        self.assertTrue(all(len(one) == 32 for one in ids))
