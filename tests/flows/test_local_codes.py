"""From the socket to the stored resource: a code that HL7's table does not have, and what an operator answers."""

from __future__ import annotations

from typing import Any

from tests.flows.engine import EngineTestCase

FAMILY = "engine"

TABLE = "http://terminology.hl7.org/CodeSystem/v2-0007"
SENDER = "LOCALCODES"


def admission(control_id: str, patient: str, kind: str) -> bytes:
    """An admission with an admission type (PV1-4)."""
    return (
        f"MSH|^~\\&|{SENDER}|GENERAL|IPF|IPF|20260301||ADT^A01^ADT_A01|{control_id}|P|2.5.1\r"
        f"EVN|A01|20260301\rPID|1||{patient}^^^GENERAL^MR||Person^Given\rPV1|1|I||{kind}{'|' * 15}V{patient}\r"
    ).encode()


class LocalCodeTests(EngineTestCase):
    def kind(self, patient: str, control_id: str, sent: str) -> Any:
        """The type of the stored Encounter."""
        self.send(admission(control_id, patient, sent))
        self.row(SENDER, control_id, "DELIVERED")
        (encounter,) = self.found(f"Encounter?identifier=V{patient}")
        return encounter["type"][0]

    def test_local_codes(self) -> None:
        """It has no system, and is asked once; after the answer it has what the operator said."""
        known = self.kind("LOCAL1", "L1", "E")
        self.assertEqual(known["coding"], [{"system": TABLE, "code": "E"}])
        local = self.kind("LOCAL2", "L2", "QUICK^Quick admission")
        coding = {"code": "QUICK", "display": "Quick admission"}
        self.assertEqual(local, {"coding": [coding], "text": "Quick admission"})
        codes = self.ask("GET", f"/admin/unmapped-codes?source_system={SENDER}")["items"]
        asked = [one for one in codes if one["concept_map"] == TABLE]
        self.assertEqual([(one["code"], one["messages"]) for one in asked], [("QUICK", 1)])
        answer = {"system": TABLE, "code": "E", "display": "Emergency"}
        self.ask("POST", f"/admin/unmapped-codes/{asked[0]['id']}/map", answer)
        self.ask("POST", f"/admin/unmapped-codes/{asked[0]['id']}/requeue")

        def converted() -> Any:
            (encounter,) = self.found("Encounter?identifier=VLOCAL2")
            return encounter["type"] == [{"coding": [answer, coding]}] and encounter

        self.wait(converted, "the message is converted again")
