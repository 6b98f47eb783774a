"""Packages add to and replace the built-in definitions."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import loads
from ipf.fhir.model.packages import Packages
from ipf.ports import Json
from ipf.rest.write.conformance import Conformance
from tests.fhir.model.test_packages import archive
from tests.rest.world import World

US_CORE = "http://hl7.org/fhir/us/core/StructureDefinition/us-core-patient"
CORE = "http://hl7.org/fhir/StructureDefinition/"


def profile(url: str, name: str, path: str) -> Json:
    """A profile on Patient that requires one element; without a snapshot."""
    return {
        "resourceType": "StructureDefinition",
        "id": name,
        "url": url,
        "version": "9.0.0",
        "name": name,
        "status": "active",
        "kind": "resource",
        "abstract": False,
        "type": "Patient",
        "baseDefinition": CORE + "Patient",
        "derivation": "constraint",
        "differential": {"element": [{"id": path, "path": path, "min": 1}]},
    }


class PackageTests(TestCase):
    """A server with one package."""

    def setUp(self) -> None:
        folder = Path(self.mktemp())
        folder.mkdir()
        value_set = {
            "resourceType": "ValueSet",
            "id": "colours",
            "url": "http://x.test/ValueSet/colours",
            "status": "active",
            "compose": {"include": [{"system": "http://x.test/cs", "concept": [{"code": "red"}, {"code": "blue"}]}]},
        }
        files = {
            "package/StructureDefinition-us-core-patient.json": profile(US_CORE, "us-core-patient", "Patient.photo"),
            "package/StructureDefinition-own.json": profile("http://x.test/own", "own", "Patient.birthDate"),
            "package/ValueSet-colours.json": value_set,
        }
        archive(folder / "x.tgz", files)
        self.world = World()
        self.world.conformance = Conformance(lambda: Packages.load(folder), self.world.store, lambda: self.world.now)

    async def errors(self, url: str) -> list[str]:
        """The findings of `$validate` for an empty Patient."""
        answer = await self.world.send("POST", f"Patient/$validate?profile={url}", {"resourceType": "Patient"})
        return [one["diagnostics"] for one in loads(answer.body)["issue"] if one["severity"] == "error"]

    async def test_added(self) -> None:
        self.assertEqual(await self.errors("http://x.test/own"), ["Patient.birthDate is required"])
        found = loads((await self.world.send("GET", "StructureDefinition?url=http://x.test/own")).body)
        self.assertEqual((found["total"], found["entry"][0]["resource"]["id"]), (1, "own"))
        answer = await self.world.send("GET", "ValueSet/$expand?url=http://x.test/ValueSet/colours")
        self.assertEqual([one["code"] for one in loads(answer.body)["expansion"]["contains"]], ["red", "blue"])

    async def test_replaced(self) -> None:
        self.assertEqual(await self.errors(US_CORE), ["Patient.photo is required"])
        found = loads((await self.world.send("GET", f"StructureDefinition?url={US_CORE}")).body)
        self.assertEqual((found["total"], found["entry"][0]["resource"]["version"]), (1, "9.0.0"))
        read = loads((await self.world.send("GET", "StructureDefinition/us-core-patient")).body)
        self.assertEqual(read["version"], "9.0.0")
