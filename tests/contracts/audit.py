"""What every `ports.AuditStore` must do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from twisted.trial.unittest import TestCase

from ipf.ports.audit import ADMIN, FHIR, Audit, AuditFilter, AuditStore
from ipf.ports.mapping import Origin

if TYPE_CHECKING:
    Suite = TestCase
else:
    Suite = object

START = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)


def audit(number: int, **changes: object) -> Audit:
    """Record `number`: a second after the one before."""
    moment = START + timedelta(seconds=number)
    milliseconds = f"{int(moment.timestamp() * 1000):012x}"
    id_ = f"{milliseconds[:8]}-{milliseconds[8:]}-7000-8000-{number:012x}"
    made = Audit(
        "default", id_, moment, 12, FHIR, "read", "R", 0, 200, "client-a", f"0190f7a4-2b6e-7cc0-8a11-{number:012x}",
        "Lab client", "https://idp.example", "Practitioner/7", "192.0.2.1", "Patient/1", ("Patient/1/_history/2",),
        ("Patient/1",),
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]  # fields by name


class AuditContract(Suite):
    """Joined with a case that sets `self.trail`."""

    trail: AuditStore

    async def ids(self, wanted: AuditFilter, tenant: str = "default", limit: int = 50) -> list[int]:
        """The numbers of the records found, in order."""
        return [int(one.id[-12:], 16) for one in await self.trail.find(tenant, wanted, limit)]

    async def test_a_record_comes_back_as_it_was(self) -> None:
        hostile = audit(
            1, agent="o'Neil\\ \u00e9\ud800"[:-1], target='x"\\u0000\n\x1f$1;--', entities=(), patients=(),
            user="", issuer="", agent_name="", address="", correlation_id="",
        )  # fmt: skip
        await self.trail.append([audit(2), hostile])
        self.assertEqual(await self.trail.find("default", AuditFilter(), 10), [audit(2), hostile])

    async def test_what_a_vendor_profile_adds_comes_back(self) -> None:
        origin = Origin("urn:vendor:acme", "REG", (("facility", 'GENERAL "1"'), ("ward", "4\u00e9")))
        await self.trail.append([audit(1, origin=origin), audit(2, origin=Origin("Acme", "REG"))])
        found = await self.trail.find("default", AuditFilter(), 10)
        self.assertEqual([one.origin for one in found], [Origin("Acme", "REG"), origin])

    async def test_a_repeat_changes_nothing(self) -> None:
        await self.trail.append([audit(1)])
        await self.trail.append([audit(1, agent="another"), audit(2)])
        self.assertEqual(await self.ids(AuditFilter()), [2, 1])
        self.assertEqual((await self.trail.find("default", AuditFilter(), 10))[1].agent, "client-a")

    async def test_nothing_is_nothing(self) -> None:
        await self.trail.append([])
        self.assertEqual(await self.ids(AuditFilter()), [])

    async def test_tenants_are_apart(self) -> None:
        await self.trail.append([audit(1), audit(2, tenant="other")])
        self.assertEqual(await self.ids(AuditFilter()), [1])
        self.assertEqual(await self.ids(AuditFilter(), "other"), [2])
        self.assertEqual(await self.ids(AuditFilter(), "nobody"), [])
        self.assertEqual((await self.trail.page(None, AuditFilter(), 10, 0))[0], 2)

    async def test_filters(self) -> None:
        await self.trail.append([
            audit(1),
            audit(2, surface=ADMIN, interaction="message-read", agent="admin", issuer="", user=""),
            audit(3, outcome=8, status=401, action="C", interaction="create", entities=("Observation/5/_history/1",)),
            audit(4, patients=("Patient/2", "Patient/3"), entities=("Observation/6",), user="Patient/9"),
        ])  # fmt: skip
        table = {
            "all": (AuditFilter(), [4, 3, 2, 1]),
            "fhir": (AuditFilter(surface=FHIR), [4, 3, 1]),
            "entity": (AuditFilter(keys=(("e:Observation/5",),)), [3]),
            "patient": (AuditFilter(keys=(("e:Patient/3",),)), [4]),
            "either": (AuditFilter(keys=(("e:Patient/3", "e:Observation/5"),)), [4, 3]),
            "both": (AuditFilter(keys=(("e:Patient/1",), ("e:Observation/5",))), [3]),
            "person": (AuditFilter(keys=(("a:Patient/9",),)), [4]),
            "client": (AuditFilter(keys=(("a:client-a\thttps://idp.example",),)), [4, 3, 1]),
            "correlation": (AuditFilter(keys=((f"c:0190f7a4-2b6e-7cc0-8a11-{2:012x}",),)), [2]),
            "since": (AuditFilter(since=START + timedelta(seconds=3)), [4, 3]),
            "until": (AuditFilter(until=START + timedelta(seconds=2)), [2, 1]),
            "agents": (AuditFilter(agents=frozenset(["admin", "x'y"])), [2]),
            "actions": (AuditFilter(actions=frozenset("CD")), [3]),
            "outcomes": (AuditFilter(outcomes=frozenset([4, 8])), [3]),
            "interactions": (AuditFilter(interactions=frozenset(["create", "message-read"])), [3, 2]),
            "ids": (AuditFilter(ids=frozenset([audit(1).id])), [1]),
            "none allowed": (AuditFilter(actions=frozenset()), []),
            "no id": (AuditFilter(ids=frozenset()), []),
        }
        for name, (wanted, numbers) in table.items():
            self.assertEqual(await self.ids(wanted), numbers, name)
            self.assertEqual(await self.trail.count("default", wanted), len(numbers), name)

    async def test_pages(self) -> None:
        await self.trail.append([audit(number) for number in range(1, 8)])
        self.assertEqual(await self.ids(AuditFilter(), limit=2), [7, 6])
        behind = await self.trail.find("default", AuditFilter(), 3, audit(6).id)
        self.assertEqual(behind, [audit(5), audit(4), audit(3)])
        rising = await self.trail.find("default", AuditFilter(), 3, audit(2).id, oldest_first=True)
        self.assertEqual(rising, [audit(3), audit(4), audit(5)])
        self.assertEqual(await self.trail.page("default", AuditFilter(), 3, 6), (7, [audit(1)]))
        self.assertEqual(await self.trail.page("default", AuditFilter(), 3, 9), (7, []))

    async def test_purge(self) -> None:
        await self.trail.append([audit(number) for number in range(6)])
        before = START + timedelta(seconds=4)
        self.assertEqual([await self.trail.purge(before, 3) for _ in range(3)], [3, 1, 0])
        self.assertEqual(await self.ids(AuditFilter()), [5, 4])
