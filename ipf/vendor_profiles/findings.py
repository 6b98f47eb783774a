"""What is wrong with a profile, and where: file of the archive, place in that file, a sentence."""

from __future__ import annotations

from dataclasses import dataclass, field

from ipf.errors import Problem
from ipf.mapping.language.lexer import FmlError
from ipf.ports import Json

ERROR, WARNING = "error", "warning"
MOST = 200


@dataclass(frozen=True, slots=True)
class Finding:
    """`path`: file in the archive, "" = the archive.  `pointer`: into the manifest (JSON pointer), or `line:column`.

    `line`: of the file; 0 = not known.  An error keeps the profile from being loaded, a warning does not.
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
        if self.path.startswith("tests/"):  # for the log: what a case found may be of a person
            return f"{place}: {self.message.partition(': ')[0]}"
        return f"{place}{' ' if self.pointer[:1] == '/' else ':' if self.pointer else ''}{self.pointer}: {self.message}"


@dataclass(slots=True)
class Findings:
    """What was found so far."""

    items: list[Finding] = field(default_factory=list)

    def error(self, path: str, pointer: str, message: str, line: int = 0) -> None:
        """Something that must be put right."""
        self._add(Finding(path, pointer, message, ERROR, line))

    def warning(self, path: str, pointer: str, message: str, line: int = 0) -> None:
        """Something that whoever wrote the profile should know."""
        self._add(Finding(path, pointer, message, WARNING, line))

    def _add(self, finding: Finding) -> None:
        if len(self.items) < MOST:
            self.items.append(finding)
        elif len(self.items) == MOST:
            self.items.append(Finding("", "", f"there is more: these are the first {MOST} problems"))

    def problem(self, path: str, problem: Problem) -> None:
        """What a map or table was refused with; the line of a map that has one."""
        if isinstance(problem, FmlError):
            file = (problem.place or "").rsplit(":", 2)[0]
            self.error(file or path, f"{problem.line}:{problem.column}", problem.text, problem.line)
        else:
            where = f"{problem.place}: " if problem.place and problem.place != path else ""
            self.error(path, "", f"{where}{problem.text}")

    @property
    def errors(self) -> list[Finding]:
        """Those that keep the profile from being loaded."""
        return [one for one in self.items if one.severity == ERROR]
