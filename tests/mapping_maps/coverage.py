"""The coverage report: for each row of the guide's tables, whether a rule of ours maps it, and if not, why.

`bin/mapping-coverage` writes docs/reference/mapping-coverage.md, the rows beside it (mapping-coverage.csv) and
ipf/console/coverage.json anew; `bin/mapping-coverage PID` prints the open rows of tables whose names begin so;
`bin/mapping-coverage --messages FILE...` prints the fields of
messages (`unread`).  A row counts as mapped when a rule in a file that serves its table reads its field and writes the
element that its path begins with; a message row, when the message's map takes that segment to a group in a file that
serves its segment table.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ipf.config.paths import folder
from tests.mapping_maps import unread
from tests.mapping_maps.guide import DATATYPES, MESSAGES, SEGMENTS, Row, Table, tables, used
from tests.mapping_maps.rules import File, Maps, Note, Seen

MAPPED, DECIDED, NOT_MAPPED, OPEN = "mapped", "decided", "not mapped", "open"
STATES = (MAPPED, DECIDED, NOT_MAPPED, OPEN)
KINDS = (MESSAGES, SEGMENTS, DATATYPES)
REPORT = Path(__file__).resolve().parents[2] / "docs/reference/mapping-coverage.md"
ROWS = REPORT.with_suffix(".csv")
COLUMNS = ("kind", "table", "row", "target", "state", "rule or reason")
FIGURES = Path(__file__).resolve().parents[2] / "ipf/console/coverage.json"
"""What the workbench of the operator console shows of the report."""
_MOST_PLACES = 3
_PRIMITIVE = "converted by the type of the target element (ipf/mapping/compiler/conversions.py)"
BY_ENGINE = {
    "DTM[dateTime]": _PRIMITIVE,
    "TS[dateTime]": _PRIMITIVE,
    "ID[boolean]": _PRIMITIVE,
    "ID[code]": _PRIMITIVE,
    "ID[string]": _PRIMITIVE,
    "IS[code]": _PRIMITIVE,
    "IS[string]": _PRIMITIVE,
    "NM[positiveInt]": _PRIMITIVE,
}
"""Tables of primitive types, which no rule is needed for."""

HEAD = """# Mapping coverage

