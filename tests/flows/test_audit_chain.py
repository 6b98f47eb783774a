"""Tamper evidence end to end: a service writes, somebody changes its database, an export is verified offline."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests.event_loop import run
from tests.faults.scenario import Scenario
from tests.flows.test_cli import ipfctl
from tests.waiting import until

GROUP = "flows"
WRITES = 20
WAITING = "SELECT count(*) FROM audit_unchained"
ONE = "SELECT id FROM audit_records WHERE interaction = 'create' ORDER BY recorded_at DESC LIMIT 1"


class AuditChainFlow(TestCase):
    """A run."""

    def test_a_changed_record_is_found(self) -> None:
        """Write, export, verify; then the same after a change by hand."""
        run(self._flow())

    async def _flow(self) -> None:
        async with Scenario() as scenario:
            service, folder = scenario.service, scenario.folder
            self.assertEqual(stat.S_IMODE((service.folder / "data/audit-key.pem").stat().st_mode), 0o600)
            for number in range(WRITES):
                body = {"resourceType": "Basic", "code": {"text": str(number)}}
                status, _ = await asyncio.to_thread(service.request, "POST", "/fhir/Basic", body)
                self.assertEqual(status, 201)
            ended, text = await ipfctl(service.base_url, "audit", "key")
            self.assertEqual(ended, 0, text)
            key = folder / "key.pub"
            key.write_text(text)
            await self._chained(scenario)
            ended, said = await self._verified(service.base_url, folder / "intact.ndjson", key)
            self.assertEqual((ended, "OK: nothing was changed" in said), (0, True), said)
            changed = scenario.psql(ONE, "fhir").strip()
            scenario.psql(f"UPDATE audit_records SET agent = 'nobody' WHERE id = '{changed}'", "fhir")
            ended, said = await self._verified(service.base_url, folder / "changed.ndjson", key)
            self.assertEqual((ended, f"CONTENT | record {changed}" in said), (1, True), said)
            ended, said = await ipfctl(service.base_url, "audit", "heads")
            self.assertEqual((ended, "hour" in said), (0, True), said)

    async def _chained(self, scenario: Scenario) -> None:
        """Wait until all records of the writes are in the chain."""
        await until(lambda: scenario.psql(WAITING, "fhir").strip() == "0", "all records are in the chain")

    async def _verified(self, base: str, path: Path, key: Path) -> tuple[int | None, str]:
        """Export to a file, and check it."""
        ended, said = await ipfctl(base, "audit", "export", "-o", str(path))
        self.assertEqual(ended, 0, said)
        return await ipfctl("http://127.0.0.1:1", "audit", "verify", str(path), "--key", str(key))
