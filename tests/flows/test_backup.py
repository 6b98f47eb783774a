"""`ipfctl backup` and `restore` with the real service: under load, into another installation, and what is refused."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.scenario import Scenario
from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE

GROUP = "flows"


async def ipfctl(service: ServiceProcess, *arguments: str) -> tuple[int, str]:
    """Exit status and output of `ipfctl` with the settings of a service."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ipf.cli", *arguments, env=service.environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE):
        output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


class BackupTests(TestCase):
    timeout = LIMIT  # a service under load, a backup, and a restored service

    def test_a_backup_under_load_has_every_acknowledged_message(self) -> None:
        run(self.backed_up_under_load())

    async def backed_up_under_load(self) -> None:
        async with Scenario(all_maps=True) as scenario:  # the backup has no folder of maps
            scenario.feed.start()
            await scenario.feed.until(100)
            folder = scenario.folder / "backup"
            before = dict(scenario.feed.accepted)
            status, output = await ipfctl(scenario.service, "backup", str(folder))
            self.assertEqual(status, 0, output)
            await scenario.feed.stop()
            manifest = json.loads((folder / "manifest.json").read_bytes())
            self.assertGreaterEqual(manifest["count"], len(before))
            self.assertLess(manifest["count"], len(scenario.feed.accepted))  # the load went on
            self.assertEqual({oct(path.stat().st_mode)[-3:] for path in folder.iterdir()}, {"600"})
            status, output = await ipfctl(scenario.service, "backup", "--verify", str(folder))
            self.assertEqual(status, 0, output)
            await self.refused_while_in_use(scenario.service, folder)

            scenario.service.stop()
            scenario.service = ServiceProcess(scenario.folder / "other", **scenario.chosen)
            scenario.service.folder.mkdir()
            scenario.feed.accepted = before
            await self.restored(scenario, folder, manifest["count"])
            await self.refusals(scenario, folder)

    async def refused_while_in_use(self, service: ServiceProcess, folder: Path) -> None:
        """The service still runs."""
        status, output = await ipfctl(service, "restore", str(folder), "--replace")
        self.assertEqual(status, 1)
        self.assertIn("is running on the data directory", output)

    async def restored(self, scenario: Scenario, folder: Path, count: int) -> None:
        """Another installation goes on from the point: no message is missing, none has its effects twice."""
        status, output = await ipfctl(scenario.service, "restore", str(folder))
        self.assertEqual(status, 0, output)
        scenario.service.start()
        await scenario.ready()
        await scenario.settled()
        self.assertEqual(scenario.broken_promises(), [])
        self.assertEqual(scenario.sql("ipf", "SELECT count(*) FROM message_bodies"), [[str(count)]])
        scenario.service.stop()

    async def refusals(self, scenario: Scenario, folder: Path) -> None:
        """The databases of `scenario` are not empty, and no service runs."""
        service = scenario.service
        status, output = await ipfctl(service, "restore", str(folder))
        self.assertEqual(status, 1)
        self.assertIn("is not empty", output)
        status, output = await ipfctl(service, "backup", str(folder))
        self.assertIn("is not empty: a backup needs a new folder", output)
        dump = folder / "fhir.dump"
        whole = dump.read_bytes()
        dump.write_bytes(whole[:-1000])
        status, output = await ipfctl(service, "restore", str(folder), "--replace")
        self.assertEqual(status, 1)
        self.assertIn(f"fhir.dump has {len(whole) - 1000} bytes, not {len(whole)}", output)
        await self.failed_half_way(service, folder, whole)
        dump.write_bytes(whole)
        await self.other_schemas(service, folder)
        status, output = await ipfctl(service, "restore", str(folder), "--replace")
        self.assertEqual(status, 0, output)

    async def other_schemas(self, service: ServiceProcess, folder: Path) -> None:
        """A backup of 0.1 that lacks migrations of it, and one of a later release."""
        path = folder / "manifest.json"
        manifest = path.read_bytes()
        for schema, said in ((41, "restore it with ipf 0.1, start that once, and back up again"), (999, "or later")):
            content = json.loads(manifest)
            content["databases"]["fhir"]["schema"] = schema
            path.write_text(json.dumps(content))
            status, output = await ipfctl(service, "restore", str(folder), "--replace")
            self.assertEqual(status, 1)
            self.assertIn(said, " ".join(output.split()))
        path.write_bytes(manifest)

    async def failed_half_way(self, service: ServiceProcess, folder: Path, whole: bytes) -> None:
        """A damaged dump whose digest fits: both databases are empty again, and an empty one can be restored into."""
        damaged = whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2)
        (folder / "fhir.dump").write_bytes(damaged)
        path = folder / "manifest.json"
        manifest = path.read_bytes()
        path.write_bytes(manifest.replace(hashlib.sha256(whole).hexdigest().encode(),
                                          hashlib.sha256(damaged).hexdigest().encode()))  # fmt: skip
        status, output = await ipfctl(service, "restore", str(folder), "--replace")
        self.assertEqual(status, 1)
        self.assertIn("pg_restore failed", output)
        self.assertIn("both databases are empty again", output)
        path.write_bytes(manifest)
