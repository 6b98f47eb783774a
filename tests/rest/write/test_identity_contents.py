"""One number for several things inside of messages: each stays what it is."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

from ipf.ports import Json
from tests.corpus import samples
from tests.rest.world import OnMemory, Suite, World
from tests.rest.write.messages import kinds, message, resources, store

PID = "PID|||1^^^B^MR||Holt^Carl"


def obx(code: str, value: str, number: str = "7^LAB", sub_id: str = "", status: str = "F") -> str:
    """A result with OBX-21."""
    return f"OBX|1|NM|{code}|{sub_id}|{value}|mmol/L|||||{status}||||||||||{number}"


def oru(filler: str, *results: str, person: str = PID) -> str:
    """Results of an order."""
    return message("ORU^R01", person, f"OBR|1||{filler}|T^Test|||20260101||||||||||||||||||F", *results)


def specimens(*kinds_of_specimen: str) -> str:
    """Specimens with one SPM-2."""
    spm = [f"SPM|{place}|S1^P&S1^F||{kind}" for place, kind in enumerate(kinds_of_specimen, 1)]
    return message("OML^O21", PID, "ORC|NW|P1", "OBR|1|P1||T^Test", *spm)


def kin(*names: str) -> str:
    """Next of kin with one NK1-33."""
    nk1 = [f"NK1|{place}|{name}|FAM|||||||||||||||||||||||||||||77^^^B^XX" for place, name in enumerate(names, 1)]
    return message("ADT^A08", "EVN||20260101", PID, *nk1)


def vaccinations(*codes: str) -> str:
    """Vaccinations under one ORC-3."""
    groups = [f"ORC|RE||V1\nRXA|0|1|20260101||{code}|999" for code in codes]
    return message("VXU^V04", PID, *"\n".join(groups).split("\n"))


def codes(concept: Json) -> str:
    """The first code of a CodeableConcept, else its text."""
    return concept["coding"][0].get("code", "") if concept.get("coding") else concept.get("text", "")


def told(resource: Json) -> str:
    """What tells a resource from others of its number."""
    if resource["resourceType"] == "RelatedPerson":
        return " ".join([*resource["name"][0].get("given", ()), resource["name"][0].get("family", "")])
    return codes(resource.get("code") or resource.get("type") or resource.get("vaccineCode") or {})


K, NA, CL = "2823-3^Potassium^LN", "2951-2^Sodium^LN", "2075-0^Chloride^LN"
# The messages that make several things of one number: the type, the maker, three contents, and what tells them apart.
KINDS: list[tuple[str, Callable[..., str], tuple[str, str, str], tuple[str, str, str]]] = [
    ("Observation", lambda *of: oru("F1", *(obx(one, "5") for one in of)), (K, NA, CL), ("2823-3", "2951-2", "2075-0")),
    ("Specimen", specimens, ("BLD^Blood^HL70487", "UR^Urine^HL70487", "SER^Serum^HL70487"), ("BLD", "UR", "SER")),
    ("RelatedPerson", kin, ("Holt^Ruth", "Holt^Carl", "Lund^Eva"), ("Ruth Holt", "Carl Holt", "Eva Lund")),
    ("Immunization", vaccinations, ("08^HepB^CVX", "20^DTaP^CVX", "03^MMR^CVX"), ("08", "20", "03")),
]  # fmt: skip


class ContentSuite(Suite):
    """From the message to the stored resources."""

    world: World

    async def told(self, resource_type: str) -> list[str]:
        """What the stored resources of a type are of."""
        return sorted([told(one) for one in await resources(self.world, resource_type)])

    async def test_one_number_for_several_things(self) -> None:
        """In one message, in several, in any order, and all of it again: each is stored once, and nothing is lost."""
        for resource_type, make, contents, names in KINDS:
            for chosen in permutations(contents):
                sequences = ([make(*chosen)], [make(one) for one in chosen], [make(chosen[0]), make(*chosen[1:])])
                for texts in sequences:
                    with self.subTest(resource_type, chosen=chosen):
                        await self.renew()
                        again = [make(one) for one in chosen]
                        results = await store(self.world, *texts, *texts, *again, make(*chosen[::-1]))
                        self.assertEqual(set(kinds(results)), {"ok"})
                        self.assertEqual(await self.told(resource_type), sorted(names))

    async def test_a_later_order_does_not_overwrite(self) -> None:
        """Sodium of a later order: potassium stays as the older report shows it, and a warning says why."""
        results = await store(self.world, oru("F1", obx(K, "5")), oru("F2", obx(NA, "140")))
        (warning,) = [text for kind, text in results[1].warnings if kind == "Observation"]
        self.assertIn("the content contradicts; a new one is made", warning)
        found = {codes(one["code"]): one for one in await resources(self.world, "Observation")}
        self.assertEqual(
            {code: one["valueQuantity"]["value"] for code, one in found.items()}, {"2823-3": 5, "2951-2": 140}
        )
        self.assertEqual({one["meta"]["versionId"] for one in found.values()}, {"1"})
        for report in await resources(self.world, "DiagnosticReport"):
            (seen,) = report["result"]
            code = "2823-3" if any(one["value"] == "F1" for one in report["identifier"]) else "2951-2"
            self.assertEqual(seen["reference"], f"Observation/{found[code]['id']}")

    async def test_neighbours_of_a_result(self) -> None:
        """A stored result, then another one with the same OBX-21: how many there are."""
        for what, first, second, count in (
            ("the same", obx(K, "5"), obx(K, "5"), 1),
            ("a correction", obx(K, "5"), obx(K, "6", status="C"), 1),
            ("another code", obx(K, "5"), obx(NA, "6"), 2),
            ("another number", obx(K, "5"), obx(K, "6", "8^LAB"), 2),
            ("another authority", obx(K, "5"), obx(K, "6", "7^XRAY"), 2),
            ("another sub-ID", obx(K, "5", sub_id="1"), obx(K, "6", sub_id="2"), 2),
            ("the same sub-ID", obx(K, "5", sub_id="1"), obx(K, "6", sub_id="1"), 1),
            ("a sub-ID on one side", obx(K, "5", sub_id="1"), obx(K, "6"), 1),
            ("a code of another system with the same name", obx(K, "5"), obx("KAL^POTASSIUM^L", "6"), 1),
            ("a code of another system with another name", obx(K, "5"), obx("NAT^Sodium^L", "6"), 2),
            ("a second code", obx(K, "5"), obx("KAL^Kalium^L^2823-3^Potassium^LN", "6"), 1),
            ("the same name of another code", obx("A^Culture^L", "5"), obx("B^Culture^L", "6"), 2),
            ("no code, the same text", obx("^Potassium", "5"), obx("^POTASSIUM", "6"), 1),
            ("no code, another text", obx("^Potassium", "5"), obx("^Sodium", "6"), 2),
        ):
            with self.subTest(what):
                await self.renew()
                results = await store(self.world, oru("F1", first), oru("F1", second))
                self.assertEqual(kinds(results), ["ok", "ok"])
                self.assertEqual(len(await resources(self.world, "Observation")), count)
                await self.renew()
                await store(self.world, oru("F1", first, second))
                self.assertEqual(len(await resources(self.world, "Observation")), count)

    async def test_of_another_patient(self) -> None:
        """The same test under the number is a conflict, as before; nothing changes its patient."""
        other = PID.replace("1^^^B", "2^^^B")
        results = await store(self.world, oru("F1", obx(K, "5")), oru("F2", obx(K, "6"), person=other))
        self.assertEqual(kinds(results), ["ok", "subject"])

    async def renew(self) -> None:
        """An empty store."""
        raise NotImplementedError


class ContentTests(ContentSuite, OnMemory):
    async def renew(self) -> None:
        await self.setUp()

    async def test_for_another_fhir_server(self) -> None:
        """The conditions of several things of one number differ."""
        for resource_type, make, contents, _ in KINDS:
            made: Any = samples.library().transform_message(samples.parse(make(*contents)))
            urls = [one["request"]["url"] for one in made["entry"] if one["resource"]["resourceType"] == resource_type]
            self.assertEqual((len(urls), len(set(urls))), (3, 3), urls)
