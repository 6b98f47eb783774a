"""The tables of HL7's v2-to-FHIR guide, where they lie beside the project: keys and target paths of their rows."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.reference import REFERENCE

GUIDE = REFERENCE / "v2-to-fhir"

MESSAGES, SEGMENTS, DATATYPES = "messages", "segments", "datatypes"

_IDENTIFIER, _TARGET, _SEGMENT_MAP, _DATATYPE_MAP = 1, 9, 10, 14


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table that has a target in FHIR.

    `key`: `PID-10`, `XPN.7`, `ADT_A01.PID`, or the bare name where the row is about the whole.  `target`: the path in
    FHIR.  `by`: the table that the row hands over to, such as `CWE[CodeableConcept]`; empty when there is none.
    """

    key: str
    target: str
    by: str


@dataclass(frozen=True, slots=True)
class Table:
    """`rows`: those with a target.  `others`: how many rows have none, so that nothing is asked of a map.

    `keys`: of all rows.
    """

    kind: str
    name: str
    rows: tuple[Row, ...]
    others: int
    keys: frozenset[str]


def tables(kind: str) -> dict[str, Table]:
    """All tables of a kind, by name."""
    found = (_table(kind, path) for path in sorted((GUIDE / kind).glob("*.csv")))
    return {one.name: one for one in found}


def _table(kind: str, path: Path) -> Table:
    name = path.name.partition("_ ")[2].rpartition(" - ")[0]
    rows: list[Row] = []
    others = 0
    keys: set[str] = set()
    with path.open(encoding="utf-8-sig", newline="") as file:
        for cells in _content(file):
            keys.add(cells[_IDENTIFIER].strip())
            target = " ".join(cells[_TARGET].split())
            if not target:
                others += 1
                continue
            by = cells[_SEGMENT_MAP if kind == MESSAGES else _DATATYPE_MAP].strip()
            rows.append(Row(cells[_IDENTIFIER].strip() or name.partition("[")[0], target, by))
    return Table(kind, name, tuple(rows), others, frozenset(keys) | {name.partition("[")[0]})


def _content(file: Iterator[str]) -> Iterator[list[str]]:
    """Rows below the two lines of headings, each filled up to the same length."""
    for number, cells in enumerate(csv.reader(file)):
        if number > 1 and any(cell.strip() for cell in cells):
            yield cells + [""] * 20


def used(messages: dict[str, Table], segments: dict[str, Table], datatypes: dict[str, Table]) -> list[Table]:
    """The message tables, the segment tables that they name, and the data type tables that those name, and so on."""
    found = list(messages.values())
    wanted = {one.by for table in found for one in table.rows if one.by}
    found += [table for name, table in segments.items() if name in wanted or name in ALSO]
    by_lower = {name.lower(): table for name, table in datatypes.items()}
    seen: dict[str, Table] = {}
    asked = [row.by for table in found for row in table.rows if table.kind == SEGMENTS]
    while asked:
        table = by_lower.get(asked.pop().lower())
        if table is not None and table.name not in seen:
            seen[table.name] = table
            asked += [row.by for row in table.rows]
    return found + [seen[name] for name in sorted(seen)]


ALSO = frozenset(
    (
        "IAM[AllergyIntolerance]",
        "MSA[MessageHeader]",
        "SFT[MessageHeader]",
        "RXR[MedicationRequest]",
        "TQ1[MedicationRequest]",
        "ORC[MedicationAdministration]",
    )
)
"""Segment tables of segments that our messages have, though no message table of the guide names them."""
