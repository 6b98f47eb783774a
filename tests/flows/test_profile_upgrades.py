"""A profile is installed, upgraded, broken and rolled back while its sender goes on sending.

Each version of the profile writes its number in three ways: in the map, in a second map that the first one calls, and
in a table.  So a Patient tells which version converted it, and whether that was one version as a whole.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import loads
from tests.event_loop import LIMIT, run
from tests.faults.feed import Feed
from tests.faults.scenario import scratch
from tests.flows.test_end_to_end import answer_to
from tests.flows.test_mapping import Running
from tests.flows.test_profiles import PROFILES, framed
from tests.traffic.psql import psql
from tests.vendor_profiles.samples import message, small, tar
from tests.waiting import free_port, until

GROUP = "flows"
FIRST = """
/// url = "urn:test:acme:ADT_A04"
imports "urn:test:acme:*"
uses "http://hl7.org/fhir/StructureDefinition/Bundle" alias Bundle as target
group Acme(source src : ADT_A04, target bundle : Bundle) {{
  src.PID as pid -> bundle.entry as e, e.resource = create('Patient') as patient then Second(pid, patient) {{
    pid.PID_3 as cx -> patient.identifier as id, id.system = 'urn:upgrade:{0}' then {{ cx.CX_1 as v -> id.value = v; }};
    pid.PID_8 as sex -> patient.maritalStatus as m, m.coding = translate(sex, 'urn:test:acme:sex', 'Coding');
  }};
}}
"""
SECOND = """
/// url = "urn:test:acme:second"
group Second(source pid : PID, target patient : Patient) {{ pid -> patient.name as n, n.text = 'version {0}'; }}
"""
TABLE = """{{"resourceType": "ConceptMap", "url": "urn:test:acme:sex", "group": [{{"target": "urn:table:{0}", "element":
  [{{"code": "W", "target": [{{"code": "w", "equivalence": "equal"}}]}}]}}]}}"""


def version_of(patient: dict[str, Any]) -> set[str]:
    """The versions that wrote this Patient."""
    return {
        patient["identifier"][0]["system"].removeprefix("urn:upgrade:"),
        patient["name"][0]["text"].removeprefix("version "),
        patient["maritalStatus"]["coding"][0]["system"].removeprefix("urn:table:"),
    }


class ProfileUpgradeTests(TestCase):
    timeout = LIMIT  # the feed goes on through each upgrade

    def test_under_a_feed(self) -> None:
        """Every message that was acknowledged is converted once, by one version as a whole."""
        run(self._flow())

    def archive(self, version: str, **changes: str) -> bytes:
        """The profile in a version; `changes`: by the name of the file in `maps/`."""
        made = small(version=version, port=self.port)
        made |= {"maps/a04.fml": FIRST.format(version), "maps/second.fml": SECOND.format(version)}
        made |= {"maps/sex.json": TABLE.format(version), "tests/a04.json": '{"resourceType": "Patient"}'}
        return tar(made | {f"maps/{name}.fml": text for name, text in changes.items()})

    async def _flow(self) -> None:
        folder = scratch()
        self.port, self.sent = free_port(), 0
        self.sending = True
        try:
            async with Running(IPF_PROFILE_DIR=str(folder), IPF_WORKER_PROCESSES="1") as self.running:
                others = Feed(self.running.service.mllp_port, senders=1)
                others.start()
                await self._install("1", self.archive("1"))
                sender = asyncio.create_task(self._send())
                await self._changes()
                self.sending = False
                await sender
                await others.stop()
                self.assertEqual(set(others.codes), {"AA"})
                await self._reconcile()
        finally:
            self.sending = False
            shutil.rmtree(folder, ignore_errors=True)

    async def _send(self) -> None:
        """One message after the other; each is acknowledged."""
        while self.sending:
            name = f"F{self.sent}"
            answer = await answer_to(self.port, framed(message(name, name)))
            self.assertEqual(answer[1], f"MSA|AA|{name}".encode())
            self.sent += 1

    async def _converts(self, version: str) -> None:
        """Until a message was converted by this version that was not before; a converter reads it within moments."""
        before = self._count(version)
        await until(lambda: self._count(version) != before)

    def _count(self, version: str) -> int:
        return sum(1 for one in self._patients() if version in version_of(one))

    async def _install(self, version: str, archive: bytes, expected: int = 200) -> Any:
        path = f"{PROFILES}/install?file=acme.tar.gz"
        status, body = await self.running.http("POST", path, archive, {"Content-Type": "application/x-gtar"})
        self.assertEqual(status, expected, body)
        await self._in_use(version)
        return body

    async def _in_use(self, version: str) -> None:
        _, body = await self.running.http("GET", PROFILES)
        self.assertEqual([one["profile"]["version"] for one in body["loaded"]], [version])

    async def _changes(self) -> None:
        await self._converts("1")
        await self._install("2", self.archive("2"))
        await self._converts("2")
        broken = {"second": SECOND.format(3).replace("group Second", "group Other")}
        for changes, text in (({"a04": "map"}, "maps/a04.fml"), (broken, "Second")):
            refused = await self._install("2", self.archive("3", **changes), 422)
            self.assertIn(text, json.dumps(refused["problems"]))
            await self._converts("2")
        for _ in range(2):
            await self._install("4", self.archive("4"))
            await self._converts("4")
            status, _ = await self.running.http("POST", f"{PROFILES}/rollback?file=acme.tar.gz")
            self.assertEqual(status, 200)
            await self._in_use("2")
            await self._converts("2")
        await self._install("5", self.archive("5"))
        await self._converts("5")

    async def _reconcile(self) -> None:
        """As many Patients as acknowledgements, none of two versions, none of one that was refused."""
        done = "/admin/messages?tenant=default&message_type=ADT_A04&limit=1"
        await self.running.until(f"{done}&status=DELIVERED", lambda body: body["total"] >= self.sent)
        _, body = await self.running.http("GET", done)
        self.assertEqual(body["total"], self.sent)
        found = {one["identifier"][0]["value"]: version_of(one) for one in self._patients()}
        self.assertEqual(set(found), {f"F{number}" for number in range(self.sent)})
        self.assertEqual([one for one in found.values() if len(one) != 1], [])
        versions = {version for one in found.values() for version in one}
        self.assertEqual(versions, {"1", "2", "4", "5"})

    def _patients(self) -> list[dict[str, Any]]:
        """Content of every Patient of the vendor."""
        query = (
            "SELECT v.body FROM resources r JOIN resource_versions v USING (rid, version_id)"
            " WHERE r.resource_type = 'Patient' ORDER BY r.rid"
        )
        data = Path(self.running.service.environment["IPF_DATA_DIR"])
        found = [loads(row.encode()) for row in psql(data / "postgres", query, "fhir").splitlines()]
        return [one for one in found if one["identifier"][0].get("system", "").startswith("urn:upgrade:")]
