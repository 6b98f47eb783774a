"""Compiling every map in a child process: its first error is raised in this process."""

from __future__ import annotations

import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.app.maps.check import check_maps, load_maps
from ipf.app.maps.installation import LibraryLoader
from ipf.config.environment import read
from ipf.errors import Category, Problem
from ipf.mapping.library.installed_maps import SOURCE_TEXT
from ipf.mapping.library.maps import Library
from ipf.ports import InstalledMap
from ipf.vendor_profiles.folder import ProfileFolder
from tests.flows.test_mapping import MAP, PERSON, TABLE, maps_folder

NOW = datetime(2026, 1, 1, tzinfo=UTC)
URL = "urn:test:map:person"


def person(text: str) -> InstalledMap:
    """A map that was installed as text."""
    resource = {"resourceType": "StructureMap", "url": URL, "extension": [{"url": SOURCE_TEXT, "valueString": text}]}
    return InstalledMap("StructureMap", "person", URL, 1, NOW, resource)


class NoProfiles(ProfileFolder):
    """A folder without vendor profiles."""

    def __init__(self) -> None:
        pass

    def build(self, library: Library, *, fresh: bool) -> None:  # type: ignore[override]
        """None."""


class CheckingTests(TestCase):
    def setUp(self) -> None:
        self.maps = maps_folder(Path(self.mktemp()).resolve())

    def test_valid_maps(self) -> None:
        """Maps installed over HTTP are compiled with the folder: the map uses this table."""
        (self.maps / "codesystems/sex.json").unlink()
        self.assertRaises(Problem, check_maps, [], self.maps)
        check_maps([InstalledMap("ConceptMap", "sex", str(TABLE["url"]), 1, NOW, TABLE)], self.maps)

    def test_an_invalid_map(self) -> None:
        """The same Problem with the same place as in this process."""
        (self.maps / "messages/ADT_A01.fml").write_text(MAP.replace("patient.gender", "patient.sex"))
        settings, _ = read({})
        here = self.assertRaises(Problem, load_maps, settings, [], self.maps)
        there = self.assertRaises(Problem, check_maps, [], self.maps)
        self.assertEqual((str(there), there.category), (str(here), Category.MAPPING))
        self.assertIn("messages/ADT_A01.fml:8:", str(there))

    def test_a_broken_installed_map(self) -> None:
        """It is named, with its place, and the check passes; a mistake in the folder does not."""
        broken = check_maps([person(PERSON.replace("src.gender", "src.gendre"))], self.maps)
        self.assertEqual(list(broken), [URL])
        self.assertIn("StructureMap/person (installed over HTTP):6:", str(broken[URL]))
        self.assertEqual(check_maps([person(PERSON)], self.maps), {})

    def test_a_changed_folder_that_breaks_an_installed_map(self) -> None:
        """A reload is refused in a process that compiles, and in ones that let another check, at their start or not."""
        shared = '/// url = "urn:test:map:shared"\ngroup Shared(source src : Patient, target tgt : Person) {}\n'
        (self.maps / "segments").mkdir()
        (self.maps / "segments/shared.fml").write_text(shared)
        other = Path(shutil.copytree(self.maps, self.mktemp())).resolve()
        (other / "segments/shared.fml").write_text(shared.replace("Shared(", "Renamed("))
        text = PERSON.replace("group person", 'imports "urn:test:map:shared"\ngroup person')
        installed = [person(text.replace("= gender;", "= gender;\n  src.active -> tgt then Shared(src, tgt);"))]
        settings, _ = read({})
        for compiled, checked, first_checked in ((True, False, True), (False, True, True), (False, True, False)):
            loader = LibraryLoader(
                settings, NoProfiles(), compiled=compiled, checked=checked, first_checked=first_checked
            )
            self.assertEqual(loader.load(installed, self.maps, True).broken, {})
            problem = self.assertRaises(Problem, loader.load, installed, other, True)
            self.assertIn("StructureMap/person (installed over HTTP):8:", str(problem))
            self.assertEqual(loader.load(installed, self.maps, False).broken, {})
            self.assertEqual(list(loader.load(installed, other, False).broken), [URL])
            started = LibraryLoader(settings, NoProfiles(), compiled=compiled, checked=checked)
            self.assertEqual(list(started.load(installed, other, True).broken), [URL])

    def test_the_generic_map(self) -> None:
        """In use when the settings say so, and no remote service maps; compiled in any case."""
        path = self.maps / "messages/Generic.fml"
        path.write_text(MAP.replace("urn:test:map:ADT_A01", "urn:test:map:any").replace("ADT_A01 ADT_A08", "*"))
        for environment, used in (
            ({}, False),
            ({"IPF_GENERIC_MAP": "true"}, True),
            ({"IPF_GENERIC_MAP": "true", "IPF_MAPPING_URL": "http://127.0.0.1:1/fhir"}, False),
        ):
            settings, _ = read(environment)
            for compiled in (True, False):
                library = load_maps(settings, [], self.maps, compiled=compiled)
                self.assertEqual(library.has_map("ADT_Z99"), used, environment)
                self.assertEqual(library.map_url("ADT_A08"), "urn:test:map:ADT_A01")
        path.write_text(path.read_text().replace("patient.gender", "patient.sex"))
        self.assertIn("Generic.fml:8:", str(self.assertRaises(Problem, check_maps, [], self.maps)))

    def test_a_failure_of_the_process(self) -> None:
        """The child process fails for another reason."""
        self.patch(sys, "executable", "/bin/false")
        failure = self.assertRaises(RuntimeError, check_maps, [], self.maps)
        self.assertIn("ended with status 1", str(failure))
