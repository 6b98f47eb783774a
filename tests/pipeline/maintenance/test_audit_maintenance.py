"""Maintenance of the audit trail: months made ahead, retention."""

from __future__ import annotations

from datetime import datetime, timedelta

from twisted.trial.unittest import TestCase

from ipf.errors import StoreUnreachable
from ipf.pipeline.maintenance.audit_maintenance import AuditMaintenance
from tests.contracts.audit import audit
from tests.fakes.audit import MemoryAuditStore


class _Months(MemoryAuditStore):
    """Notes the months it is made ready for."""

    def __init__(self) -> None:
        super().__init__()
        self.months: list[str] = []

    async def ensure_month(self, moment: datetime) -> None:
        self.months.append(f"{moment:%Y-%m}")


class AuditMaintenanceTests(TestCase):
    def setUp(self) -> None:
        self.pauses: list[float] = []

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def test_months(self) -> None:
        """Partitions are made ahead, also where records are kept for ever."""
        store = _Months()
        await store.append([audit(1)])
        await AuditMaintenance(store, None, lambda: audit(1).recorded_at, self.pause).run()
        self.assertEqual(store.months, ["2026-01", "2026-03"])
        self.assertEqual((len(self.pauses), len(store.rows)), (0, 1))

    async def test_old_records_go_and_young_ones_stay(self) -> None:
        store = MemoryAuditStore()
        await store.append([audit(number) for number in range(10)])
        moment = audit(7).recorded_at + timedelta(days=30)
        await AuditMaintenance(store, 30, lambda: moment, self.pause).run()
        self.assertEqual(sorted(row.id for row in store.rows.values()), [audit(number).id for number in (7, 8, 9)])
        self.assertEqual(len(self.pauses), 1)

    async def test_a_store_that_is_away_is_no_failure(self) -> None:
        class Away(MemoryAuditStore):
            async def purge(self, before: datetime, limit: int) -> int:
                raise StoreUnreachable()

        await AuditMaintenance(Away(), 30, lambda: audit(1).recorded_at, self.pause).run()
        self.assertEqual(self.pauses, [])
