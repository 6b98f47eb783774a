"""What a process maps with: swapped whole, never by something broken; answers by sender."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.mapping.library.installation import Installation, InstalledMapper, OverrideIndex, refresh_safely
from ipf.mapping.library.maps import Library
from ipf.mapping.library.snapshot import MapSnapshot
from ipf.ports import Claimed, InstalledMap, Override, UnmappedCode
from tests.fakes import MemoryInbox, MemoryUnmappedCodes
from tests.flows.test_mapping import MAP, TABLE, maps_folder
from tests.mapping.library.test_maps import claimed

SEX = str(TABLE["url"])


async def at_once(work: Callable[[], Any]) -> Any:
    """Run it here."""
    return work()


def load(installed: Sequence[InstalledMap], folder: Path) -> Library:
    """The library of a folder."""
    return Library.load(folder, installed=installed)


def stored(sex: str, epoch: int | None = None) -> Claimed:
    """A message of APP with this sex; `epoch`: what it must see."""
    raw = f"MSH|^~\\&|APP|F|||2026||ADT^A01^ADT_A01|MSG1|P|2.5\rPID|1||P1||||19700101|{sex}\r".encode()
    made = claimed(raw)
    return made if epoch is None else replace(made, mapping_epoch=epoch)


class InstallationTests(TestCase):
    def setUp(self) -> None:
        self.maps = maps_folder(Path(self.mktemp()))
        self.codes = MemoryUnmappedCodes(MemoryInbox())
        self.snapshot = MapSnapshot(self.maps, Path(self.mktemp()))
        self.installation = self.another()

    def another(self) -> Installation:
        """A process on the same store."""

        def build(installed: Sequence[InstalledMap], fresh: bool) -> Library:
            return self.snapshot.build(partial(load, installed), fresh=fresh)

        return Installation(build, self.codes, at_once)

    def write(self, text: str) -> None:
        """Edit the map."""
        (self.maps / "messages/ADT_A01.fml").write_text(text)

    async def gender(self, sex: str, epoch: int | None = None) -> Any:
        """What a message's sex becomes."""
        mapped = await InstalledMapper(self.installation).transform(stored(sex, epoch))
        return mapped.bundle["entry"][0]["resource"].get("gender")

    async def test_a_map_is_compiled_aside_for_its_first_message(self) -> None:
        """And never again; the maps of a reload have what was compiled when they take the place of those before."""
        asked: list[object] = []
        replaced: list[Library] = []

        async def run_in_thread(work: Callable[[], Any]) -> Any:
            asked.append(work)
            return work()

        def build(installed: Sequence[InstalledMap], fresh: bool) -> Library:
            return Library.load(self.maps, installed=installed, compiled=False)

        self.installation = Installation(build, self.codes, run_in_thread)
        self.installation.subscribe(lambda: replaced.append(self.installation.library))
        await self.installation.start()
        asked.clear()
        self.assertTrue(self.installation.has_map("ADT_A01"))
        self.assertEqual([await self.gender("F"), await self.gender("F")], ["female", "female"])
        self.assertEqual((len(asked), replaced), (1, []))
        self.write(MAP.replace("phone", "fax"))
        before = self.installation.library
        await self.installation.reload()
        self.assertIsNot(self.installation.library, before)
        self.assertTrue(self.installation.library.is_ready("ADT_A01"))
        self.assertEqual((await self.gender("F"), replaced), ("female", [self.installation.library]))

    async def test_a_broken_map_is_never_in_use(self) -> None:
        """The reload names file and line; the old library goes on, and so does the copy that others read."""
        await self.installation.start()
        before, copy = self.installation.library, self.snapshot.current.resolve()
        self.write(MAP.replace("patient.gender", "patient.sex"))
        problem = await self.assertFailure(Deferred.fromCoroutine(self.installation.reload()), Problem)
        self.assertIn("messages/ADT_A01.fml:8:", str(problem))
        self.assertIs(self.installation.library, before)
        self.assertEqual(self.snapshot.current.resolve(), copy)
        self.assertEqual(await self.codes.epochs(), (1, 1))
        await self.installation.install("ConceptMap", "urn:x", "x", {"resourceType": "ConceptMap", "url": "urn:x"})
        self.assertIn("urn:x", self.installation.library.tables.resources)
        await self.assertFailure(Deferred.fromCoroutine(self.another().start()), Problem)

    async def test_another_process_follows(self) -> None:
        """At the next look, and only when something changed."""
        other = self.another()
        await self.installation.start()
        await other.start()
        self.write(MAP.replace("ADT_A08", "ADT_A08 ZZZ_Z01"))
        await self.installation.reload()
        self.assertFalse(other.has_map("ZZZ_Z01"))
        await refresh_safely(other)
        self.assertTrue(other.has_map("ZZZ_Z01"))
        before = other.library
        await refresh_safely(other)
        self.assertIs(other.library, before)
        self.write("broken")
        await self.codes.maps_changed()
        await refresh_safely(other)
        self.assertTrue(other.has_map("ZZZ_Z01"))
        self.assertEqual(len(list(self.snapshot.current.parent.iterdir())), 3)
        self.flushLoggedErrors()

    async def test_answers(self) -> None:
        """Those of the sender, then those for all; a message that must see them waits until they are loaded."""
        await self.installation.start()
        mapped = await InstalledMapper(self.installation).transform(stored("W"))
        self.assertEqual(mapped.unmapped, (UnmappedCode(SEX, "W"),))
        await self.codes.set_override(Override("", SEX, "W", None, "other", None))
        await self.codes.set_override(Override("APP", SEX, "F", None, "unknown", None))
        self.assertEqual(await self.gender("F"), "female")
        self.assertEqual([await self.gender("F", 3), await self.gender("W")], ["unknown", "other"])
        await self.codes.set_override(Override("APP", SEX, "W", None, None, None))
        self.assertIsNone(await self.gender("W", 4))

    def test_whose_answers(self) -> None:
        """Tenants and senders do not mix."""
        overrides = OverrideIndex(
            [Override("A", "t", "x", None, "a", None), Override("", "t", "x", None, "all", None, "north")]
        )
        mine, north = overrides.of("default", "A"), overrides.of("north", "A")
        assert mine is not None and north is not None
        self.assertEqual((mine.by_table["t"]["x"], north.by_table["t"]["x"]), ({"code": "a"}, {"code": "all"}))
        self.assertIsNone(overrides.of("default", "B"))
        self.assertIs(overrides.of("north", "B"), overrides.of("north", "C"))
        self.assertIsNot(mine, north)
