"""Coverage of HL7's v2-to-FHIR guide by the maps of ipf: how many rows of its tables a rule maps, and which none does.

The figures are those of docs/reference/mapping-coverage.csv, written by `bin/mapping-coverage` and held by a test.
They are about the maps that ipf brings; what an installation changed is not in them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class TableCoverage:
    """One table of the guide (`PID[Patient]`).  `missing`: row, target and reason of each row without a rule."""

    table: str
    kind: str
    mapped: int
    decided: int
    not_mapped: int
    open: int
    missing: tuple[tuple[str, str, str], ...]

    @property
    def rows(self) -> int:
        """All rows with a target in FHIR."""
        return self.mapped + self.decided + self.not_mapped + self.open


@cache
def coverage() -> tuple[TableCoverage, ...]:
    """All tables, in the order of the guide."""
    found = json.loads((files("ipf.console") / "coverage.json").read_text("utf-8"))
    return tuple(TableCoverage(**{**one, "missing": tuple(map(tuple, one["missing"]))}) for one in found)


def coverage_of(file: str) -> tuple[TableCoverage, ...]:
    """The tables that the map file `messages/ADT_A01.fml` or `segments/PID_Patient.fml` is named after."""
    name = file.rpartition("/")[2].removesuffix(".fml")
    return tuple(one for one in coverage() if re.sub(r"\W+", "_", one.table).strip("_") == name)
