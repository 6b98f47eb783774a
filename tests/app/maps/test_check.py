"""Compiling every map in a child process: its first error is raised in this process."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.app.maps.check import check_maps, load_maps
from ipf.config.environment import read
from ipf.errors import Category, Problem
from ipf.ports import InstalledMap
from tests.flows.test_mapping import MAP, TABLE, maps_folder

NOW = datetime(2026, 1, 1, tzinfo=UTC)


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
