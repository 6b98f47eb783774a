"""What is remembered of maps that compiled, and what makes them be compiled again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.app.maps import checked
from ipf.app.maps.checked import CheckedMaps
from ipf.app.maps.installation import LibraryLoader
from ipf.config.environment import read
from ipf.config.settings import Settings
from ipf.errors import Problem
from ipf.mapping.library.maps import Library
from tests.app.maps.test_check import NoProfiles, person
from tests.flows.test_mapping import MAP, PERSON, maps_folder


class CheckedMapsTests(TestCase):
    def setUp(self) -> None:
        self.data = Path(self.mktemp()).resolve()
        self.data.mkdir()
        self.maps = maps_folder(Path(self.mktemp()).resolve())

    def settings(self, **environment: str) -> Settings:
        return read({"IPF_DATA_DIR": str(self.data), **environment})[0]

    def load(self, settings: Settings | None = None, installed: str = "") -> Library:
        loader = LibraryLoader(settings or self.settings(), NoProfiles(), compiled=True)
        return loader.load([person(installed)] if installed else [], self.maps, True)

    def is_compiled(self, library: Library) -> bool:
        return library.is_ready("ADT_A01")

    def test_maps_that_have_compiled(self) -> None:
        """The next process compiles a map when it is used, with the same result; a copy of the folder is the same."""
        self.assertTrue(self.is_compiled(self.load()))
        self.maps = Path(self.maps.rename(self.mktemp())).resolve()
        again = self.load()
        self.assertFalse(self.is_compiled(again))
        again.program_for("ADT_A01")
        self.assertTrue(self.is_compiled(again))

    def test_what_makes_them_unknown(self) -> None:
        """Anything that decides whether a map compiles, a lost or damaged memory included."""
        identity, packages = self.data / "identity.toml", self.data / "packages"
        identity.write_text("")
        packages.mkdir()
        more = packages / "more.txt"
        settings = self.settings(IPF_IDENTITY_FILE=str(identity), IPF_PACKAGE_DIR=str(packages))
        memory, map_path = self.data / "maps-checked", self.maps / "messages/ADT_A01.fml"
        changes: tuple[Callable[[], object], ...] = (
            lambda: map_path.write_text(MAP + "\n"),
            lambda: (self.maps / "codesystems/none.json").write_text('{"resourceType": "ConceptMap", "url": "urn:x"}'),
            lambda: more.write_text(""),
            lambda: more.write_text("x"),
            lambda: identity.write_text("\n"),
            memory.unlink,
            lambda: memory.write_bytes(b"\xff"),
            lambda: self.patch(checked.ipf, "__version__", "another"),
        )
        self.load(settings)
        for number, change in enumerate(changes):
            known = CheckedMaps(settings)
            self.assertTrue(known.look_up([], self.maps), number)
            change()
            self.assertFalse(known.look_up([], self.maps), number)
            self.assertTrue(self.is_compiled(self.load(settings)), number)
        others = {"IPF_DEFAULT_ZONE": "Europe/Vienna", "IPF_GENERIC_MAP": "true", "IPF_WITHOUT_PATIENT_TYPES": ""}
        for name, value in others.items():
            self.assertFalse(CheckedMaps(self.settings(**{name: value})).look_up([], self.maps), name)
        self.assertFalse(CheckedMaps(settings).look_up([person(PERSON)], self.maps))

    def test_a_mistake_is_always_found(self) -> None:
        """In the folder it is raised, in an installed map named, at every start, although good ones were noted."""
        self.load()
        for _ in range(2):
            library = self.load(installed=PERSON.replace("src.gender", "src.gendre"))
            self.assertEqual(list(library.broken), ["urn:test:map:person"])
        (self.maps / "messages/ADT_A01.fml").write_text(MAP.replace("patient.gender", "patient.sex"))
        for _ in range(2):
            self.assertRaises(Problem, self.load)

    def test_a_folder_that_cannot_be_written(self) -> None:
        self.data.rmdir()
        for _ in range(2):
            self.assertTrue(self.is_compiled(self.load()))
