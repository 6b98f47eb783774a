"""The contract of `ports.AuditStore`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from twisted.trial.unittest import TestCase

from ipf.ports.audit.records import ADMIN, FHIR, Audit, AuditContext, AuditFilter, AuditStore, millisecond_of
from ipf.ports.messages.mapping import Origin

if TYPE_CHECKING:
    Suite = TestCase
else:
    Suite = object

START = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)


CONTEXT = AuditContext(
    "default", FHIR, "read", "R", 0, 200, "client-a", "Lab client", "https://idp.example", "Practitioner/7", "192.0.2.1"
)


def audit(number: int, **changes: Any) -> Audit:
    """Record `number`: a second after the one before.  `changes`: fields of its own and of its context."""
    context = CONTEXT._replace(**{name: changes.pop(name) for name in AuditContext._fields if name in changes})
    made = Audit(
        context, millisecond_of(START + timedelta(seconds=number)), f"7000-8000-{number:012x}", 12,
        f"0190f7a4-2b6e-7cc0-8a11-{number:012x}", "Patient/1", ("Patient/1/_history/2",), ("Patient/1",),
    )  # fmt: skip
    return made._replace(**changes)


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

    async def test_purpose_and_request_id_come_back(self) -> None:
        purpose = ("http://terminology.hl7.org/CodeSystem/v3-ActReason|TREAT", 'urn:x|"{a,b}')
        made = [audit(2, purpose=purpose, request_id="r-1"), audit(1, purpose=purpose[:1]), audit(0, request_id='"')]
        await self.trail.append(made)
        self.assertEqual(await self.trail.find("default", AuditFilter(), 10), made)

    async def test_a_repeat_changes_nothing(self) -> None:
        await self.trail.append([audit(1)])
        await self.trail.append([audit(1, agent="another")])
        both = [audit(2), audit(4, surface=ADMIN), audit(3, tenant="other"), audit(5)]
        for _ in range(2):
            await self.trail.append(both)
        self.assertEqual(await self.ids(AuditFilter()), [5, 4, 2, 1])
        self.assertEqual(await self.trail.count("default", AuditFilter()), 4)
        self.assertEqual((await self.trail.find("default", AuditFilter(), 10))[3].context.agent, "client-a")

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

    async def test_records_of_several_writers_are_put_in_order(self) -> None:
        """Batches whose records alternate in time."""
        numbers = list(range(1, 701))
        for part in (numbers[::2], numbers[1::2]):
            await self.trail.append([audit(number) for number in reversed(part)])
        every = AuditFilter(keys=(("e:Patient/1",),))
        self.assertEqual(await self.ids(every, limit=1000), numbers[::-1])
        rising = await self.trail.find("default", every, 1000, oldest_first=True)
        self.assertEqual([one.id for one in rising], [audit(number).id for number in numbers])
        self.assertEqual(await self.trail.count("default", AuditFilter()), 700)
        total, page = await self.trail.page(None, every, 3, 500)
        self.assertEqual((total, page), (700, [audit(200), audit(199), audit(198)]))
        for after in (audit(1).id, audit(333).id, audit(700).id):
            behind = await self.trail.find("default", AuditFilter(), 2, after)
            self.assertEqual([one.id for one in behind], sorted(one.id for one in rising if one.id < after)[:-3:-1])

    async def test_times_within_a_batch(self) -> None:
        """Bounds are exact to the millisecond, with and without other filters; totals too."""
        start_ms = millisecond_of(START)
        await self.trail.append([
            audit(0, at=start_ms + number * 250, id_suffix=f"7000-8000-{number:012x}", outcome=number % 2 * 4)
            for number in range(100)
        ])  # fmt: skip
        for since, until, first, last in (
            (2000, 4000, 8, 16), (2001, 3999, 9, 15), (0, 24_750, 0, 99), (2000.5, 4000.5, 9, 16), (9000, 8000, 1, 0),
            (-5000, -1, 1, 0),
        ):  # fmt: skip
            begin, end = START + timedelta(milliseconds=since), START + timedelta(milliseconds=until)
            expected = list(range(last, first - 1, -1))
            for outcomes in (None, frozenset([4]), frozenset([0, 4])):
                wanted = AuditFilter(since=begin, until=end, outcomes=outcomes)
                numbers = [one for one in expected if outcomes is None or one % 2 * 4 in outcomes]
                self.assertEqual(await self.ids(wanted, limit=200), numbers, (since, until, outcomes))
                self.assertEqual(await self.trail.count("default", wanted), len(numbers), (since, until, outcomes))

    async def test_correlation_ids(self) -> None:
        """Made by us at the time of the record, or long before, or by a caller."""
        at = millisecond_of(START)
        head = f"{at:012x}"
        ids = (f"{head[:8]}-{head[8:]}-7abc-8a11-000000000001", "0190f7a4-2b6e-7cc0-8a11-000000000002",
               "11111111-2222-4333-8444-555555555555", "not an id at all 7", "")  # fmt: skip
        await self.trail.append([audit(number, at=at + 5, correlation_id=one) for number, one in enumerate(ids)])
        for number, one in enumerate(ids[:-1]):
            wanted = AuditFilter(keys=((f"c:{one}", "e:Basic/none"),))
            self.assertEqual((await self.ids(wanted), await self.trail.count("default", wanted)), ([number], 1), one)
        self.assertEqual(await self.ids(AuditFilter(keys=(("c:0190f7a4-2b6e-7cc0-8a11-000000000003",),))), [])

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
        for number in range(6):
            await self.trail.append([audit(number)])
        before = START + timedelta(seconds=4)
        self.assertEqual([await self.trail.purge(before, 3) for _ in range(3)], [3, 1, 0])
        self.assertEqual(await self.ids(AuditFilter()), [5, 4])
