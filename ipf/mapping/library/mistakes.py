"""The mistake of a map, with its place, as the admin API shows it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ipf.errors import Problem
from ipf.ports import Json

_PLACE = re.compile(r"(?P<file>.*):(?P<line>\d+):(?P<column>\d+)")


@dataclass(frozen=True, slots=True)
class Mistake:
    """Why a text is no map, or a message cannot be mapped.  `line`, `column`: in the text, from 1; None elsewhere."""

    text: str
    file: str = ""
    line: int | None = None
    column: int | None = None

    def as_json(self) -> Json:
        """As the admin API shows it."""
        return {"message": self.text, "file": self.file or None, "line": self.line, "column": self.column}


def mistake_of(problem: Problem) -> Mistake:
    """A Problem of a map, with its place where it names one (`FILE:LINE:COLUMN`)."""
    found = _PLACE.fullmatch(problem.place or "")
    if found is None:
        return Mistake(str(problem))
    return Mistake(problem.text, found["file"], int(found["line"]), int(found["column"]))
