"""Every trigger event of chapter 3 has a map, and what each means for the visit, the person and the bed."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.corpus import samples
from tests.mapping_maps.events import bundle, entries, mrg, numbers, pid, pv1, resources, text

ADT = (*range(1, 19), *range(20, 56), 60, 61, 62)

VISITS = [
    ("A14", "planned", "planned"),
    ("A15", "in-progress", "active"),
    ("A16", "in-progress", "active"),
    ("A21", "onleave", "active"),
    ("A22", "in-progress", "active"),
    ("A23", "entered-in-error", "completed"),
    ("A25", "in-progress", "active"),
    ("A26", "in-progress", "active"),
    ("A27", "cancelled", "completed"),
    ("A32", "in-progress", "active"),
    ("A33", "in-progress", "active"),
    ("A38", "cancelled", "completed"),
    ("A52", "in-progress", "active"),
    ("A53", "onleave", "active"),
    ("A54", "in-progress", "active"),
    ("A55", "in-progress", "active"),
    ("A61", "in-progress", "active"),
    ("A62", "in-progress", "active"),
]
"""Event, status of the visit of an inpatient, status of the assigned bed."""


MRN = "100^^^HOSP^MR"
ALTERNATE = pv1("") + "|" * 31 + "ALT1"
CHANGES = [
    ("A46", "ADT_A30", pid(person="E2^^^MPI"), [mrg(MRN, person="E1^^^MPI")], "Patient", "E1 (old),100,E2", "100"),
    ("A47", "ADT_A30", pid(), [mrg("200^^^HOSP^MR")], "Patient", "200 (old),100", "200,100"),
    ("A47", "ADT_A30", pid(), [mrg(f"{MRN}~7^^^MPI^PI")], "Patient", "7 (old),100", "100"),
    ("A48", "ADT_A30", pid(), [f"MRG|{MRN}|ALT9^^^X"], "Patient", "ALT9 (old),100", "100"),
    ("A49", "ADT_A30", pid(account="ACC1"), [mrg(MRN, account="ACC9")], "Account", "ACC9 (old),ACC1", "ACC9,ACC1"),
    ("A50", "ADT_A50", pid(), [mrg(MRN, visit="V9"), pv1()], "Encounter", "V9 (old),V1", "V9,V1"),
    ("A51", "ADT_A50", pid(), [mrg(MRN, alternate="ALT9"), ALTERNATE], "Encounter", "ALT9 (old),ALT1", "ALT9,ALT1"),
]
"""Event, structure, PID, further segments; type, identifiers and search of the resource whose number changes."""


class EveryEventTests(TestCase):
    """No event is without a map."""

    def test_each_has_a_map(self) -> None:
        """A19 is a query."""
        missing = [f"ADT_A{one:02}" for one in ADT if not samples.library().has_map(f"ADT_A{one:02}")]
        self.assertEqual(missing, [])

    def test_visits(self) -> None:
        """What each event says of the visit and of its bed; the visit is found by its number."""
        for event, status, bed in VISITS:
            with self.subTest(event=event):
                (made,) = entries(text(f"ADT^{event}", pid(), pv1()), "Encounter")
                self.assertEqual(made["resource"]["status"], status)
                self.assertEqual(made["resource"]["location"][0]["status"], bed)
                self.assertEqual(
                    made["request"]["url"].partition("&")[0], "Encounter?identifier=urn:ipf:authority:HOSP|V1"
                )

    def test_a_deleted_or_cancelled_visit_with_a_time_of_discharge(self) -> None:
        """The event says more than PV1-45."""
        for event, status in (("A23", "entered-in-error"), ("A27", "cancelled"), ("A38", "cancelled")):
            with self.subTest(event=event):
                discharged = pv1() + "|" * 26 + "20260301"
                (visit,) = resources(text(f"ADT^{event}", pid(), discharged), "Encounter")
                self.assertEqual(visit["status"], status)

    def test_consulting_doctors(self) -> None:
        """A61: the doctor of PV1-9 takes part."""
        doctor = "PV1|1|I|||||||4411^Osei^Kwame||||||||||V1"
        (visit,) = resources(text("ADT^A61^ADT_A61", pid(), doctor), "Encounter")
        self.assertEqual(visit["participant"][0]["type"][0]["coding"][0]["code"], "CON")


class PersonTests(TestCase):
    """Events about persons."""

    def test_deleted_person(self) -> None:
        """A29: the Patient stays, not active; no visit is made of the PV1."""
        message = text("ADT^A29^ADT_A21", pid(), pv1())
        (patient,) = resources(message, "Patient")
        self.assertIs(patient["active"], False)
        self.assertEqual(resources(message, "Encounter"), [])
        self.assertNotIn("active", resources(text("ADT^A28^ADT_A05", pid(), pv1()), "Patient")[0])

    def test_diagnoses_and_procedures_of_a_person(self) -> None:
        """DG1 and PR1 of A28 and A31 are of the person, not of a visit."""
        for event in ("A28", "A31"):
            message = text(
                f"ADT^{event}^ADT_A05", pid(), pv1(), "DG1|1||I10^Hypertension^I10", "PR1|1||0DTJ4ZZ^Appendectomy^I10P"
            )
            with self.subTest(event=event):
                for resource_type, code in (("Condition", "I10"), ("Procedure", "0DTJ4ZZ")):
                    (made,) = resources(message, resource_type)
                    self.assertEqual(made["code"]["coding"][0]["code"], code)
                    self.assertNotIn("encounter", made)

    def test_link(self) -> None:
        """A24: each patient names the other, both stay in use; A37 names none."""
        other = pid("200^^^HOSP^MR")
        one, two = entries(text("ADT^A24^ADT_A24", pid(), "PD1||||77^Osei", other), "Patient")
        self.assertEqual(one["resource"]["link"], [{"other": {"reference": two["fullUrl"]}, "type": "seealso"}])
        self.assertEqual(two["resource"]["link"], [{"other": {"reference": one["fullUrl"]}, "type": "seealso"}])
        self.assertIn("generalPractitioner", one["resource"])
        for message in (text("ADT^A37^ADT_A37", pid(), other), text("ADT^A24^ADT_A24", pid(), pid())):
            for made in resources(message, "Patient"):
                self.assertNotIn("link", made)

    def test_link_without_groups(self) -> None:
        """Version 2.1 writes both patients without groups."""
        made = resources(text("ADT^A24", pid(), pid("200^^^HOSP^MR"), version="2.1"), "Patient")
        self.assertEqual([one["link"][0]["type"] for one in made], ["seealso", "seealso"])

    def test_adverse_reactions(self) -> None:
        """A60, before and from 2.7: the patient is not overwritten; D takes an allergy back."""
        iam = "IAM|1|DA|70618^Penicillin^RXNORM|SV|Rash|{}|"
        for version in ("2.5.1", "2.8"):
            message = text("ADT^A60^ADT_A60", pid(), iam.format("A"), version=version)
            with self.subTest(version=version):
                (allergy,) = resources(message, "AllergyIntolerance")
                self.assertEqual(allergy["clinicalStatus"]["coding"][0]["code"], "active")
                (patient,) = entries(message, "Patient")
                self.assertEqual(patient["request"]["method"], "POST")
        (odd,) = resources(text("ADT^A60^ADT_A60", pid(), iam.format("&")), "AllergyIntolerance")
        self.assertEqual(odd["clinicalStatus"]["coding"][0]["code"], "active")
        (deleted,) = resources(text("ADT^A60^ADT_A60", pid(), iam.format("D")), "AllergyIntolerance")
        self.assertEqual(deleted["verificationStatus"]["coding"][0]["code"], "entered-in-error")
        self.assertNotIn("clinicalStatus", deleted)
        (detailed,) = resources(
            text(
                "ADT^A60^ADT_A60",
                pid(),
                iam.format("A"),
                "NTE|1||seen twice",
                "IAR|271807003^Rash^SCT|SV",
                version="2.8",
            ),
            "AllergyIntolerance",
        )
        self.assertEqual(detailed["note"][0]["text"], "seen twice")
        self.assertEqual(detailed["reaction"][-1]["severity"], "severe")

    def test_bed_status(self) -> None:
        """A20: the bed is updated whatever made it; the ward around it is only created."""
        made = entries(text("ADT^A20^ADT_A20", "NPU|W^1^2^HOSP|H"), "Location")
        bed, *around = made
        self.assertEqual(bed["resource"]["operationalStatus"]["code"], "H")
        self.assertEqual(bed["resource"]["name"], "2")
        self.assertEqual(bed["request"]["method"], "PUT")
        self.assertEqual({one["request"]["method"] for one in around}, {"POST"})
        (visit, *_) = entries(text("ADT^A01", pid(), pv1().replace("W^1^2", "W^1^2^HOSP")), "Location")
        self.assertEqual(visit["request"]["ifNoneExist"], bed["request"]["url"].partition("?")[2])


class MergeTests(TestCase):
    """Merges, moves and changes of numbers."""

    def test_patients(self) -> None:
        """Each of these merges the patient of MRG-1 into that of PID-3."""
        for event, structure in (
            ("A18", "ADT_A18"),
            ("A30", "ADT_A30"),
            ("A34", "ADT_A30"),
            ("A36", "ADT_A30"),
            ("A39", "ADT_A39"),
            ("A40", "ADT_A39"),
            ("A43", "ADT_A43"),
        ):
            with self.subTest(event=event):
                patient, prior = resources(text(f"ADT^{event}^{structure}", pid(), mrg("200^^^HOSP^MR")), "Patient")
                self.assertEqual((numbers(patient), patient["link"][0]["type"]), (["100"], "replaces"))
                self.assertEqual((numbers(prior), prior["active"]), (["200"], False))

    def test_by_person_number_only(self) -> None:
        """A39 names both patients by PID-2 and MRG-4."""
        message = text("ADT^A39^ADT_A39", pid("", person="E1^^^MPI"), mrg(person="E2^^^MPI"))
        self.assertEqual([numbers(one) for one in resources(message, "Patient")], [["E1"], ["E2"]])

    def test_move_of_a_number_that_stays(self) -> None:
        """A43 with one number before and after: one Patient, whose person number is the new one."""
        message = text("ADT^A43^ADT_A43", pid(person="E2^^^MPI"), mrg("100^^^HOSP^MR", person="E1^^^MPI"))
        self.assertEqual([numbers(one) for one in resources(message, "Patient")], [["100", "E2"]])

    def test_accounts(self) -> None:
        """A35, A36 and A41: the prior account is closed and part of the surviving one."""
        for event, structure in (("A35", "ADT_A30"), ("A36", "ADT_A30"), ("A41", "ADT_A39")):
            message = text(f"ADT^{event}^{structure}", pid(account="ACC1"), mrg("100^^^HOSP^MR", account="ACC2"))
            with self.subTest(event=event):
                made = {numbers(one["resource"])[0]: one for one in entries(message, "Account")}
                self.assertEqual(set(made), {"ACC1", "ACC2"})
                self.assertEqual(made["ACC1"]["resource"]["status"], "active")
                prior = made["ACC2"]["resource"]
                self.assertEqual(
                    (prior["status"], prior["partOf"]), ("inactive", {"reference": made["ACC1"]["fullUrl"]})
                )
                self.assertEqual(len(resources(message, "Patient")), 1)

    def test_account_with_the_same_number(self) -> None:
        """No merge, also when only one of the two names its authority."""
        message = text("ADT^A41^ADT_A39", pid(account="ACC1^^^HOSP"), mrg("100^^^HOSP^MR", account="ACC1"))
        (account,) = resources(message, "Account")
        self.assertEqual((account["status"], "partOf" in account), ("active", False))

    def test_visits(self) -> None:
        """A42: the prior visit is in error and part of the one that stays."""
        message = text("ADT^A42^ADT_A39", pid(), mrg("100^^^HOSP^MR", visit="V2"), pv1("V1"))
        visit, prior = entries(message, "Encounter")
        self.assertEqual((numbers(visit["resource"]), visit["resource"]["status"]), (["V1"], "in-progress"))
        self.assertEqual((numbers(prior["resource"]), prior["resource"]["status"]), (["V2"], "entered-in-error"))
        self.assertEqual(prior["resource"]["partOf"], {"reference": visit["fullUrl"]})

    def test_moved_account(self) -> None:
        """A44: the account is of the patient in PID; the patient it was of is not overwritten."""
        message = text("ADT^A44^ADT_A44", pid(account="ACC1"), mrg("200^^^HOSP^MR", account="ACC1"), version="2.8")
        patient, source = entries(message, "Patient")
        self.assertEqual([one["request"]["method"] for one in (patient, source)], ["POST", "POST"])
        self.assertEqual(numbers(source["resource"]), ["200"])
        self.assertNotIn("active", source["resource"])
        (account,) = resources(message, "Account")
        self.assertEqual((numbers(account), account["subject"]), (["ACC1"], [{"reference": patient["fullUrl"]}]))

    def test_moved_visits(self) -> None:
        """A45: each visit with its account and patient."""
        moved = [mrg("200^^^HOSP^MR", account="ACC9", visit=one) + f"\n{pv1(one)}" for one in ("V1", "V2")]
        message = text("ADT^A45^ADT_A45", pid(account="ACC1"), *moved)
        patient, source = entries(message, "Patient")
        self.assertEqual(numbers(source["resource"]), ["200"])
        (account,) = entries(message, "Account")
        for visit, number in zip(resources(message, "Encounter"), ("V1", "V2"), strict=True):
            self.assertEqual(numbers(visit), [number])
            self.assertEqual(visit["subject"], {"reference": patient["fullUrl"]})
            self.assertEqual(visit["account"], [{"reference": account["fullUrl"]}])

    def test_changed_numbers(self) -> None:
        """A resource is found by its prior number, which it keeps as an old one, or by the one it has now."""
        for event, structure, person, prior, resource_type, expected, searched in CHANGES:
            with self.subTest(event=event):
                (made,) = entries(text(f"ADT^{event}^{structure}", person, *prior), resource_type)
                self.assertEqual(numbers(made["resource"]), expected.split(","))
                self.assertEqual(made["request"]["method"], "PUT")
                values = [one.rpartition("|")[2] for one in made["request"]["url"].partition("=")[2].split(",")]
                self.assertEqual(values, searched.split(","))

    def test_every_event_names_its_focus(self) -> None:
        """MessageHeader.focus is never empty."""
        for one in ADT:
            event = f"A{one:02}"
            segments = (
                ["NPU|W^1^2|O"] if event == "A20" else [pid(), mrg("200^^^HOSP^MR", account="A9", visit="V9"), pv1()]
            )
            with self.subTest(event=event):
                (header,) = [
                    made["resource"]
                    for made in bundle(text(f"ADT^{event}", *segments))["entry"]
                    if made["resource"]["resourceType"] == "MessageHeader"
                ]
                self.assertTrue(header.get("focus"))
