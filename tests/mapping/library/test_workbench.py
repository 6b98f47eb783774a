"""A map is tried on a message and on those before, and installed; its text is shown as it was written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.fhir.validation.findings import ERROR, Finding
from ipf.mapping.library.installation import Installation
from ipf.mapping.library.maps import Library
from ipf.mapping.library.workbench import Workbench
from ipf.ports import InstalledMap, Json, Received
from tests.contracts.inbox import received
from tests.fakes import MemoryInbox, MemoryUnmappedCodes
from tests.flows.test_mapping import MAP, maps_folder
from tests.mapping.library.test_installation import at_once, load

NOW = datetime(2026, 3, 4, tzinfo=UTC)
URL = "urn:test:map:ADT_A01"
RAW = b"MSH|^~\\&|APP|F|||2026||ADT^A01^ADT_A01|M1|P|2.5\rPID|1||P1|||||F|||||555\r"
COMMENTED = f"// why it is so\n{MAP}"


async def one_finding(tenant: str) -> Any:
    """A validation that finds one thing in every result."""

    def check(resource: Json) -> list[Finding]:
        return [Finding(ERROR, "invalid", "no good", "Bundle.entry[0].resource.gender")]

    return check


class WorkbenchTests(TestCase):
    async def setUp(self) -> None:
        self.maps = maps_folder(Path(self.mktemp()))
        (self.maps / "messages/ADT_A01.fml").write_text(COMMENTED)
        self.inbox = MemoryInbox()
        self.installation = Installation(self.build, MemoryUnmappedCodes(self.inbox), at_once)
        await self.installation.start()
        self.bench = Workbench(self.installation, self.inbox, at_once, lambda: NOW, self.maps, one_finding)

    def build(self, installed: Sequence[InstalledMap], fresh: bool) -> Library:
        """The library of the folder."""
        return load(installed, self.maps)

    async def test_a_text_with_a_mistake_names_its_place(self) -> None:
        found = await self.bench.attempt(MAP.replace("patient.gender", "patient.sex"), RAW, None)
        self.assertEqual((found["mistake"]["file"], found["mistake"]["line"]), ("candidate.fml", 8))
        self.assertNotIn("result", found)

    async def test_a_result_has_trace_and_findings(self) -> None:
        found = await self.bench.attempt(MAP, RAW, None)
        self.assertIsNone(found["mistake"])
        self.assertEqual(found["result"]["entry"][0]["resource"]["gender"], "female")
        (finding,) = found["findings"]
        self.assertEqual((finding["element"], finding["text"], finding["line"]), ("Patient.gender", "no good", 8))

    async def test_the_text_is_that_of_the_file(self) -> None:
        found = await self.bench.source(URL)
        self.assertEqual((found["text"], found["file"]), (COMMENTED, "messages/ADT_A01.fml"))
        self.assertEqual((found["is_original"], found["is_removable"]), (True, False))
        without = Workbench(self.installation, self.inbox, at_once, lambda: NOW)
        printed = await without.source(URL)
        self.assertFalse(printed["is_original"])
        self.assertNotIn("// why", printed["text"])

    async def test_an_installed_map_replaces_the_file_and_is_removed(self) -> None:
        text = "// in use now\n" + MAP.replace("t.value = phone", "t.value = 'x'")
        made = await self.bench.install(text)
        self.assertEqual((made["url"], made["version"]), (URL, 1))
        self.assertRegex(made["id"], r"^ADT-A01-[0-9a-f]{12}$")
        found = await self.bench.source(URL)
        self.assertEqual((found["text"], found["is_original"], found["is_removable"]), (text, True, True))
        result = (await self.bench.attempt(None, RAW, None))["result"]
        self.assertEqual(result["entry"][0]["resource"]["telecom"][0]["value"], "x")
        self.assertEqual(await self.bench.remove(URL), {"url": URL, "is_installed": True})
        self.assertEqual((await self.bench.source(URL))["text"], COMMENTED)
        await self.refused(self.bench.remove(URL), "was installed over HTTP")

    async def test_a_map_that_does_not_compile_is_not_installed(self) -> None:
        before = self.installation.library
        await self.refused(self.bench.install(MAP.replace("patient.gender", "patient.sex")), ":8:")
        await self.refused(self.bench.install("no map"), "candidate.fml:1:")
        self.assertIs(self.installation.library, before)

    async def test_a_candidate_is_compared_on_what_was_received(self) -> None:
        message: Received = received("M1", raw=RAW, system="APP")
        await self.inbox.store([message])
        same = await self.bench.compare(MAP, "ADT_A01", 10)
        self.assertEqual((same["messages"], same["same"], same["differing"]), (1, 1, []))
        other = await self.bench.compare(MAP.replace("urn:test:mr", "urn:test:other"), "ADT_A01", 10)
        (differing,) = other["differing"]
        self.assertEqual((other["same"], differing["id"]), (0, 1))

    async def refused(self, asked: Any, text: str) -> None:
        problem = await self.assertFailure(Deferred.fromCoroutine(asked), Problem)
        self.assertIn(text, str(problem))
