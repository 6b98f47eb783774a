"""Maps installed over HTTP that no longer compile: set aside with their mistake, while all others work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.mapping.library.installation import Installation, refresh_safely
from ipf.mapping.library.installed_maps import SOURCE_TEXT, as_rows, from_rows
from ipf.mapping.library.maps import Library
from ipf.mapping.library.service import MappingAdminService
from ipf.mapping.library.workbench import Workbench
from ipf.ports import InstalledMap, Json
from ipf.rest.operations.mapping_service import FML, mapping_handler
from tests.fakes import MemoryInbox, MemoryUnmappedCodes
from tests.flows.test_mapping import MAP, maps_folder
from tests.mapping.library.test_installation import at_once, stored
from tests.pipeline.test_worker import MemoryNotifier
from tests.rest.operations.test_mapping_service import request_of

URL = "http://x.test/StructureMap/person"
GOOD = """
/// url = "http://x.test/StructureMap/person"
uses "http://hl7.org/fhir/StructureDefinition/Patient" alias Patient as source
uses "http://hl7.org/fhir/StructureDefinition/Person" alias Person as target
group person(source src : Patient, target tgt : Person) {
  src.gender as gender -> tgt.gender = gender;
  src.name as name -> tgt.name = name then named(name, src);
}
group named(source name : HumanName, source src : Patient) { src.active as a; }
group spare(source src : Patient, target tgt : Person) { src.gender as gender -> tgt.gender = gender; }
"""
OTHER = GOOD.replace("StructureMap/person", "StructureMap/other")
PATIENT: Json = {"resourceType": "Patient", "gender": "female"}
SHARED = """/// url = "urn:test:map:shared"
group Phone(source phone : XTN, target t : ContactPoint) { phone.XTN_1 as v -> t.value = v; }
"""
IMPORTING = MAP.replace("t.value = phone;", "t.use = 'home' then Phone(phone, t);").replace(
    "group ADT_A01", 'imports "urn:test:map:shared"\ngroup ADT_A01'
)
BROKEN: dict[str, tuple[str, str]] = {
    "an element of the source": (GOOD.replace("src.gender as", "src.gendre as", 1), ":6:"),
    "an element of the target": (GOOD.replace("tgt.gender", "tgt.gendre", 1), ":6:"),
    "a called group": (GOOD.replace("src.active", "src.activ"), ":9:"),
    "a group that nothing calls": (GOOD.replace("{ src.gender as", "{ src.gendre as"), ":10:"),
    "a group that is not there": (GOOD.replace("then named(", "then nmaed("), ":7:"),
    "no map at all": (GOOD.replace("group person(", "grup person(", 1), ":5:"),
    "an import of nothing": (GOOD.replace("group person(", 'imports "http://x.test/none"\ngroup person(', 1), ":5:"),
}
"""Texts, and the line of the mistake."""


def resource(text: str, url: str = URL) -> Json:
    """What is stored for a text; an earlier version accepted it."""
    return {"resourceType": "StructureMap", "url": url, "extension": [{"url": SOURCE_TEXT, "valueString": text}]}


class BrokenMapTests(TestCase):
    """A process that compiles everything, and one that compiles on demand, as the main process beside converters."""

    compiled = True

    def setUp(self) -> None:
        self.folder = maps_folder(Path(self.mktemp()))
        self.codes = MemoryUnmappedCodes(MemoryInbox())

    def installation(self) -> Installation:
        """A process on this store."""

        def build(installed: Sequence[InstalledMap], fresh: bool) -> Library:
            return Library.load(self.folder, installed=installed, compiled=self.compiled)

        return Installation(build, self.codes, at_once)

    async def ask(self, installation: Installation, method: str, path: str, body: Any, kind: str) -> tuple[int, Json]:
        """One request below `/mapping/fhir`."""
        answer = await mapping_handler(installation, MemoryNotifier(), at_once)(request_of(method, path, body, kind))
        return answer.status, json.loads(answer.body) if answer.body else {}

    async def transform(self, installation: Installation, url: str, body: Any = PATIENT) -> tuple[int, Json]:
        """Status and body of $transform."""
        path = f"StructureMap/$transform?source={url}"
        return await self.ask(installation, "POST", path, body, "application/fhir+json")

    async def gender(self, installation: Installation) -> object:
        """What the map of the folder makes of a message."""
        mapped = await installation.map(stored("F"))
        return mapped.bundle["entry"][0]["resource"].get("gender")

    async def test_the_service_starts_and_the_others_work(self) -> None:
        for name, (text, line) in BROKEN.items():
            self.setUp()
            await self.codes.install("StructureMap", URL, "broken", resource(text))
            await self.codes.install("StructureMap", "http://x.test/StructureMap/other", "other", resource(OTHER))
            installation = self.installation()
            await installation.start()
            self.assertEqual(await self.gender(installation), "female", name)
            status, person = await self.transform(installation, "http://x.test/StructureMap/other")
            self.assertEqual((status, person["gender"]), (200, "female"), name)
            for _ in range(2):
                status, outcome = await self.transform(installation, URL)
                self.assertEqual((status, outcome["resourceType"]), (422, "OperationOutcome"), name)
                self.assertIn(f"StructureMap/broken (installed over HTTP){line}", json.dumps(outcome), name)

    async def test_it_is_listed_with_its_mistake(self) -> None:
        for name, (text, line) in BROKEN.items():
            self.setUp()
            await self.codes.install("StructureMap", URL, "broken", resource(text))
            installation = self.installation()
            await installation.start()
            found = await MappingAdminService(installation, MemoryInbox(), at_once).describe()
            mistakes = {one["url"]: one["mistake"] for one in found["maps"]}
            self.assertEqual(mistakes["urn:test:map:ADT_A01"], None)
            self.assertEqual(mistakes[URL]["line"], int(line.strip(":")), name)
            self.assertGreater(mistakes[URL]["column"], 0)
            source = await Workbench(installation, MemoryInbox(), at_once, MemoryInbox().now).source(URL)
            self.assertEqual((source["text"], source["is_removable"]), (text, True))
            self.assertEqual((await self.ask(installation, "GET", "StructureMap/broken", b"", ""))[0], 200, name)

    async def test_it_blocks_no_other_change(self) -> None:
        """Others are installed and removed, also a second broken one; it is mended by a text that compiles."""
        for text, _ in BROKEN.values():
            self.setUp()
            await self.codes.install("StructureMap", URL, "broken", resource(text))
            second = text.replace("StructureMap/person", "StructureMap/second")
            await self.codes.install(
                "StructureMap",
                "http://x.test/StructureMap/second",
                "second",
                resource(second, "http://x.test/StructureMap/second"),
            )
            installation = self.installation()
            await installation.start()
            self.assertEqual((await self.ask(installation, "POST", "StructureMap", OTHER.encode(), FML))[0], 201)
            self.assertEqual((await self.transform(installation, "http://x.test/StructureMap/other"))[0], 200)
            other = next(one.id for one in installation.installed if one.url.endswith("other"))
            self.assertEqual((await self.ask(installation, "DELETE", f"StructureMap/{other}", b"", ""))[0], 204)
            self.assertEqual((await self.ask(installation, "DELETE", "StructureMap/second", b"", ""))[0], 204)
            await installation.reload()
            self.assertEqual((await self.ask(installation, "POST", "StructureMap", GOOD.encode(), FML))[0], 200)
            self.assertEqual((await self.transform(installation, URL))[1]["gender"], "female")
            self.assertEqual(installation.library.broken, {})

    async def test_a_new_mistake_is_refused(self) -> None:
        """At installation, with line and column; nothing changes."""
        for name, (text, line) in BROKEN.items():
            self.setUp()
            installation = self.installation()
            await installation.start()
            self.assertEqual((await self.ask(installation, "POST", "StructureMap", GOOD.encode(), FML))[0], 201)
            status, outcome = await self.ask(installation, "POST", "StructureMap", text.encode(), FML)
            self.assertEqual(status, 422, name)
            self.assertIn(line, json.dumps(outcome), name)
            self.assertEqual((await self.transform(installation, URL))[0], 200, name)

    async def test_what_a_broken_map_replaced_is_not_used(self) -> None:
        """The operator's map took the place of the folder's: its messages fail with the mistake."""
        for text in (
            MAP.replace("sex.", "sx.").replace("pid.PID_8 as", "pid.PID_88 as"),
            MAP.replace("group", "grup", 1),
        ):
            self.setUp()
            await self.codes.install(
                "StructureMap", "urn:test:map:ADT_A01", "m", resource(text, "urn:test:map:ADT_A01")
            )
            installation = self.installation()
            await installation.start()
            self.assertTrue(installation.has_map("ADT_A01"))
            problem = await self.assertFailure(Deferred.fromCoroutine(installation.map(stored("F"))), Problem)
            self.assertIs(problem.category, Category.MAPPING)
            self.assertIn("StructureMap/m (installed over HTTP):", str(problem))
            await installation.remove("StructureMap", "m")
            self.assertEqual(await self.gender(installation), "female")

    async def test_a_broken_map_of_another_process_is_not_blocking(self) -> None:
        """An older version stores one while this process runs: it goes on with all others."""
        installation = self.installation()
        await installation.start()
        await self.codes.install("StructureMap", URL, "broken", resource(BROKEN["a called group"][0]))
        await refresh_safely(installation)
        self.assertEqual(list(installation.library.find_broken()), [URL])
        self.assertEqual(await self.gender(installation), "female")

    async def test_an_import_of_the_folder(self) -> None:
        """A map of the folder that needs the broken one is broken with it; the mistake is that of the installed map."""
        (self.folder / "segments").mkdir()
        (self.folder / "segments" / "shared.fml").write_text(SHARED)
        messages = self.folder / "messages"
        (messages / "ADT_A01.fml").write_text(IMPORTING)
        (messages / "ADT_A02.fml").write_text(MAP.replace("ADT_A01 ADT_A08", "ADT_A02").replace("ADT_A01", "ADT_A02"))
        installation = self.installation()
        await installation.start()
        self.assertEqual(await self.gender(installation), "female")
        broken = SHARED.replace("t.value", "t.valu")
        await self.codes.install("StructureMap", "urn:test:map:shared", "s", resource(broken, "urn:test:map:shared"))
        again = self.installation()
        await again.start()
        problem = await self.assertFailure(Deferred.fromCoroutine(again.map(stored("F"))), Problem)
        self.assertIn("StructureMap/s (installed over HTTP):2:", str(problem))
        self.assertTrue(again.library.program_for("ADT_A02"))
        self.assertEqual((await self.ask(again, "POST", "StructureMap", OTHER.encode(), FML))[0], 201)

    async def test_a_mistake_in_the_folder_still_stops_the_start(self) -> None:
        if not self.compiled:
            return  # the check of another process finds it
        await self.codes.install("StructureMap", URL, "broken", resource(BROKEN["a called group"][0]))
        (self.folder / "messages" / "ADT_A01.fml").write_text(MAP.replace("patient.gender", "patient.sex"))
        problem = await self.assertFailure(Deferred.fromCoroutine(self.installation().start()), Problem)
        self.assertIn("messages/ADT_A01.fml:8:", str(problem))
        spare = "group spare(source src : PID, target tgt : Patient) { src.PID_8 as s -> tgt.sex = s; }\n"
        (self.folder / "messages" / "ADT_A01.fml").write_text(MAP + spare)
        problem = await self.assertFailure(Deferred.fromCoroutine(self.installation().start()), Problem)
        self.assertIn(f"messages/ADT_A01.fml:{(MAP + spare).count(chr(10))}:", str(problem))


class OnDemandTests(BrokenMapTests):
    compiled = False


class RowTests(TestCase):
    def test_another_process_has_the_same(self) -> None:
        broken = {"urn:a": Problem(Category.MAPPING, "x", "f:1:2"), "urn:b": Problem(Category.UNMAPPED, "y", None)}
        found = from_rows(json.loads(json.dumps(as_rows(broken))))
        self.assertEqual([(url, str(one), one.category) for url, one in found.items()],
                         [(url, str(one), one.category) for url, one in broken.items()])  # fmt: skip