[mapping-coverage.csv](mapping-coverage.csv) has each row of the tables of HL7's
[v2-to-FHIR guide](https://build.fhir.org/ig/HL7/v2-to-fhir/) that has a target in FHIR, with the rule that maps it, or
the reason. The site that `bin/docs` builds shows all rows with a search. `bin/mapping-coverage` writes both from the
maps under `maps/` and the row keys and target paths of the guide's tables; a test compares them.

| state | meaning |
|---|---|
| mapped | a rule maps the row; the last column names it |
| decided | mapped where the guide leaves a choice, or at another place; the last column has the decision |
| not mapped | the last column has the reason |
| open | no rule and no reason |

Decisions are comments beside the rules in the maps. A message type without a table in the guide is mapped like the
message that has the same structure. [Unread fields](mapping.md#unread-fields) are about the messages that you receive.

"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a row."""

    row: Row
    state: str
    text: str


class Coverage:
    """Verdicts over all tables that our messages use."""

    def __init__(self, maps: Maps) -> None:
        self.maps = maps
        self.tables = used(tables(MESSAGES), tables(SEGMENTS), tables(DATATYPES))
        self.verdicts = {table.name: [self._verdict(table, row) for row in table.rows] for table in self.tables}

    def _verdict(self, table: Table, row: Row) -> Verdict:
        if table.name in BY_ENGINE:
            return Verdict(row, DECIDED, BY_ENGINE[table.name])
        if table.kind == MESSAGES:
            file = self.maps.message(table.name)
            files = [] if file is None else [file]
            places = [] if file is None else list(self._message_places(file, row))
            notes = [one for file in self.maps.files for one in file.notes if one.key in (row.key, row.by)]
        else:
            files = [file for file in self.maps.files if table.name in file.tables]
            places = list(self._places(table, row, files))
            notes = [one for file in files for one in file.notes if one.key in (row.key, table.name)]
            notes += [one for file in self.maps.files for one in file.notes if one.key == table.name]
        return _judge(row, places, [one for one in notes if _is_about(one, row)])

    def _places(self, table: Table, row: Row, files: list[File]) -> Iterator[str]:
        """Rules that map a row of a segment or data type."""
        wanted = _names(row.target)
        numbers = re.findall(r"\d+$", row.key) if re.search(r"[-.]", row.key) else []
        for file in files:
            owners = {one.partition("[")[0] for one in file.tables} if table.kind == DATATYPES else {_owner(row.key)}
            for group in file.content.groups:
                for seen in self.maps.groups[group.name]:
                    if numbers and not any((owner, numbers[0]) in seen.reads for owner in owners):
                        continue
                    if self._hits(seen, group.name, wanted, files):
                        yield f"{file.name.removesuffix('.fml')}: {seen.place}"

    def _hits(self, seen: Seen, group: str, wanted: list[str], files: list[File]) -> bool:
        """Whether the path of a row begins with something that the rule writes, or is written around it."""
        if not wanted:
            return True
        written = self.maps.writes(seen) | seen.around | self.maps.around(group, files)
        return any(_same(wanted[0], one) for one in written)

    def _message_places(self, file: File, row: Row) -> Iterator[str]:
        """Rules of a message's map that take a segment where the row says."""
        segment = re.split(r"[.:/]", row.key)[-1]
        reached = self.maps.reached(frozenset((file.content.groups[0].name,)))
        for name in sorted(reached):
            for seen in self.maps.groups.get(name, []):
                if seen.path.rpartition(".")[2] != segment:
                    continue
                served = {table for one in self.maps.reached(seen.calls) for table in self.maps.file_of[one].tables}
                if not row.by or row.by in served:
                    yield f"{self.maps.file_of[name].name.removesuffix('.fml')}: {seen.place}"

    def states(self, names: list[str]) -> list[int]:
        """Numbers of rows in these tables that are mapped, decided, not mapped and open."""
        found = [one.state for name in names for one in self.verdicts[name]]
        return [found.count(state) for state in STATES]

    def count(self, names: list[str]) -> tuple[int, int]:
        """Rows that are mapped or decided, of all rows, in these tables."""
        states = [one.state for name in names for one in self.verdicts[name]]
        return sum(state in (MAPPED, DECIDED) for state in states), len(states)


def _judge(row: Row, places: list[str], notes: list[Note]) -> Verdict:
    texts = "; ".join(dict.fromkeys(one.text for one in notes))
    refused = [one for one in notes if not one.is_mapped and (one.path or not places)]
    if refused:
        return Verdict(row, NOT_MAPPED, refused[0].text)
    decided = [one for one in notes if one.is_mapped]
    where = ", ".join(dict.fromkeys(places[:_MOST_PLACES]))
    if decided:
        return Verdict(row, DECIDED, f"{texts} ({where})" if where else texts)
    return Verdict(row, MAPPED, where) if places else Verdict(row, OPEN, "")


def _is_about(note: Note, row: Row) -> bool:
    return not note.path or row.target.startswith(note.path)


def _owner(key: str) -> str:
    return re.split(r"[-.]", key)[0]


def _names(path: str) -> list[str]:
    """Element names of a path, without numbers and types; none for a path that means the value itself."""
    names = [re.sub(r"\[[^\]]*\]?", "", one).strip() for one in re.split(r"[.()|=]", path)]
    return [one for one in names if one and not one.startswith("$") and not one[0].isupper()]


def _same(name: str, element: str) -> bool:
    """`deceasedDateTime` is written as `deceased`."""
    return name == element or (name.startswith(element) and name[len(element) :][:1].isupper())


def report(coverage: Coverage) -> str:
    """The text of docs/reference/mapping-coverage.md: the numbers of rows by kind of table and state."""
    lines = [
        HEAD + "| tables | rows | mapped | decided | not mapped | open | mapped or decided |",
        "|---|---|---|---|---|---|---|",
    ]
    kinds = {one: [table.name for table in coverage.tables if table.kind == one] for one in KINDS}
    for kind, names in [*kinds.items(), ("all", [one.name for one in coverage.tables])]:
        done, every = coverage.count(names)
        states = " | ".join(map(str, coverage.states(names)))
        lines.append(f"| {kind} ({len(names)}) | {every} | {states} | {100 * done / every:.1f} % |")
    return "\n".join(lines) + "\n"


def rows(coverage: Coverage) -> str:
    """The text of docs/reference/mapping-coverage.csv: one line for each row of the guide."""
    written = io.StringIO()
    table_of = {table.name: table for table in coverage.tables}
    lines = csv.writer(written, lineterminator="\n")
    lines.writerow(COLUMNS)
    for kind in KINDS:
        for name, verdicts in coverage.verdicts.items():
            if table_of[name].kind == kind:
                lines.writerows((kind, name, one.row.key, _target(one, kind), one.state, one.text) for one in verdicts)
    return written.getvalue()


def _target(verdict: Verdict, kind: str) -> str:
    """The path of a row; of a message, with the segment table that it names."""
    return f"{verdict.row.target} {verdict.row.by}".strip() if kind == MESSAGES else verdict.row.target


def figures(coverage: Coverage) -> str:
    """The text of ipf/console/coverage.json: counts by state and the rows without a rule, one table a line."""
    lines = []
    for table in coverage.tables:
        counts = dict(zip(("mapped", "decided", "not_mapped", "open"), coverage.states([table.name]), strict=True))
        missing = [
            [one.row.key, _target(one, table.kind), one.text]
            for one in coverage.verdicts[table.name]
            if one.state in (OPEN, NOT_MAPPED)
        ]
        made = {"table": table.name, "kind": table.kind, **counts, "missing": missing}
        lines.append(json.dumps(made, ensure_ascii=False))
    return "[\n" + ",\n".join(lines) + "\n]\n"


def main(arguments: list[str]) -> int:
    """Write the report, or print the open rows of some tables, or what becomes of the fields of messages."""
    if arguments[:1] == ["--messages"]:
        print("\n".join(unread.report(arguments[1:])))
        return 0
    coverage = Coverage(Maps(folder("maps")))
    if not arguments:
        REPORT.write_text(report(coverage), encoding="utf-8")
        ROWS.write_text(rows(coverage), encoding="utf-8")
        FIGURES.write_text(figures(coverage), encoding="utf-8")
        unread.TABLE.write_text(unread.table(), encoding="utf-8")
        done, every = coverage.count([one.name for one in coverage.tables])
        print(
            f"{ROWS.name}: {done} of {every} rows; {unread.TABLE.name}: {len(unread.table().splitlines()) - 2} fields"
        )
        return 0
    for table in coverage.tables:
        if table.name.startswith(tuple(arguments)):
            done, every = coverage.count([table.name])
            print(f"{table.name}: {done} of {every}")
            for one in coverage.verdicts[table.name]:
                if one.state in (OPEN, NOT_MAPPED):
                    print(f"  {one.state:10} {one.row.key:14} {one.row.target}  {one.row.by}  {one.text}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
