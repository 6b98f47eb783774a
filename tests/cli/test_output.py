"""What commands write: times, tables of any width, CSV of several tables, progress, singular and plural."""

from __future__ import annotations

import io
import os
import time
from typing import Any

import click
from rich.console import Console
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from ipf.cli import tables
from ipf.cli.output import Form, Output
from ipf.cli.progress import PATIENCE, Waiting
from ipf.cli.times import UTC_ASKED, Moment, for_files, for_people
from ipf.cli.words import counted

NOON = "2026-07-01T22:30:15.801898Z"


class TimeTests(SynchronousTestCase):
    def setUp(self) -> None:
        """A host in Berlin."""
        before = os.environ.get("TZ")
        os.environ["TZ"] = "Europe/Berlin"
        time.tzset()

        def back() -> None:
            os.environ.pop("TZ") if before is None else os.environ.__setitem__("TZ", before)
            time.tzset()

        self.addCleanup(back)

    def test_times_are_local(self) -> None:
        for text, people, files in (
            (NOON, "2026-07-02 00:30:15", "2026-07-02T00:30:15.801898+02:00"),
            ("2026-01-01T00:00:00Z", "2026-01-01 01:00:00", "2026-01-01T01:00:00+01:00"),
            ("2026-01-01T00:00+05:00", "2025-12-31 20:00:00", "2025-12-31T20:00:00+01:00"),
            ("2026-13-01T00:00:00Z",) * 3,
            ("2026-01-01",) * 3,
            ("0001-01-01T00:00:00Z", *(made("0001-01-01T00:00:00Z", False) for made in (for_people, for_files))),
            (f"at {NOON}",) * 3,
        ):  # fmt: skip
            self.assertEqual((for_people(text, False), for_files(text, False)), (people, files))
        self.assertEqual(for_people(NOON, True), "2026-07-01 22:30:15")
        self.assertEqual(for_files(NOON, True), NOON)

    def test_what_a_table_shows_can_be_typed(self) -> None:
        """A time of a table, local or with --utc, is the same moment as an option."""
        for utc in (False, True):
            typed = self.typed(for_people(NOON, utc), utc)
            self.assertEqual(typed, "2026-07-01T22:30:15Z")
            self.assertEqual(self.typed(for_files(NOON, utc), utc), NOON)

    def test_options_take_times_of_people(self) -> None:
        for text, iso in (
            ("2026-07-01", "2026-06-30T22:00:00Z"),
            ("2026-07-01 08:15", "2026-07-01T06:15:00Z"),
            ("2026-07-01T08:15+00:00", "2026-07-01T08:15:00Z"),
            ("2026-07-01T08:15:00Z", "2026-07-01T08:15:00Z"),
        ):
            self.assertEqual(self.typed(text, False), iso)
        self.assertLess(self.typed("2h", False), self.typed("15m", False))
        for text in ("", "yesterday", "2026-13-01", "2x", "99999999999h", "08:15"):
            self.assertRaises(click.BadParameter, self.typed, text, False)

    def typed(self, text: str, utc: bool) -> str:
        """What a request gets."""
        context = click.Context(click.Command("x"))
        context.meta[UTC_ASKED] = utc
        made: str = Moment().convert(text, None, context)
        return made


class TableTests(SynchronousTestCase):
    def test_a_table_of_a_terminal(self) -> None:
        """Long texts wrap; columns without a value are left out; what is too wide is a block a row."""
        rows = [(1, None, "x" * 50), (2, "", "y z")]
        self.assertEqual(self.lines(("id", "nothing", "last_error"), rows, 40),
                         ["id  last error", f"1   {'x' * 36}", f"    {'x' * 14}", "2   y z"])  # fmt: skip
        many = [f"column_{number}" for number in range(9)]
        self.assertEqual(self.lines(many, [["x" * 20] * 9], 60)[:2], [f"column 0  {'x' * 20}", f"column 1  {'x' * 20}"])

    def lines(self, columns: Any, rows: Any, width: int) -> list[str]:
        """What a terminal shows."""
        written = io.StringIO()
        console = Console(file=written, width=width)
        console.print(tables.fitted(columns, rows, width, True))
        return [line.rstrip() for line in written.getvalue().splitlines()]

    def test_several_tables_are_one_csv(self) -> None:
        found = tables.csv_text([("one", ("id", "a"), [(1, True)]), ("two", ("id", "b"), [(2, {"c": "x"})])], True)
        self.assertEqual(found.splitlines(), ["part,id,a,b", "one,1,true,", 'two,2,,"{""c"":""x""}"'])
        self.assertEqual(tables.csv_text([("one", ("id",), [("=1+1",), (-3,), ("-3",)])], True), "id\n'=1+1\n-3\n'-3\n")

    def test_no_rows(self) -> None:
        """A sentence for people, the header in CSV."""
        self.assertEqual(self.written(Form.TABLE), "There are no messages.\n")
        self.assertEqual(self.written(Form.CSV), "id,status\n")

    def written(self, form: Form) -> str:
        """What an empty list writes."""
        written = io.StringIO()
        self.patch(__import__("sys"), "stdout", written)
        output = Output(form)
        output.page({"total": 0, "items": []}, ("id", "status"), "message")
        output.finish()
        return written.getvalue()

    def test_singular_and_plural(self) -> None:
        for noun, plural in (("message", "messages"), ("identity conflict", "identity conflicts"), ("reply", "replies"),
                             ("key", "keys"), ("match", "matches")):  # fmt: skip
            self.assertEqual((counted(1, noun), counted(2, noun), counted(0, noun)),
                             (f"1 {noun}", f"2 {plural}", f"0 {plural}"))  # fmt: skip


class ProgressTests(SynchronousTestCase):
    def test_a_clock_after_two_seconds(self) -> None:
        """On a terminal only, and gone at the end."""
        for is_terminal in (True, False):
            written, clock = io.StringIO(), Clock()
            waiting = Waiting(Console(file=written, force_terminal=is_terminal, width=80))
            with waiting.clock(clock, "waiting for http://x"):
                clock.advance(PATIENCE - 0.1)
                self.assertEqual(written.getvalue(), "")
                clock.advance(0.2)
                self.assertEqual("waiting for http://x" in written.getvalue(), is_terminal)
            self.assertEqual(clock.getDelayedCalls(), [])

    def test_a_short_command_shows_none(self) -> None:
        written, clock = io.StringIO(), Clock()
        with Waiting(Console(file=written, force_terminal=True)).clock(clock, "waiting"):
            clock.advance(1)
        self.assertEqual((written.getvalue(), clock.getDelayedCalls()), ("", []))
