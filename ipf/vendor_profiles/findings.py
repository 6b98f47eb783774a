"""Findings of a validation: file of the archive, position in the file, message."""

from __future__ import annotations

from dataclasses import dataclass, field

from ipf.errors import Problem
from ipf.mapping.language.lexer import FmlError
from ipf.ports import Json

ERROR, WARNING, NOTE = "error", "warning", "information"
MOST = 200


@dataclass(frozen=True, slots=True)
class Finding:
    """`path`: file in the archive, "" = the archive.  `pointer`: JSON pointer into the manifest, or `line:column`.

    `line`: line of the file; 0 = unknown.  An error prevents that the profile is used; a warning or a note (severity
    `information`: something was read in another notation) does not.
    """

    path: str
    pointer: str
    message: str
    severity: str = ERROR
    line: int = 0

    def as_json(self) -> Json:
        """As the admin API shows it."""
        return {
            "path": self.path,
            "pointer": self.pointer,
            "message": self.message,
            "severity": self.severity,
            "line": self.line or None,
        }

    def __str__(self) -> str:
        place = self.path or "archive"
        if self.line and not self.pointer[:1].isdigit():
            place += f":{self.line}"
        if self.path.startswith("tests/"):  # for the log: the difference may hold patient data
            return f"{place}: {self.message.partition(': ')[0]}"
        return f"{place}{' ' if self.pointer[:1] == '/' else ':' if self.pointer else ''}{self.pointer}: {self.message}"


@dataclass(slots=True)
class Findings:
    """Findings so far."""

    items: list[Finding] = field(default_factory=list)

    def error(self, path: str, pointer: str, message: str, line: int = 0) -> None:
        """Add an error."""
        self._add(Finding(path, pointer, message, ERROR, line))

    def warning(self, path: str, pointer: str, message: str, line: int = 0) -> None:
        """Add a warning."""
        self._add(Finding(path, pointer, message, WARNING, line))

    def note(self, path: str, pointer: str, message: str, line: int = 0) -> None:
        """Add a note."""
        self._add(Finding(path, pointer, message, NOTE, line))

    def _add(self, finding: Finding) -> None:
        if len(self.items) < MOST:
            self.items.append(finding)
        elif len(self.items) == MOST:
            self.items.append(Finding("", "", f"only the first {MOST} problems are listed"))

    def problem(self, path: str, problem: Problem) -> None:
        """Add an error of a map or table, with its line if known."""
        if isinstance(problem, FmlError):
            file = (problem.place or "").rsplit(":", 2)[0]
            self.error(file or path, f"{problem.line}:{problem.column}", problem.text, problem.line)
        else:
            where = f"{problem.place}: " if problem.place and problem.place != path else ""
            self.error(path, "", f"{where}{problem.text}")

    @property
    def errors(self) -> list[Finding]:
        """The errors."""
        return [one for one in self.items if one.severity == ERROR]
