"""The delivery queue on PostgreSQL and in memory."""

from __future__ import annotations

from ipf.ports import DeliveryEnd
from ipf.ports.delivery import Settled
from ipf.store.deliveries.deliveries import PostgresDeliveryQueue
from ipf.store.resources.resources import PostgresFhirStore
from tests import postgres
from tests.contracts import deliveries as contract
from tests.contracts.audit import audit
from tests.contracts.clock import CLOCK
from tests.contracts.deliveries import attempt, soon
from tests.contracts.resources import gather_all
from tests.fakes import MemoryDeliveryQueue, MemoryFhirStore


class MemoryDeliveryQueueTest(contract.DeliveryQueueContract):
    """The fake."""

    def setUp(self) -> None:
        store = MemoryFhirStore()
        self.store, self.queue = store, MemoryDeliveryQueue(store, CLOCK)

    async def recorded(self) -> list[str]:
        return sorted(one.id for one in self.store.audits)


class PostgresDeliveryQueueTest(contract.DeliveryQueueContract):
    """The real one."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir", now=CLOCK)
        self.store, self.queue = PostgresFhirStore(self.database), PostgresDeliveryQueue(self.database)

    async def recorded(self) -> list[str]:
        return [id for (id,) in await self.database.many("SELECT id::text FROM audit_records ORDER BY id")]

    async def test_a_record_that_is_refused_holds_up_no_delivery(self) -> None:
        rid = await self.subscribe("s1")
        await self.fire(rid, "a")
        (lease,) = await self.lease()
        await self.database.many("DROP TABLE audit_unchained")
        settled = await self.queue.settle(lease, DeliveryEnd(1, [attempt(1)], audits=[audit(1)]))
        self.assertEqual((settled, await self.recorded()), (Settled(False), []))
        self.assertEqual(await self.lease(), [])

    async def test_leases_are_disjoint(self) -> None:
        """Four workers at once: each subscription has one holder."""
        for number in range(12):
            await self.fire(await self.subscribe(f"s{number}"), f"p{number}")
        leases = await gather_all([self.queue.lease(f"w{n}", 5, soon()) for n in range(4)])
        held = [lease.subscription_id for found in leases for lease in found]
        self.assertEqual(sorted(held), sorted({f"s{n}" for n in range(12)} & set(held)))
        self.assertEqual(len(held) + len(await self.lease()), 12)
