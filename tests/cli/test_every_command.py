"""Rules for all commands of `ipfctl`: help, JSON, CSV, tables with and without a terminal, old names."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import pairwise

import click
from click.testing import CliRunner
from rich.cells import cell_len
from twisted.trial.unittest import SynchronousTestCase

from ipf.cli.main import cli
from ipf.cli.names import NAMES
from ipf.fhir.model.json import loads
from tests.cli.samples import ON_THE_HOST, SAMPLES, commands
from tests.cli.service import AgainstAService
from tests.reference import ROOT

LEAVES = {words: one for words, one in commands(cli) if not isinstance(one, click.Group)}
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ISO = re.compile(r"\d{4}-\d\d-\d\dT")
_SHOWING = ("list", "show", "errors", "history", "answers", "overrides", "heads", "trace", "effects", "status")
_VERBATIM = {"messages show", "maps show", "rejects show", "audit key"}
"""Commands that print a text as it is: its lines are not broken."""


def lists_or_shows(command: click.Command) -> bool:
    """Whether its help has `-o json|table|csv`."""
    return any(isinstance(one, click.Option) and not one.hidden and one.metavar is None and "-o" in one.opts
               and isinstance(one.type, click.Choice) for one in command.params)  # fmt: skip


class HelpTests(SynchronousTestCase):
    def test_help_fits_80_columns_and_is_complete(self) -> None:
        """Of every group and command; no description in a list of commands is cut."""
        for words in ["", *(words for words, _ in commands(cli))]:
            shown = CliRunner().invoke(cli, [*words.split(), "--help"], prog_name="ipfctl", env={"COLUMNS": "200"})
            self.assertEqual(shown.exit_code, 0, words)
            for line in shown.output.splitlines()[1:]:
                self.assertLessEqual(len(line), 80, f"{words}: {line}")
                self.assertFalse(line.endswith("..."), f"{words}: {line}")

    def test_every_command_has_a_sample(self) -> None:
        self.assertEqual(set(LEAVES), set(SAMPLES) | ON_THE_HOST)

    def test_what_lists_or_shows_has_a_form(self) -> None:
        """By the verb: `-o` in its help."""
        for words, command in LEAVES.items():
            verb = words.split()[-1]
            if verb in _SHOWING and words in SAMPLES:
                self.assertTrue(lists_or_shows(command), words)

    def test_commands_that_the_page_of_the_documentation_names_are_there(self) -> None:
        """The reference of all of them is made from the code."""
        page = (ROOT / "docs/reference/ipfctl.md").read_text()
        named = {
            " ".join(words) for words in re.findall(r"`([a-z-]+) ([a-z-]+)[`\\ ]", page) if words[0] in cli.commands
        }
        groups = {one for one in named if isinstance(cli.commands[one.split()[0]], click.Group)}
        self.assertEqual(groups - set(LEAVES), set())
        self.assertGreater(len(groups), 10)

    def test_no_help_names_an_old_name(self) -> None:
        shown = CliRunner().invoke(cli, ["--help"], prog_name="ipfctl").output
        listed = re.findall(r"^  ([a-z-]+) ", shown.partition("Commands:")[2], re.MULTILINE)
        self.assertEqual(sorted(listed), sorted(cli.commands))
        gone = {old for old in NAMES if " " not in old} - set(cli.commands)
        self.assertEqual(len(gone), 20)
        self.assertFalse(gone & set(listed))

    def test_a_word_that_is_no_verb_is_wrong_usage(self) -> None:
        for words in (["messages", "lst"], ["maps", "instal", "x"], ["destinations", "registry"], ["nothing"]):
            ended = CliRunner().invoke(cli, words, prog_name="ipfctl")
            self.assertEqual(ended.exit_code, 2, words)
            self.assertIn("No such command", ended.output)


class FormTests(AgainstAService):
    async def test_json_is_the_response(self) -> None:
        """One JSON text on standard output, before and after the name of the command, with both options."""
        for words, sample in SAMPLES.items():
            if words == "audit export":  # its -o is the file
                continue
            outputs = []
            for given in (["--json", *words.split(), *sample], [*words.split(), *sample, "-o", "json"]):
                result = await self.ctl(*given)
                self.assertIn(result.exit_code, (0, 1), f"{given}: {result.output}")
                if words == "messages send":
                    loads(result.stdout)
                else:
                    outputs.append(loads(result.stdout or "null"))
            self.assertTrue(all(one == other for one, other in pairwise(outputs)), words)

    async def test_csv_is_complete(self) -> None:
        """A header, and rows of the same width; no formula, no escape sequence of a terminal."""
        for words in self.shown():
            result = await self.ctl(*words.split(), *SAMPLES[words], "-o", "csv", "--utc")
            rows = list(csv.reader(io.StringIO(result.stdout)))
            self.assertGreater(len(rows), 1, f"{words}: {result.output}")
            self.assertEqual({len(row) for row in rows}, {len(rows[0])}, words)
            self.assertEqual(len(set(rows[0])), len(rows[0]), words)
            self.assertNotIn("\x1b", result.stdout)
            self.assertFalse([cell for row in rows for cell in row if cell.startswith(("=", "+", "@"))], words)

    async def test_a_piped_table_has_all_that_csv_has(self) -> None:
        """No value is cut or broken, no line is drawn, and nothing is coloured."""
        for words in set(self.shown()) - {"maps show"}:  # it prints the text alone
            table = (await self.ctl(*words.split(), *SAMPLES[words])).stdout
            found = (await self.ctl(*words.split(), *SAMPLES[words], "-o", "csv")).stdout
            self.assertFalse(re.search("[\x1b\u2500-\u257f\u2026]", table), words)
            rows = list(csv.reader(io.StringIO(found)))
            for name, cell in ((name, cell) for row in rows[1:] for name, cell in zip(rows[0], row, strict=True)):
                if name in ("part", "pem", "raw", "raw_message", "text") or cell in ("true", "false"):
                    continue
                for line in cell.removeprefix("'").splitlines():
                    self.assertIn("" if _ISO.match(line) else line, table, f"{words}: {name}")

    async def test_tables_fit_the_terminal(self) -> None:
        """Of 80, 100 and 200 columns; nothing is cut: the letters of the first row are all there."""
        for words in self.shown():
            for wide in (80, 100, 200):
                result = await self.ctl(*words.split(), *SAMPLES[words], terminal=wide)
                shown = _ESCAPE.sub("", result.stdout)
                self.assertNotIn("\u2026", shown)
                if words not in _VERBATIM:
                    for line in shown.splitlines():
                        self.assertLessEqual(cell_len(line.rstrip()), wide, f"{words}: {line}")

    async def test_long_texts_are_whole_on_a_terminal(self) -> None:
        shown = _ESCAPE.sub("", (await self.ctl("messages", "list", terminal=80)).stdout)
        letters = re.sub(r"\s", "", shown)
        self.assertEqual(letters.count("患者番号"), 6)
        self.assertIn("andacomma", letters)

    def shown(self) -> list[str]:
        """The commands that list or show something of the service."""
        return [words for words in SAMPLES if lists_or_shows(LEAVES[words])]


class OldNameTests(AgainstAService):
    async def test_old_names_do_the_same(self) -> None:
        """The same requests, output and exit status; flags that chose what to do in each of their places."""
        for old, new in NAMES.items():
            if new in ON_THE_HOST:
                continue
            expected = await self.requests_of([*new.split(), *SAMPLES[new]])
            for given in _old_lines(old, SAMPLES[new]):
                if old == "send":  # it measures time
                    self.assertEqual((await self.requests_of(given))[0], expected[0])
                else:
                    self.assertEqual(await self.requests_of(given), expected, given)

    async def test_nouns_alone_list(self) -> None:
        """As they did, with options of the list; -h is the help of the noun."""
        for noun in ("messages", "interfaces", "sources", "destinations", "maps", "profiles", "erasures"):
            self.assertEqual(await self.requests_of([noun]), await self.requests_of([noun, "list"]))
            self.assertIn(f"ipfctl {noun} [OPTIONS] COMMAND", (await self.ctl(noun, "-h")).output)

    def test_old_names_of_what_works_on_the_host(self) -> None:
        """Their help is that of the new name, also where a flag chose."""
        for old, new in NAMES.items():
            if new in ON_THE_HOST:
                shown = CliRunner().invoke(cli, [*old.split(), "x", "--help"], prog_name="ipfctl").output
                self.assertIn(f"Usage: ipfctl {new} ", shown, old)


def _old_lines(old: str, sample: list[str]) -> Iterator[list[str]]:
    words = old.split()
    yield [*words, *sample]
    if words[-1].startswith("--"):
        noun, flag = words
        takes_value = bool(sample) and not sample[0].startswith("-")
        if takes_value:
            yield [noun, *sample[1:], flag, sample[0]]
            yield [noun, f"{flag}={sample[0]}", *sample[1:]]
        else:
            yield [noun, *sample, flag]
