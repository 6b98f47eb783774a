"""Moves, merges and changes of numbers, from HL7 text to stored resources, as the convert stage stores them.

Each sequence is also stored with its last message twice: a message that is converted again changes nothing.
"""

from __future__ import annotations

from ipf.ports import Json
from tests.rest.world import OnMemory
from tests.rest.write.messages import kinds, message, numbers, resources, store

MR = "{}^^^HOSP7^MR"


def pid(number: str, family: str = "Muster", account: str = "") -> str:
    """PID-3, PID-5 and PID-18."""
    return f"PID|||{MR.format(number)}||{family}^Ada||19710412|F||||||||||{account}"


def pv1(visit: str) -> str:
    """PV1-2, PV1-3 and PV1-19."""
    return f"PV1||I|W^1^2||||||||||||||||{visit}"


def event(name: str, *segments: str) -> str:
    """An ADT message."""
    return message(f"ADT^{name}", "EVN||20260101", *segments)


def mrg(number: str, account: str = "", visit: str = "") -> str:
    """MRG-1, MRG-3 and MRG-5."""
    return f"MRG|{MR.format(number)}||{account}||{visit}"


ADMITTED = event("A01", pid("1", account="ACC1"), pv1("V1"))
OTHER = event("A01", pid("2", "Other", account="ACC2"), pv1("V2"))

SEQUENCES: list[tuple[str, list[str], str, list[str]]] = [
    (
        "A44: the account is of the other patient",
        [ADMITTED, OTHER, event("A44^ADT_A44", pid("2", "Other", "ACC1"), mrg("1", "ACC1"))],
        "Account",
        ["ACC1 of 2", "ACC2 of 2"],
    ),
    (
        "A45: the visit is of the other patient",
        [ADMITTED, OTHER, event("A45^ADT_A45", pid("2", "Other", "ACC2"), mrg("1", "ACC1", "V1"), pv1("V1"))],
        "Encounter",
        ["V1 VN of 2", "V2 VN of 2"],
    ),
    (
        "A41: the prior account is of the patient of the surviving one",
        [ADMITTED, OTHER, event("A41^ADT_A39", pid("2", "Other", "ACC2"), mrg("1", "ACC1"))],
        "Account",
        ["ACC1 of 2", "ACC2 of 2"],
    ),
    (
        "A42: so is the prior visit",
        [ADMITTED, OTHER, event("A42^ADT_A39", pid("2", "Other"), mrg("1", visit="V1"), pv1("V2"))],
        "Encounter",
        ["V1 VN of 2", "V2 VN of 2"],
    ),
    (
        "A49: one account under its new number",
        [ADMITTED, event("A49^ADT_A30", pid("1", account="ACC9"), mrg("1", "ACC1"))],
        "Account",
        ["ACC1 old, ACC9 of 1"],
    ),
    (
        "A50: one visit under its new number",
        [ADMITTED, event("A50^ADT_A50", pid("1"), mrg("1", visit="V1"), pv1("V9"))],
        "Encounter",
        ["V1 VN old, V9 VN of 1"],
    ),
    (
        "A50, and messages under the new number",
        [
            ADMITTED,
            event("A50^ADT_A50", pid("1"), mrg("1", visit="V1"), pv1("V9")),
            event("A08", pid("1"), pv1("V9")),
            event("A50^ADT_A50", pid("1"), mrg("1", visit="V1"), pv1("V9")),
        ],
        "Encounter",
        ["V1 VN old, V9 VN of 1"],
    ),
    (
        "A47: one patient under the new number, with the visit",
        [ADMITTED, event("A47^ADT_A30", pid("9"), mrg("1")), event("A08", pid("9"), pv1("V1"))],
        "Encounter",
        ["V1 VN of 9"],
    ),
    (
        "A40: the visit goes on under the surviving patient",
        [
            ADMITTED,
            OTHER,
            event("A40^ADT_A39", pid("2", "Other"), mrg("1")),
            event("A08", pid("2", "Other"), pv1("V1")),
        ],
        "Encounter",
        ["V1 VN of 2", "V2 VN of 2"],
    ),
]


class ChangesOnMemory(OnMemory):
    """What is stored after each sequence."""

    async def test_sequences(self) -> None:
        """The resources with their numbers and their patient's.  Each sequence is of a hospital of its own."""
        for place, (title, texts, resource_type, expected) in enumerate(SEQUENCES):
            for again in (False, True):
                sent = [*texts, texts[-1]] if again else texts
                hospital = f"HOSP{place}{'again' if again else 'once'}"
                with self.subTest(title=title, again=again):
                    ends = kinds(await store(self.world, *(one.replace("HOSP7", hospital) for one in sent)))
                    self.assertEqual(ends, ["ok"] * len(sent))
                    self.assertEqual(await self.found(resource_type, hospital), expected)

    async def found(self, resource_type: str, hospital: str) -> list[str]:
        """Each resource of a type with its numbers and the first number in use of its patient."""
        system = f"urn:ipf:authority:{hospital}"
        people = {f"Patient/{one['id']}": one for one in await resources(self.world, f"Patient?identifier={system}|")}
        found = []
        for one in await resources(self.world, f"{resource_type}?identifier={system}|"):
            subject = one["subject"][0] if isinstance(one["subject"], list) else one["subject"]
            found.append(f"{numbers(one)} of {number_of(people[subject['reference']])}")
        return sorted(found)


def number_of(patient: Json) -> str:
    """The first number in use."""
    return next(str(one["value"]) for one in patient["identifier"] if one.get("use") != "old")
