"""BAR: accounts, what pays for them, who guarantees them, and diagnoses and procedures told for billing."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from tests.corpus import samples
from tests.mapping_maps.events import entries, numbers, pid, pv1, resources, text

GT1 = "GT1|1|{number}|{name}||||||||{relationship}||||||||||{company}"


def guarantor(name: str = "", relationship: str = "", company: str = "", number: str = "") -> str:
    """GT1-2, GT1-3, GT1-11 and GT1-21."""
    return GT1.format(name=name, relationship=relationship, company=company, number=number)


class AccountTests(TestCase):
    """What becomes of the account of PID-18."""

    def test_each_event_has_a_map(self) -> None:
        """P10 too."""
        for event in ("P01", "P02", "P05", "P06", "P10", "P12"):
            self.assertTrue(samples.library().has_map(f"BAR_{event}"), event)

    def test_states(self) -> None:
        """Opened and changed accounts are active, ended ones inactive, purged ones in error."""
        for event, status in (("P01", "active"), ("P05", "active"), ("P06", "inactive"), ("P02", "entered-in-error")):
            with self.subTest(event=event):
                message = text(f"BAR^{event}", pid(account="ACC1"), pv1())
                (account,) = entries(message, "Account")
                self.assertEqual((account["resource"]["status"], account["request"]["method"]), (status, "PUT"))
                self.assertEqual(numbers(account["resource"]), ["ACC1"])

    def test_codes_for_billing_leave_the_account(self) -> None:
        """P10 and P12, and every PID-18 of an ADT message, only name it."""
        for event in ("BAR^P10", "BAR^P12", "ADT^A01"):
            with self.subTest(event=event):
                (account,) = entries(text(event, pid(account="ACC1"), pv1()), "Account")
                self.assertEqual(account["request"]["method"], "POST")

    def test_patient_and_visit_are_not_overwritten(self) -> None:
        """They are created when missing."""
        for event in ("P01", "P02", "P05", "P06", "P10", "P12"):
            message = text(f"BAR^{event}", pid(account="ACC1"), pv1())
            for resource_type in ("Patient", "Encounter"):
                (made,) = entries(message, resource_type)
                self.assertEqual(made["request"]["method"], "POST", (event, resource_type))

    def test_insurances_in_their_order(self) -> None:
        """IN1-22, else IN1-1."""
        one = "IN1|1|PPO^Harbor|771|Harbor Mutual" + "|" * 18 + "2"
        two = "IN1|2|MCR^Medicare|CMS|Medicare"
        message = text("BAR^P01", pid(account="ACC1"), pv1(), one, two)
        (account,) = resources(message, "Account")
        urls = [made["fullUrl"] for made in entries(message, "Coverage")]
        held = [(made["coverage"]["reference"], made["priority"]) for made in account["coverage"]]
        self.assertEqual(held, [(urls[0], 2), (urls[1], 2)])
        self.assertEqual(len(resources(text("BAR^P01", pid(), pv1(), one), "Coverage")), 1)

    def test_guarantors(self) -> None:
        """The patient, a person, or an organization; of BAR and of ADT."""
        table: list[tuple[str, str, list[Any]]] = [
            (guarantor("Marlowe^Ada", "SEL"), "Patient", ["100"]),
            (guarantor("Marlowe^Tobias", "SPO", number="G7"), "RelatedPerson", ["G7"]),
            (guarantor("Marlowe^Tobias", "^Spouse", number="G8"), "RelatedPerson", ["G8"]),
            (guarantor(company="Harbor Works^^71104"), "Organization", ["71104"]),
        ]
        for event in ("BAR^P01", "BAR^P05", "ADT^A01", "ADT^A04", "ADT^A28"):
            for segment, resource_type, expected in table:
                with self.subTest(event=event, type=resource_type):
                    message = text(event, pid(account="ACC1"), pv1(), segment)
                    (account,) = resources(message, "Account")
                    (held,) = account["guarantor"]
                    (made,) = [
                        one for one in entries(message, resource_type) if one["fullUrl"] == held["party"]["reference"]
                    ]
                    self.assertEqual(numbers(made["resource"])[-1:], expected)

    def test_a_relationship_that_is_only_text(self) -> None:
        """IN1-17 without a code: the subscriber is a related person."""
        insured = "IN1|1|PPO^Harbor|771|Harbor Mutual" + "|" * 12 + "Marlowe^Tobias|^Spouse"
        message = text("BAR^P01", pid(account="ACC1"), pv1(), insured)
        (person,) = entries(message, "RelatedPerson")
        self.assertEqual(resources(message, "Coverage")[0]["subscriber"], {"reference": person["fullUrl"]})

    def test_guarantor_without_account(self) -> None:
        """A related person of the patient."""
        for event in ("BAR^P01", "ADT^A01"):
            message = text(event, pid(), pv1(), guarantor("Marlowe^Tobias", "SPO"))
            self.assertEqual(resources(message, "Account"), [])
            self.assertEqual(resources(message, "RelatedPerson")[0]["name"][0]["family"], "Marlowe")

    def test_diagnoses_and_procedures(self) -> None:
        """With the visit when the message names one, else of the patient."""
        codes = ("DG1|1||K35.80^Appendicitis^I10", "PR1|1||0DTJ4ZZ^Appendectomy^I10P")
        for event in ("P01", "P05", "P10", "P12"):
            for visit, is_known in ((pv1(), True), ("PV1|1|N", False)):
                message = text(f"BAR^{event}", pid(account="ACC1"), visit, *codes)
                with self.subTest(event=event, known=is_known):
                    for resource_type in ("Condition", "Procedure"):
                        (made,) = resources(message, resource_type)
                        self.assertEqual("encounter" in made, is_known)
                    self.assertEqual(len(resources(message, "Encounter")), int(is_known))
