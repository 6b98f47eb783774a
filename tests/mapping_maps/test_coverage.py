"""docs/reference/mapping-coverage.csv is current, and no row of the guide is left out without a word."""

from __future__ import annotations

import re
from functools import lru_cache

from twisted.trial.unittest import TestCase

from ipf.config.paths import folder
from tests.mapping_maps.coverage import BY_ENGINE, FIGURES, OPEN, REPORT, ROWS, Coverage, figures, report, rows
from tests.mapping_maps.guide import GUIDE
from tests.mapping_maps.rules import Maps
from tests.reference import needs_reference

LEAST = 95
"""Of a hundred rows that have a target, how many must be mapped."""


@lru_cache(maxsize=1)
def coverage() -> Coverage:
    """Verdicts of the maps as they are."""
    return Coverage(Maps(folder("maps")))


@needs_reference
class CoverageTests(TestCase):
    """The report, the rows, and the notes in the maps."""

    def setUp(self) -> None:
        """The guide is not part of the project."""

    def test_the_report_is_true(self) -> None:
        """What `bin/mapping-coverage` would write is what is there."""
        for path, text in ((REPORT, report), (ROWS, rows), (FIGURES, figures)):
            with self.subTest(path=path.name):
                self.assertTrue(path.read_text(encoding="utf-8") == text(coverage()), "run bin/mapping-coverage")

    def test_no_row_is_missing(self) -> None:
        """Each row is mapped, or a comment says why not."""
        missing = [
            (name, one.row.key, one.row.target)
            for name, verdicts in coverage().verdicts.items()
            for one in verdicts
            if one.state == OPEN
        ]
        self.assertEqual(missing, [])

    def test_most_rows_are_mapped(self) -> None:
        """At least 95 of 100 of all rows that the messages use."""
        done, every = coverage().count([table.name for table in coverage().tables])
        self.assertGreater(every, 1500)
        self.assertGreaterEqual(100 * done, LEAST * every)

    def test_notes_are_about_rows(self) -> None:
        """A comment whose key is of no table and no row decides nothing; segments without a table may have any."""
        known = {key for table in coverage().tables for key in (table.name, *table.keys)}
        owners = {table.name.partition("[")[0] for table in coverage().tables}
        for file in coverage().maps.files:
            for note in file.notes:
                if re.split(r"[-.\[]", note.key)[0] not in owners:
                    continue
                with self.subTest(file=file.name, key=note.key):
                    field = re.sub(r"(?<=-)(\d+)\.\d+$", r"\1", note.key)  # `OBR-26.2`: a component
                    self.assertIn(field, known)

    def test_served_tables_exist(self) -> None:
        """A header names tables of the guide, and what the engine does no file claims."""
        known = {path.name.partition("_ ")[2].rpartition(" - ")[0] for path in GUIDE.glob("*/*.csv")}
        for file in coverage().maps.files:
            if file.content.meta("tables"):
                with self.subTest(file=file.name):
                    self.assertEqual(file.tables - known, set())
                    self.assertEqual(file.tables & set(BY_ENGINE), set())
