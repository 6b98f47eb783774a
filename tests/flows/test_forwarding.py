"""Received messages are sent on to two systems: one refuses a message, the other is away at first."""

from __future__ import annotations

from typing import Any

from ipf.hl7.header import scan_header
from tests.flows.engine import EngineTestCase, from_sender
from tests.flows.far_ends import Receiver
from tests.wire.admin.operators import check

FAMILY = "engine"
IDS = [f"M{number}" for number in range(12)]


class ForwardingFlowTests(EngineTestCase):
    def receiver(self, number: int, refused: str = "") -> Receiver:
        made = Receiver(self.engine.destinations[number], 0, refused)
        self.addCleanup(made.stop)
        return made

    def shown(self) -> dict[str, Any]:
        status, body = self.engine.get("/admin/destinations")
        check("GET", "/admin/destinations", status, body)
        return {one["name"]: one for one in body["items"]}

    def resume(self, name: str) -> None:
        """Send now: after a failure it waits."""
        self.ask("POST", f"/admin/destinations/{name}/resume")

    def is_late(self) -> bool:
        """Try once more; whether it has failed often enough."""
        self.resume("archive")
        return bool(self.ask("GET", "/actuator/health")["components"]["forwarding"]["status"] == "DOWN")

    def test_each_receiver_gets_everything_in_order(self) -> None:
        self.send(from_sender("FORWARDED", IDS[0], "FWD1"))
        self.wait(self.is_late, "health says that nobody answers")
        registry = self.receiver(0, refused="M7")
        self.resume("registry")
        self.send(*(from_sender("FORWARDED", id, "FWD1") for id in IDS[1:]))
        self.wait(lambda: len(registry.taken) == len(IDS) - 1, "the registry has all but one")
        self.assertEqual(registry.taken, [one for one in IDS if one != "M7"])
        self.assertEqual(self.shown()["archive"]["sent"], 0)
        archive = self.receiver(1)
        self.resume("archive")
        self.wait(lambda: len(archive.taken) == len(IDS), "the archive has all")
        self.assertEqual(archive.taken, IDS)
        self.assertEqual({scan_header(one).field(5) for one in archive.messages}, {"ARCHIVE"})
        self.check_the_ledger(registry)

    def check_the_ledger(self, registry: Receiver) -> None:
        """One dead letter, which an operator sends again."""
        self.wait(lambda: all(one["pending"] == 0 for one in self.shown().values()), "nothing is left")
        counts = {name: (one["sent"], one["dead_letters"]) for name, one in self.shown().items()}
        self.assertEqual(counts, {"registry": (len(IDS) - 1, 1), "archive": (len(IDS), 0)})
        status, dead = self.engine.get("/admin/destinations/registry/messages?status=DEAD_LETTER")
        check("GET", "/admin/destinations/registry/messages", status, dead)
        self.assertEqual([(one["source_id"], one["code"]) for one in dead["items"]], [("M7", "AR")])
        registry.refused = ""
        self.assertEqual(self.ask("POST", "/admin/destinations/registry/retry"), {"retried": 1})
        self.wait(lambda: registry.taken[-1] == "M7", "M7 is sent again")
