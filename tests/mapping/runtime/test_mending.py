"""What R4 requires of the elements of a message's Bundle, whatever the message and the map say."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.mapping.compiler.compile import Program
from ipf.mapping.runtime.mending import ABSENT, AS_SENT
from tests.mapping.support import HEAD, V2, message, program, run

UNKNOWN = {"extension": [{"url": ABSENT, "valueCode": "unknown"}]}


def bundle_program(resource_type: str, rules: str) -> Program:
    """Rules of one group from PID (`pid`) to one resource (`tgt`) of a Bundle."""
    groups = (
        f"group main(source src : ADT_A01, target bundle : Bundle) {{\n src.PID as pid -> bundle.entry as entry, "
        f"entry.resource = create('{resource_type}') as tgt then {{\n{rules}\n}}; }}"
    )
    return program(HEAD + V2 + groups)


def made(resource_type: str, rules: str, pid: str) -> dict[str, Any]:
    """The resource that the rules make of a PID, without its type."""
    bundle, _ = run(bundle_program(resource_type, rules), message("EVN||2026", pid))
    resource: dict[str, Any] = dict(bundle["entry"][0]["resource"])
    assert resource.pop("resourceType") == resource_type
    return resource


def kept(text: str) -> dict[str, Any]:
    """A primitive element without a value, and what was sent."""
    return {"extension": [{"url": AS_SENT, "valueString": text}]}


PERIOD = (
    "pid -> tgt.name as name, name.period as p then { pid.PID_7 as a -> p.start = a; pid.PID_29 as b -> p.end = b; };"
)


class RequiredTests(TestCase):
    def test_required_elements_that_did_not_come_are_unknown(self) -> None:
        """A reference, a choice and a required list; elements that came stay as they are."""
        self.assertEqual(
            made("Condition", "pid.PID_5 as t -> tgt.code = cc(t);", "PID|||||Hansen"),
            {"code": {"text": "Hansen"}, "subject": UNKNOWN},
        )
        found = made("Coverage", "pid.PID_5 as t -> tgt.status = 'active';", "PID|||||Hansen")
        self.assertEqual(found, {"status": "active", "beneficiary": UNKNOWN, "payor": [UNKNOWN]})
        found = made("MedicationRequest", "pid.PID_5 -> tgt.status = 'active';", "PID|||||Hansen")
        self.assertEqual(found["medicationCodeableConcept"], UNKNOWN)

    def test_inner_elements(self) -> None:
        """A backbone element has what R4 requires of it, and so has one that is added because it is required."""
        found = made(
            "Encounter", "pid -> tgt.location as l then { pid.PID_5 as t -> l.status = 'active'; };", "PID|||||A"
        )
        self.assertEqual(found["location"], [{"status": "active", "location": UNKNOWN}])
        found = made("Appointment", "pid.PID_5 -> tgt.status = 'booked';", "PID|||||A")
        self.assertEqual(found["participant"], [{"_status": UNKNOWN, "actor": UNKNOWN}])
        self.assertEqual((found["_start"], found["_end"]), (UNKNOWN, UNKNOWN))

    def test_nothing_is_made_of_nothing(self) -> None:
        """Empty elements and resources are removed, not completed."""
        compiled = bundle_program("Condition", "pid.PID_5 as t -> tgt.code as c, c.text = t;")
        self.assertNotIn("entry", run(compiled, message("EVN||2026", "PID|1"))[0])
        found = made(
            "Encounter", "pid -> tgt.status = 'unknown', tgt.location as l; pid.PID_9 -> tgt.length as x;", "PID|1"
        )
        self.assertNotIn("location", found)

    def test_a_result_that_is_no_bundle_is_left_as_the_map_made_it(self) -> None:
        text = (
            f"{HEAD}{V2}group main(source src : ADT_A01, target tgt : Condition) {{ src.PID as pid -> tgt.id = 'a'; }}"
        )
        self.assertEqual(run(program(text), message("PID|1"))[0], {"resourceType": "Condition", "id": "a"})


class RefusedTests(TestCase):
    def test_a_text_that_is_no_value_stays_as_sent(self) -> None:
        """Beside its element, and in an element that has nothing else."""
        rules = "pid.PID_7 as d -> tgt.birthDate = d;"
        self.assertEqual(made("Patient", rules, "PID|||||||20261340"), {"_birthDate": kept("20261340")})
        self.assertEqual(made("Patient", rules, "PID|||||||20261130"), {"birthDate": "2026-11-30"})
        self.assertEqual(made("Patient", PERIOD, "PID|||||||today"), {"name": [{"period": {"_start": kept("today")}}]})

    def test_values_of_other_rules(self) -> None:
        """A value that was there stays, and the refused one is reported; a later value stands beside it."""
        rules = "pid.PID_7 as d -> tgt.birthDate = d; pid.PID_29 as d -> tgt.birthDate = d;"
        found = made("Patient", rules, "PID|||||||x" + "|" * 22 + "1980")
        self.assertEqual(found, {"_birthDate": kept("x"), "birthDate": "1980"})
        text = "PID|||||||1980" + "|" * 22 + "x"
        self.assertEqual(made("Patient", rules, text), {"birthDate": "1980"})
        dropped = run(bundle_program("Patient", rules), message("EVN||2026", text))[1].dropped
        self.assertEqual(dropped, ["Patient.birthDate"])

    def test_casts_and_choices(self) -> None:
        """The name of the cast; a later value of another type replaces it."""
        rules = "pid.PID_29 as d -> tgt.deceased = cast(d, 'dateTime');"
        text = "PID|" + "|" * 28 + "x"
        self.assertEqual(made("Patient", rules, text), {"_deceasedDateTime": kept("x")})
        rules += " pid.PID_29 -> tgt.deceased = true;"
        self.assertEqual(made("Patient", rules, text), {"deceasedBoolean": True})

    def test_the_warning_stays(self) -> None:
        compiled = bundle_program("Patient", "pid.PID_7 as d -> tgt.birthDate = d;")
        self.assertEqual(run(compiled, message("PID|||||||x"))[1].warnings, ["a value that is no date was omitted"])


class InvariantTests(TestCase):
    def test_periods(self) -> None:
        """per-1: compared as times, not as texts; what cannot be compared stays."""
        for start, end, is_kept in (
            ("20260101", "20260102", True),
            ("20260102", "20260102", True),
            ("20260102", "20260101", False),
            ("2026", "20250101", False),
            ("202602", "20260214", True),
            ("20260101003000+0100", "20251231234500+0000", True),
            ("20260101003000-0500", "20260101040000+0000", False),
        ):
            with self.subTest(start=start, end=end):
                period = made("Patient", PERIOD, f"PID|||||||{start}{'|' * 22}{end}")["name"][0]["period"]
                self.assertEqual("end" in period, is_kept)
                self.assertEqual("_end" in period, not is_kept)

    def test_extensions(self) -> None:
        """ext-1: without a value there is none, also inside another one, which then has none either."""
        rules = (
            "pid -> tgt.extension as e, e.url = 'urn:a' then {{"
            " pid.PID_5 as t -> e.extension as i, i.url = 'b', i.value = cast(t, '{}'); }};"
        )
        inner = {"url": "b", "valueString": "A"}
        found = made("Patient", rules.format("string"), "PID|||||A")
        self.assertEqual(found, {"extension": [{"url": "urn:a", "extension": [inner]}]})
        nothing, _ = run(bundle_program("Patient", rules.format("string")), message("EVN||2026", "PID||||| "))
        self.assertNotIn("entry", nothing)

    def test_contact_points_and_organizations(self) -> None:
        """cpt-2 and org-1 to org-3."""
        rules = "pid.PID_5 as t -> tgt.telecom as c, c.value = t;"
        self.assertEqual(made("Patient", rules, "PID|||||A"), {"telecom": [{"value": "A", "system": "other"}]})
        rules = "pid.PID_5 as t -> tgt.address as a, a.city = t, a.use = 'home';"
        found = made("Organization", rules, "PID|||||A")
        self.assertEqual(found, {"address": [{"city": "A", "_use": kept("home")}], "_name": UNKNOWN})

    def test_orders_and_times(self) -> None:
        """prr-1, mad-1, tim-1 and tim-10."""
        found = made("MedicationAdministration", "pid.PID_5 as t -> tgt.dosage as d, d.text = t;", "PID|||||A")
        self.assertEqual(found["dosage"], {"text": "A", "dose": UNKNOWN})
        found = made("ServiceRequest", "pid.PID_5 as t -> tgt.orderDetail = cc(t);", "PID|||||A")
        self.assertEqual(found["code"], UNKNOWN)
        rules = (
            "pid -> tgt.occurrence = create('Timing') as timing, timing.repeat as r, r.duration = 5, r.when = 'HS',"
            " r.timeOfDay = '08:00:00';"
        )
        found = made("ServiceRequest", rules, "PID|||||A")["occurrenceTiming"]["repeat"]
        self.assertEqual(found, {"duration": 5, "timeOfDay": ["08:00:00"], "_durationUnit": UNKNOWN})

    def test_lists_of_primitives_with_extensions(self) -> None:
        """Values and extensions have the same number of items, and none is empty."""
        rules = (
            "pid.PID_5 as t -> tgt.name as n, n.given = t as g then {"
            " pid.PID_6 as m -> g.extension as e, e.url = 'urn:a', e.value = cast(m, 'decimal'); };"
            " pid.PID_9 as t -> tgt.name as n collate, n.given = t;"
        )
        one = {"extension": [{"url": "urn:a", "valueDecimal": 7}]}
        found = made("Patient", rules, "PID|||||A|7|||B")["name"][0]
        self.assertEqual((found["given"], found["_given"]), (["A", "B"], [one, None]))
        found = made("Patient", rules, "PID|||||A| |||B")["name"][0]
        self.assertEqual(found, {"given": ["A", "B"]})

    def test_amounts(self) -> None:
        """A currency of ISO 4217; ranges from low to high; both parts of a ratio; times that are not negative."""
        rules = "pid.PID_5 as t -> tgt.priceOverride as m, m.value = 5, m.currency = t;"
        self.assertEqual(made("ChargeItem", rules, "PID|||||NOK")["priceOverride"], {"value": 5, "currency": "NOK"})
        found = made("ChargeItem", rules, "PID|||||crowns")["priceOverride"]
        self.assertEqual(found, {"value": 5, "_currency": kept("crowns")})
        rules = (
            "pid -> tgt.quantity = create('Range') as r, r.low as l, r.high as h then {"
            " pid.PID_5 as t -> l.value = t; pid.PID_6 as t -> h.value = t; };"
        )
        found = made("ServiceRequest", rules, "PID|||||1|2")["quantityRange"]
        self.assertEqual(found, {"low": {"value": 1}, "high": {"value": 2}})
        found = made("ServiceRequest", rules, "PID|||||2|1")["quantityRange"]
        self.assertEqual(found, {"low": {"value": 2}, "extension": [{"url": AS_SENT, "valueQuantity": {"value": 1}}]})
        rules = "pid.PID_5 as t -> tgt.quantity = create('Ratio') as r, r.numerator as n, n.value = t;"
        found = made("ServiceRequest", rules, "PID|||||2")["quantityRatio"]
        self.assertEqual(found, {"numerator": {"value": 2}, "denominator": UNKNOWN})

    def test_what_was_entered_in_error_has_no_clinical_status(self) -> None:
        """ait-1, ait-2, con-5; an allergy without any status has one that is unknown."""
        status = "tgt.clinicalStatus = cc('urn:c', 'active')"
        for kind, rules, expected in (
            ("AllergyIntolerance", status, {"coding": [{"system": "urn:c", "code": "active"}]}),
            ("AllergyIntolerance", f"{status}, tgt.verificationStatus = cc('urn:v', 'entered-in-error')", None),
            ("AllergyIntolerance", f"{status}, tgt.verificationStatus = cc('urn:v', 'confirmed')",
             {"coding": [{"system": "urn:c", "code": "active"}]}),
            ("AllergyIntolerance", "tgt.criticality = 'low'", UNKNOWN),
            ("AllergyIntolerance", "tgt.verificationStatus = cc('urn:v', 'entered-in-error')", None),
            ("Condition", f"{status}, tgt.verificationStatus = cc('urn:v', 'entered-in-error')", None),
            ("Condition", "tgt.verificationStatus = cc('urn:v', 'confirmed')", None),
        ):  # fmt: skip
            self.assertEqual(made(kind, f"pid -> {rules};", "PID|1").get("clinicalStatus"), expected, rules)

    def test_attachments_and_education(self) -> None:
        """att-1: data have a content type, of the form of a media type; imm-1: education has a type or a reference."""
        rules = "pid.PID_5 as t -> tgt.photo as a, a.data = 'MQ==', a.contentType = t;"
        for kind, expected in (
            ("image/png", {"contentType": "image/png"}),
            ("image/png image", {"_contentType": kept("image/png image")}),
            ("", {"_contentType": UNKNOWN}),
        ):
            text = rules if kind else "pid -> tgt.photo as a, a.data = 'MQ==';"
            self.assertEqual(made("Patient", text, f"PID|||||{kind}")["photo"], [{"data": "MQ==", **expected}], kind)
        given = "pid -> tgt.education as e, e.publicationDate = '2024'{};"
        found = made("Immunization", given.format(""), "PID|1")["education"]
        self.assertEqual(found, [{"publicationDate": "2024", "_documentType": UNKNOWN}])
        found = made("Immunization", given.format(", e.reference = 'urn:a'"), "PID|1")["education"]
        self.assertEqual(found, [{"publicationDate": "2024", "reference": "urn:a"}])

    def test_control_characters(self) -> None:
        """A text has none; computed texts, codes and identifiers neither."""
        rules = "pid.PID_5 as t -> tgt.name as n, n.family = t, n.text = (t & '!'), tgt.maritalStatus = cc('urn:a', t);"
        found = made("Patient", rules, "PID|||||A\x07B")
        self.assertEqual(found["name"], [{"family": "A\ufffdB", "text": "A\ufffdB!"}])
        self.assertEqual(found["maritalStatus"]["coding"][0]["code"], "A\ufffdB")
