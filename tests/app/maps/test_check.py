"""Every map compiled in a process of its own: its first mistake comes back as if it had been compiled here."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.app.maps.check import check_maps, load_maps
from ipf.config.environment import read
from ipf.errors import Category, Problem
from ipf.ports import Installed
from tests.flows.test_mapping import MAP, TABLE, maps_folder

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class CheckingTests(TestCase):
    def setUp(self) -> None:
        self.maps = maps_folder(Path(self.mktemp()).resolve())

    def test_what_is_right(self) -> None:
        """What was installed over HTTP counts with the folder: the map needs this table."""
        (self.maps / "codesystems/sex.json").unlink()
        self.assertRaises(Problem, check_maps, [], self.maps)
        check_maps([Installed("ConceptMap", "sex", str(TABLE["url"]), 1, NOW, TABLE)], self.maps)

    def test_a_mistake(self) -> None:
        """The same Problem, of the same place, as where it is compiled in this process."""
        (self.maps / "messages/ADT_A01.fml").write_text(MAP.replace("patient.gender", "patient.sex"))
        settings, _ = read({})
        here = self.assertRaises(Problem, load_maps, settings, [], self.maps)
        there = self.assertRaises(Problem, check_maps, [], self.maps)
        self.assertEqual((str(there), there.category), (str(here), Category.MAPPING))
        self.assertIn("messages/ADT_A01.fml:8:", str(there))

    def test_a_process_that_fails_says_why(self) -> None:
        """Something else than a mistake of a map."""
        self.patch(sys, "executable", "/bin/false")
        failure = self.assertRaises(RuntimeError, check_maps, [], self.maps)
        self.assertIn("ended with status 1", str(failure))
