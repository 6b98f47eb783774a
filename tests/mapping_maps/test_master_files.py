"""Master files of staff (M02) and places (M05): rows update what visits only name."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from tests.corpus import samples
from tests.mapping_maps.events import entries, numbers, resources

HEAD = "MSH|^~\\&|MASTER|HOSP|||20260314||MFN^{event}|M-1|P|2.5.1\nMFI|{event}|||UPD|||NE\n"
VISIT = "MSH|^~\\&|REG|HOSP|||2026||ADT^A01|1|P|2.5.1\nPID|||7\nPV1||I|W^1^2||||4411^Osei|||||||||||||V1"


def staff(*rows: str) -> str:
    """A message with these rows: event code of the row, then its segments."""
    return HEAD.format(event="M02") + "\n".join(rows)


def places(*rows: str) -> str:
    """The same of places."""
    return HEAD.format(event="M05") + "\n".join(rows)


def row(code: str, segment: str) -> str:
    """MFE and the segment."""
    return f"MFE|{code}|||X|CWE\n{segment}"


def condition(entry: dict[str, Any]) -> str:
    """What an entry is found by."""
    request = entry["request"]
    found: str = request.get("ifNoneExist") or request["url"].partition("?")[2]
    return found


class StaffTests(TestCase):
    """M02."""

    def test_rows(self) -> None:
        """Deleted, deactivated and inactive persons are not active; nothing is deleted."""
        for code, flag, active in (
            ("MAD", "A", True),
            ("MUP", "", True),
            ("MAC", "A", True),
            ("MUP", "I", False),
            ("MDC", "A", False),
            ("MDL", "", False),
        ):
            with self.subTest(code=code, flag=flag):
                message = staff(row(code, f"STF|1|4411|Osei^Kwame|P||19680904|{flag}"))
                (person,) = entries(message, "Practitioner")
                self.assertIs(person["resource"]["active"], active)
                self.assertEqual(person["request"]["method"], "PUT")
                (role,) = resources(message, "PractitionerRole")
                self.assertIs(role["active"], active)

    def test_it_is_the_person_of_visits(self) -> None:
        """One condition in the master file and in PV1-7; the visit does not overwrite."""
        (made,) = entries(staff(row("MUP", "STF|1|4411|Osei^Kwame")), "Practitioner")
        (named,) = entries(VISIT, "Practitioner")
        self.assertEqual(condition(made), condition(named))
        self.assertEqual((made["request"]["method"], named["request"]["method"]), ("PUT", "POST"))

    def test_key_without_numbers(self) -> None:
        """STF-1 when STF-2 is empty."""
        (made,) = resources(staff(row("MUP", "STF|4411||Osei^Kwame")), "Practitioner")
        self.assertEqual(numbers(made), ["4411"])

    def test_several_rows(self) -> None:
        """Each is a person, with its own numbers, units and certificates."""
        message = staff(
            row("MUP", "STF|1|1|A\nPRA|1|||||77^NPI\nORG|1|U1^Unit\nORG|2|U2^Unit"), row("MUP", "STF|2|2|B\nCER|1|99")
        )
        one, two = resources(message, "Practitioner")
        self.assertEqual((numbers(one), numbers(two)), (["1", "77"], ["2"]))
        self.assertEqual(len(resources(message, "PractitionerRole")), 2)
        self.assertEqual(two["qualification"][0]["code"]["text"], "Certificate")


class PlaceTests(TestCase):
    """M05."""

    def test_rows(self) -> None:
        """States."""
        for code, status in (("MAD", "active"), ("MUP", "active"), ("MDC", "inactive"), ("MDL", "inactive")):
            with self.subTest(code=code):
                place, *_ = resources(places(row(code, "LOC|W^1^2|By the window")), "Location")
                self.assertEqual((place["status"], place["description"]), (status, "By the window"))

    def test_it_is_the_place_of_visits(self) -> None:
        """One condition in the master file and in PV1-3, at each level."""
        found = {one["resource"]["name"]: condition(one) for one in entries(VISIT, "Location")}
        for place, name in (("W^1^2", "2"), ("W^1", "1"), ("W", "W")):
            made, *_ = entries(places(row("MUP", f"LOC|{place}|text")), "Location")
            self.assertEqual(condition(made), found[name])
            self.assertEqual(made["request"]["method"], "PUT")

    def test_a_place_with_a_row_of_its_own_is_updated_once(self) -> None:
        """Whatever the order of the ward and its bed."""
        rows = [row("MUP", "LOC|W^1^2|bed"), row("MUP", "LOC|W|ward\nLRL|W|||ALI||West")]
        for order in (rows, rows[::-1]):
            made = {one["resource"]["name"]: one for one in entries(places(*order), "Location")}
            self.assertEqual(set(made), {"W", "1", "2"})
            self.assertEqual(made["W"]["resource"]["description"], "ward")
            self.assertEqual(made["W"]["resource"]["alias"], ["West"])
            self.assertEqual(
                {name: one["request"]["method"] for name, one in made.items()}, {"W": "PUT", "2": "PUT", "1": "POST"}
            )

    def test_departments(self) -> None:
        """A department is a service at the place."""
        message = places(row("MUP", "LOC|W|ward\nLDP|W|SURG^Surgery||||A\nLDP|W|CARD^Cardiology||||I"))
        place, *_ = entries(message, "Location")
        one, two = resources(message, "HealthcareService")
        self.assertEqual(
            [(made["name"], made["active"]) for made in (one, two)], [("Surgery", True), ("Cardiology", False)]
        )
        self.assertEqual(one["location"], [{"reference": place["fullUrl"]}])

    def test_both_have_a_map(self) -> None:
        """Also by the structure in MSH-9.3."""
        for kind in ("MFN_M02", "MFN_M05"):
            self.assertTrue(samples.library().has_map(kind))
