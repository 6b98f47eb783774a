"""Which rule made an element of a result, and from which field: for findings of validation.

What arrives: findings about the Bundle of a message, located in FHIRPath with indexes
(`Bundle.entry[2].resource.name[0].period`), and the trace of the same message.  What leaves: for each finding the
element, and the step of the trace that made it, or the nearest element that holds it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ipf.fhir.validation.findings import Finding
from ipf.mapping.runtime.trace import Step
from ipf.ports import Json

_ENTRY = re.compile(r"Bundle\.entry\[(\d+)\]\.resource\b\.?")
_OF_TYPE = re.compile(r"\.(\w+)\.ofType\((\w)(\w*)\)")
_INDEX = re.compile(r"\[\d+\]")
_LAST = re.compile(r"(\[\d+\]|\.?\w+)$")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_INVARIANT = re.compile(r"([a-z]{2,4}-\d+[a-z]?): ")


Check = Callable[[Json], list[Finding]]
"""Validates a resource."""

Checks = Callable[[str], Awaitable[Check]]
"""The validation of a tenant: its profiles and value sets may differ."""


@dataclass(frozen=True, slots=True)
class ExplainedFinding:
    """A finding, the element that it is about (`Patient.name[0].period`), and the step that made it (None: unknown).

    `entry`: index of the Bundle entry, None for the Bundle itself.
    """

    finding: Finding
    entry: int | None
    element: str
    step: Step | None = None

    @property
    def rule(self) -> str:
        """The key of the violated invariant (`per-1`), else the issue type of the finding."""
        found = _INVARIANT.match(self.finding.text)
        return found[1] if found else self.finding.code

    @property
    def origin(self) -> str:
        """File and line of the rule and the fields that it read; empty when unknown."""
        if self.step is None:
            return ""
        at = self.step.at
        fields = ", ".join(self.step.sources)
        return f"{at.file or at.map_url}:{at.line} ({at.group} '{at.rule}')" + (f" from {fields}" if fields else "")

    @property
    def text(self) -> str:
        """Element, violated rule and origin, without data of the message: it may be logged."""
        return f"{self.element}: {self.reason}"

    @property
    def path(self) -> str:
        """The element without indexes."""
        return _INDEX.sub("", self.element)

    @property
    def reason(self) -> str:
        """Violated rule and origin."""
        said = _QUOTED.sub("the value", self.finding.text) if self.finding.code != "code-invalid" else self._coded()
        made_by = f"; made by {self.origin}" if self.origin else ""
        return f"{said}{made_by}"

    def _coded(self) -> str:
        """A finding about a code, which may be any text that a sender put into the field."""
        value_set = self.finding.text.rpartition(" ")[2]
        return f"no code of {value_set}" if "/ValueSet/" in value_set else "an invalid code"

    def as_json(self) -> Json:
        """For operators: the text of the finding in full."""
        made: Json = {"severity": self.finding.severity, "rule": self.rule, "element": self.element}
        made |= {"entry": self.entry, "text": self.finding.words}
        if self.step is not None:
            at = self.step.at
            made |= {"map": at.map_url, "file": at.file, "line": at.line, "group": at.group, "map_rule": at.rule}
            made["sources"] = list(self.step.sources)
        return made


def explained(bundle: Json, findings: Sequence[Finding], steps: Sequence[Step] = ()) -> list[ExplainedFinding]:
    """The findings with their origins; without steps only their elements."""
    made_by = _by_place(steps)
    return [_explained(bundle, one, made_by) for one in findings]


def _by_place(steps: Sequence[Step]) -> dict[tuple[int | None, str], Step]:
    """The last step that made each element."""
    return {(made.entry, made.path): step for step in steps for made in step.produced}


def _explained(bundle: Json, finding: Finding, made_by: dict[tuple[int | None, str], Step]) -> ExplainedFinding:
    found = _ENTRY.match(finding.location)
    if found is None:
        return ExplainedFinding(finding, None, finding.location)
    entry = int(found[1])
    resource_type = str(bundle["entry"][entry]["resource"].get("resourceType"))
    element = f"{resource_type}.{finding.location[found.end() :]}".removesuffix(".")
    path = _OF_TYPE.sub(lambda match: f".{match[1]}{match[2].upper()}{match[3]}", element)
    return ExplainedFinding(finding, entry, element, _nearest(made_by, entry, path))


def _nearest(made_by: dict[tuple[int | None, str], Step], entry: int, path: str) -> Step | None:
    """The step that made the element, else the one that made the nearest element around it."""
    while path:
        if (entry, path) in made_by:
            return made_by[entry, path]
        path = _LAST.sub("", path)
    return None
