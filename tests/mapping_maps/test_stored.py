"""What the FHIR server holds after messages: merges, repeats, and who is linked to whom."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import loads
from tests.corpus import samples
from tests.rest.world import World

FAMILY = "maps"

HEAD = "MSH|^~\\&|A|B|||20260101||{}|{}|P|2.5.1\nEVN||20260101|||CLERK^Key^Board\n"
ADMIT = "PID|||{}^^^B^MR||{}^Ada||19710412|F\nPV1||I|W^1^{}||||||||||||||||{}"
MERGE = "PID|||1^^^B^MR||Marlowe^Ada||19710412|F\nMRG|2^^^B^MR||||||Marlow^Ada"


class StoredTests(TestCase):
    """Bundles of messages, sent one after the other as transactions."""

    async def setUp(self) -> None:
        """A server with nothing in it."""
        self.world = World()

    async def send(self, text: str) -> list[str]:
        """Store what a message becomes; the status of each entry."""
        made = samples.library().transform_message(samples.parse(text))
        answer = await self.world.send("POST", "", made, content_type="application/fhir+json")
        self.assertEqual(answer.status, 200, answer.body[:2000])
        self.world.pass_time()
        return [one["response"]["status"][:3] for one in loads(answer.body)["entry"]]

    async def found(self, search: str) -> list[dict[str, Any]]:
        """Resources that a search finds."""
        answer = await self.world.send("GET", search)
        return [one["resource"] for one in loads(answer.body).get("entry", ()) if one["search"]["mode"] == "match"]

    async def test_merge(self) -> None:
        """The prior patient stays, inactive and linked both ways; its visit goes on referring to it."""
        await self.send(HEAD.format("ADT^A01", 1) + ADMIT.format("1", "Marlowe", 1, "V1"))
        await self.send(HEAD.format("ADT^A01", 2) + ADMIT.format("2", "Marlow", 2, "V2"))
        before = {one["identifier"][0]["value"]: one["id"] for one in await self.found("Patient")}
        await self.send(HEAD.format("ADT^A40^ADT_A39", 3) + MERGE)
        patients = {one["identifier"][0]["value"]: one for one in await self.found("Patient")}
        self.assertEqual({number: one["id"] for number, one in patients.items()}, before)
        self.assertEqual(patients["1"]["link"], [link(before["2"], "replaces")])
        self.assertEqual(patients["2"]["link"], [link(before["1"], "replaced-by")])
        self.assertEqual((patients["1"]["active"], patients["2"]["active"]), (True, False))
        visits = await self.found("Encounter")
        self.assertEqual({one["subject"]["reference"] for one in visits}, {f"Patient/{one}" for one in before.values()})

    async def test_merge_of_one_that_was_never_told_of(self) -> None:
        """The prior patient is made, so that a message that comes later under its number finds the link."""
        await self.send(HEAD.format("ADT^A40^ADT_A39", 3) + MERGE)
        patients = {one["identifier"][0]["value"]: one for one in await self.found("Patient")}
        self.assertEqual(set(patients), {"1", "2"})

    async def test_change_of_a_number(self) -> None:
        """A47: one Patient before, after, under its new number, and when the message is converted again."""
        await self.send(HEAD.format("ADT^A01", 1) + ADMIT.format("2", "Marlow", 1, "V1"))
        (before,) = await self.found("Patient")
        change = HEAD.format("ADT^A47^ADT_A30", 2) + MERGE
        for text in (change, HEAD.format("ADT^A08", 3) + ADMIT.format("1", "Marlowe", 1, "V1"), change):
            await self.send(text)
            (patient,) = await self.found("Patient")
            self.assertEqual(patient["id"], before["id"])
            self.assertEqual(len(await self.found("Patient?identifier=urn:ipf:authority:B|1")), 1)
        (visit,) = await self.found("Encounter")
        self.assertEqual(visit["subject"]["reference"], f"Patient/{before['id']}")

    async def test_change_of_the_number_of_a_visit(self) -> None:
        """A50: one Encounter under its prior and its new number."""
        await self.send(HEAD.format("ADT^A01", 1) + ADMIT.format("1", "Marlowe", 1, "V9"))
        (before,) = await self.found("Encounter")
        moved = "PID|||1^^^B^MR\nMRG|1^^^B^MR||||V9\nPV1||I|W^1^1||||||||||||||||V1"
        for text in (
            HEAD.format("ADT^A50^ADT_A50", 2) + moved,
            HEAD.format("ADT^A08", 3) + ADMIT.format("1", "Marlowe", 1, "V1"),
        ):
            await self.send(text)
            (visit,) = await self.found("Encounter")
            self.assertEqual(visit["id"], before["id"])
        (patient,) = await self.found("Patient")
        self.assertEqual(patient["name"][0]["family"], "Marlowe")

    async def test_state_of_a_bed(self) -> None:
        """A20: the Location that a visit made; the next visit leaves the state as it is."""
        await self.send(HEAD.format("ADT^A01", 1) + ADMIT.format("1", "Marlowe", 7, "V1"))
        (before,) = await self.found("Location?name=7")
        await self.send(HEAD.format("ADT^A20^ADT_A20", 2) + "NPU|W^1^7|K")
        await self.send(HEAD.format("ADT^A01", 3) + ADMIT.format("2", "Rowe", 7, "V2"))
        (bed,) = await self.found("Location?name=7")
        self.assertEqual((bed["id"], bed["operationalStatus"]["code"]), (before["id"], "K"))
        self.assertEqual(bed["partOf"], before["partOf"])

    async def test_a_repeated_message_changes_nothing(self) -> None:
        """Header and provenance have ids made from the message: nothing gets a second version, none is added."""
        for name in ("a06_outpatient_to_inpatient", "a17_swap", "a40_merge", "a31_participations"):
            with self.subTest(sample=name):
                text = (samples.HERE / f"{name}.hl7").read_text(encoding="utf-8")
                await self.send(text)
                self.assertEqual(set(await self.send(text)), {"200"})
                self.assertEqual(len(await self.found("MessageHeader")), 1)
                for one in await self.found("Provenance"):
                    self.assertEqual(one["meta"]["versionId"], "1")
                self.world = World()

    async def test_all_samples_in_one_server(self) -> None:
        """No message makes two resources of what another one finds by one condition, whatever their order."""
        for name in (*samples.names(), *reversed(samples.names())):
            with self.subTest(sample=name):
                await self.send((samples.HERE / f"{name}.hl7").read_text(encoding="utf-8"))


def link(id: str, kind: str) -> dict[str, Any]:
    """A link between patients."""
    return {"other": {"reference": f"Patient/{id}"}, "type": kind}
