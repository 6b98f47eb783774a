"""From the socket to the stored resource: the zone of a sender."""

from __future__ import annotations

from tests.flows.engine import EngineTestCase

FAMILY = "engine"


class ZoneTests(EngineTestCase):
    def test_zone_of_the_sender(self) -> None:
        """MSH-7 first, then the vendor profile of the sender, then that of the installation (UTC)."""
        for number, (place, sent, expected) in enumerate(
            (
                ("DENVER", "20260701", "2026-07-01T12:00:00-06:00"),
                ("DENVER", "20260701120000+0200", "2026-07-01T12:00:00+02:00"),
                ("ELSEWHERE", "20260701", "2026-07-01T12:00:00Z"),
            )
        ):
            message = (
                f"MSH|^~\\&|ZONES|{place}|||{sent}||ORU^R01^ORU_R01|Z{number}|P|2.5.1\rPID|1||ZONES{number}^^^B^MR||X\r"
                f"OBR|1||ZONES{number}|T^Test^L|||202607011200\r"
            )
            self.send(message.encode())
            self.row("ZONES", f"Z{number}", "DELIVERED")
            found = self.found(f"DiagnosticReport?patient.identifier=ZONES{number}")
            self.assertEqual([one["effectiveDateTime"] for one in found], [expected])
