"""One order number with several tests: each OBR is an order, and every later message finds its own."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.rest.identity.orders import with_details
from tests.corpus import samples
from tests.rest.world import OnMemory, World
from tests.rest.write.messages import kinds, message, resources, store

PID = "PID|||1^^^HOSP7^MR||Muster^Ada"


def orders(*lines: str, kind: str = "ORM^O01") -> str:
    """A message of orders: `NW P1 A F1` = event, placer's number, service, filler's number; `-` = not sent.

    `+` as the event: a further OBR of the ORC before.
    """
    segments = [PID]
    for place, line in enumerate(lines, 1):
        control, placer, service, filler = (part.replace("-", "") for part in [*line.split(), "-", "-"][:4])
        if control != "+":
            segments.append(f"ORC|{control}|{placer}|{filler}")
        if service:
            segments.append(f"OBR|{place}|{placer}|{filler}|{service}^Test {service}^L")
    return message(kind, *segments)


def result(placer: str, service: str, filler: str = "") -> str:
    """A result of one test."""
    obr = f"OBR|1|{placer}|{filler}|{service}^Test {service}^L|||20260101||||||||||||||||||F"
    return message("ORU^R01", PID, obr, "OBX|1|NM|GLU^Glucose||5|mg/dL|||||F")


SEQUENCES: list[tuple[str, list[str], list[str]]] = [
    ("two ORC of one number", [orders("NW P1 A", "NW P1 B")], ["A active", "B active"]),
    ("two OBR of one ORC", [orders("NW P1 A", "+ P1 B")], ["A active", "B active"]),
    ("a re-send", [orders("NW P1 A", "NW P1 B")] * 2, ["A active", "B active"]),
    ("in another order", [orders("NW P1 A", "NW P1 B"), orders("NW P1 B", "NW P1 A")], ["A active", "B active"]),
    ("one more test later", [orders("NW P1 A"), orders("NW P1 A", "NW P1 B")], ["A active", "B active"]),
    ("another test alone later", [orders("NW P1 A"), orders("NW P1 B")], ["A active", "B active"]),
    ("one of them is cancelled", [orders("NW P1 A", "NW P1 B"), orders("OC P1 B")], ["A active", "B revoked"]),
    ("the first is cancelled", [orders("NW P1 A", "NW P1 B"), orders("OC P1 A")], ["A revoked", "B active"]),
    ("the number is cancelled", [orders("NW P1 A", "NW P1 B"), orders("OC P1")], ["A revoked", "B revoked"]),
    ("a single order is cancelled", [orders("NW P1 A"), orders("OC P1")], ["A revoked"]),
    ("after a cancellation", [orders("NW P1 A", "NW P1 B"), orders("OC P1"), orders("NW P1 B")],
     ["A revoked", "B active"]),
    ("another code of the only order", [orders("NW P1 A"), orders("XO P1 X")], ["X active"]),
    ("which of two is changed is not said", [orders("NW P1 A", "NW P1 B"), orders("XO P1 X")],
     ["A active", "B active", "X active"]),
    ("the order comes after its cancellation", [orders("OC P1"), orders("NW P1 A", "NW P1 B")],
     ["A active", "B active"]),
    ("the same test twice", [orders("NW P1 A", "NW P1 A")] * 2, ["A active", "A active"]),
    ("told twice", [orders("NW P1 A", "SC P1 A")], ["A active"]),
    ("by the filler's number", [orders("NW - A F1", "NW - B F1"), orders("OC - B F1")], ["A active", "B revoked"]),
    ("the filler's number tells twins apart", [orders("NW P1 A F1", "NW P1 A F2"), orders("OC P1 A F2")],
     ["A active", "A revoked"]),
    ("another order of the only number, by its filler", [orders("NW P1 A F1"), orders("SC P1 X F2")],
     ["A active", "X unknown"]),
    ("laboratory orders", [orders("NW P1 A", "+ P1 B", kind="OML^O21"), orders("OC P1 B", kind="OML^O21")],
     ["A active", "B revoked"]),
]  # fmt: skip
"""Messages one after the other; service and status of the orders that are stored, sorted."""


class OrderTests(OnMemory):
    """Stores."""

    async def test_sequences(self) -> None:
        """Each row of the table in an empty store."""
        for name, texts, wanted in SEQUENCES:
            with self.subTest(sequence=name):
                self.world = World()
                self.assertEqual(set(kinds(await store(self.world, *texts))), {"ok"})
                held = await resources(self.world, "ServiceRequest")
                self.assertEqual(sorted(f"{code(one)} {one['status']}" for one in held), wanted)

    async def test_a_result_is_based_on_its_order(self) -> None:
        """By its service; a result with a code of its own on the only order, which it does not change."""
        self.world = World()
        await store(self.world, orders("NW P1 A", "NW P1 B"), orders("NW P2 A"))
        await store(self.world, result("P1", "B", "F1"), result("P1", "A", "F1"), result("P2", "LAB", "F2"))
        held = {f"ServiceRequest/{one['id']}": one for one in await resources(self.world, "ServiceRequest")}
        reports = await resources(self.world, "DiagnosticReport")
        found = {code(one): held[one["basedOn"][0]["reference"]] for one in reports}
        self.assertEqual({name: code(one) for name, one in found.items()}, {"A": "A", "B": "B", "LAB": "A"})
        self.assertEqual(found["LAB"]["identifier"][0]["value"], "P2")
        self.assertEqual(len(held), 3)
        self.assertEqual({one["meta"]["versionId"] for one in held.values()}, {"1"})

    async def test_results_without_their_orders(self) -> None:
        """Each has a request of its own, once; the orders that come later are the same ones."""
        self.world = World()
        await store(self.world, result("P1", "A", "F1"), result("P1", "B", "F1"), result("P1", "A", "F1"))
        before = {code(one): one["id"] for one in await resources(self.world, "ServiceRequest")}
        await store(self.world, orders("NW P1 A", "NW P1 B"))
        held = {code(one): one for one in await resources(self.world, "ServiceRequest")}
        self.assertEqual({name: one["id"] for name, one in held.items()}, before)
        self.assertEqual([one["status"] for one in held.values()], ["active", "active"])
        for report in await resources(self.world, "DiagnosticReport"):
            self.assertEqual(report["basedOn"], [{"reference": f"ServiceRequest/{before[code(report)]}"}])

    async def test_an_order_that_is_cancelled_by_number_keeps_its_details(self) -> None:
        """Code, notes and specimens stay, in each of the orders."""
        self.world = World()
        await store(self.world, orders("NW P1 A", "NW P1 B").replace("Test B^L", "Test B^L\nNTE|1||fasting"))
        await store(self.world, orders("OC P1"))
        held = {code(one): one for one in await resources(self.world, "ServiceRequest")}
        self.assertEqual([one["status"] for one in held.values()], ["revoked", "revoked"])
        self.assertEqual(held["B"]["note"], [{"text": "fasting"}])
        self.assertEqual({one["meta"]["versionId"] for one in held.values()}, {"2"})
        self.assertEqual([one["identifier"][0]["value"] for one in held.values()], ["P1", "P1"])


class DetailTests(TestCase):
    """An order of ORC alone."""

    def test_details(self) -> None:
        """What the message says counts; of a choice only one is kept."""
        stored: dict[str, Any] = {
            "resourceType": "ServiceRequest",
            "id": "1",
            "meta": {"versionId": "1"},
            "identifier": [{"system": "s", "value": "P1"}, {"system": "t", "value": "F1"}],
            "extension": [{"url": "u", "valueCode": "NW"}, {"url": "v", "valueCode": "x"}],
            "code": {"text": "A"},
            "occurrenceDateTime": "2026",
            "status": "active",
        }
        sent: dict[str, Any] = {
            "resourceType": "ServiceRequest",
            "identifier": [{"system": "s", "value": "P1"}],
            "extension": [{"url": "u", "valueCode": "CA"}],
            "occurrencePeriod": {"start": "2027"},
            "status": "revoked",
        }
        made = with_details(sent, stored)
        self.assertEqual(made["identifier"], stored["identifier"])
        self.assertEqual(made["extension"], [{"url": "u", "valueCode": "CA"}, {"url": "v", "valueCode": "x"}])
        self.assertEqual((made["code"], made["status"]), ({"text": "A"}, "revoked"))
        self.assertNotIn("occurrenceDateTime", made)
        self.assertNotIn("id", made)

    def test_another_server(self) -> None:
        """In the Bundle for another server the service stands beside the number, when the message has several."""
        made = samples.library().transform_message(samples.parse(orders("NW P1 A", "NW P1 B", "NW P2 A")))
        urls = [one["request"]["url"] for one in made["entry"] if one["resource"]["resourceType"] == "ServiceRequest"]
        self.assertEqual([one.rpartition("&code=")[2] for one in urls[:2]], ["A", "B"])
        self.assertNotIn("code=", urls[2])


def code(resource: dict[str, Any]) -> str:
    """The code of an order or report."""
    return str(resource["code"]["coding"][0]["code"])
