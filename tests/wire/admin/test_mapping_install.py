"""`POST /admin/mapping/install`: a map with a mistake is refused with its place, and nothing is installed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from treq.client import HTTPClient
from twisted.internet import reactor
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent, HTTPConnectionPool
from twisted.web.resource import Resource
from twisted.web.server import Site

from ipf.mapping.library.installation import Installation
from ipf.mapping.library.workbench import Workbench
from ipf.wire.admin import app as admin
from ipf.wire.admin.access import AdminAccess
from ipf.wire.admin.mapping import workbench as admin_workbench
from tests.fakes import MemoryInbox, MemoryUnmappedCodes
from tests.flows.test_mapping import MAP, maps_folder
from tests.mapping.library.test_installation import at_once, load
from tests.pipeline.test_worker import MemoryNotifier

FROM_PATIENT = """/// url = "urn:test:person"
uses "http://hl7.org/fhir/StructureDefinition/Patient" alias Patient as source
uses "http://hl7.org/fhir/StructureDefinition/Person" alias Person as target
group person(source src : Patient, target tgt : Person) {
  src.gender as g -> tgt.gender = g;
  src.name as n then { n.family as f -> tgt.name as t, t.family = f; };
  src.telecom as t where (use = 'home') -> tgt.active = true;
}
"""
# text of the map, what is there, the mistake, line and column, what the answer says
MISTAKES = [
    (FROM_PATIENT, "src.gender", "src.gendre", "5:3", "Patient has no element 'gendre'"),
    (FROM_PATIENT, "n.family", "n.familly", "6:24", "HumanName has no element 'familly'"),
    (FROM_PATIENT, "use = 'home'", "usee = 'home'", "7:3", "ContactPoint has no element 'usee'"),
    (FROM_PATIENT, "where (use", "check (usee", "7:3", "ContactPoint has no element 'usee'"),
    (FROM_PATIENT, "where (use = 'home')", "log (usee)", "7:3", "ContactPoint has no element 'usee'"),
    (FROM_PATIENT, "= true", "= src.aktive", "7:44", "Patient has no element 'aktive'"),
    (MAP, "pid.PID_8", "pid.PID_88", "8:5", "PID has 40 fields: there is no PID_88"),
    (MAP, "src.PID as", "src.PDI as", "6:3", "HL7 v2 has no segment or group 'PDI'"),
]


class InstallTests(TestCase):
    async def setUp(self) -> None:
        folder = maps_folder(Path(self.mktemp()))
        inbox = MemoryInbox()
        codes = MemoryUnmappedCodes(inbox)
        self.installation = Installation(lambda installed, fresh: load(installed, folder), codes, at_once)
        await self.installation.start()
        bench = Workbench(self.installation, inbox, at_once, lambda: datetime(2026, 3, 4, tzinfo=UTC))
        notifier, root = MemoryNotifier(), Resource()
        tables = [admin_workbench.routes(bench, notifier)]
        root.putChild(b"admin", admin.resource(AdminAccess("s3cret"), tables))
        port = reactor.listenTCP(0, Site(root), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.client = HTTPClient(Agent(reactor, pool=HTTPConnectionPool(reactor, persistent=False)))
        self.url = f"http://127.0.0.1:{port.getHost().port}/admin/mapping/install"

    async def install(self, text: str) -> tuple[int, Any]:
        """Status and body."""
        headers = {"Authorization": "Bearer s3cret", "Content-Type": "application/json"}
        body = json.dumps({"map": text}).encode()
        response = await self.client.request("POST", self.url, headers=headers, data=body, reactor=reactor)
        return response.code, json.loads(await response.content())

    async def test_names_that_a_source_does_not_have(self) -> None:
        before = self.installation.library
        for text, right, wrong, place, said in MISTAKES:
            self.assertIn(right, text)
            status, body = await self.install(text.replace(right, wrong, 1))
            self.assertEqual(status, 422, body)
            self.assertIn(f":{place}", json.dumps(body))
            self.assertIn(said, json.dumps(body))
        self.assertIs(self.installation.library, before)

    async def test_the_same_maps_without_a_mistake(self) -> None:
        for text in (FROM_PATIENT, MAP):
            status, body = await self.install(text)
            self.assertEqual(status, 200, body)
