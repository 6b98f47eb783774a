"""What validation finds, and the state of one run.

Source: https://hl7.org/fhir/R4/operationoutcome.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
ERROR, WARNING, INFORMATION = "error", "warning", "information"
MOST_FINDINGS = 200


@dataclass(frozen=True, slots=True)
class Finding:
    """`severity` error | warning | information; `code` of issue-type; `place` FHIRPath with indices.

    `text` names codes, urls and types, never a patient's names or numbers.
    """

    severity: str
    code: str
    text: str
    place: str


@dataclass(frozen=True, slots=True)
class Policy:
    """Options of validation beyond R4.

    `markup`: texts that look like HTML are errors.  `example_urls` False: urls of example.org and the like are errors.
    `dead_links`: links of narratives that no browser can follow (urn:) are errors.  `unknown_extensions`: severity of
    extensions without a definition here.  `exists(reference)`: asked about relative references that are not in the
    document; False is an error.  `contained` False: contained resources are not looked at.
    """

    markup: bool = False
    example_urls: bool = True
    dead_links: bool = False
    unknown_extensions: str = INFORMATION
    exists: Callable[[str], bool] | None = None
    contained: bool = True


@dataclass(slots=True)
class Scope:
    """The resource that is being looked at: `%resource`, the one around it, and how references are resolved in it.

    `resolve(reference)`: a resource of the same document (contained, in the Bundle), or None.
    """

    resource: Json
    root: Json
    resolve: Callable[[str], Json | None]
    place: str
    index: Any = None  # of a Bundle: its entries


@dataclass(slots=True)
class Run:
    """One validation: what was found, and where it is."""

    scope: Scope
    policy: Policy = field(default_factory=Policy)
    findings: list[Finding] = field(default_factory=list)
    conforming: dict[tuple[int, str], bool] = field(default_factory=dict)  # answers about targets, None while asked
    depth: int = 0

    def error(self, code: str, text: str, place: str) -> None:
        """Something that makes the resource invalid."""
        self.add(ERROR, code, text, place)

    def warn(self, code: str, text: str, place: str) -> None:
        """Something that should be otherwise."""
        self.add(WARNING, code, text, place)

    def note(self, code: str, text: str, place: str) -> None:
        """Something to know, such as what could not be checked."""
        self.add(INFORMATION, code, text, place)

    def add(self, severity: str, code: str, text: str, place: str) -> None:
        """Keep one finding; beyond MOST_FINDINGS only errors are kept, and of them twice as many."""
        count = len(self.findings)
        if count < MOST_FINDINGS or (severity == ERROR and count < 2 * MOST_FINDINGS):
            self.findings.append(Finding(severity, code, text, place))


Check = Callable[[Any, Any, str, Run], None]  # value, what stands beside it under _name, place, run


def outcome(findings: Iterable[Finding]) -> Json:
    """An OperationOutcome; without findings it says that nothing was found."""
    issues = [_issue(one) for one in findings]
    if not issues:
        issues = [{"severity": INFORMATION, "code": "informational", "diagnostics": "nothing was found to be wrong"}]
    return {"resourceType": "OperationOutcome", "issue": issues}


def failed(findings: Iterable[Finding]) -> bool:
    """Whether there is an error among them."""
    return any(one.severity == ERROR for one in findings)


def _issue(finding: Finding) -> Json:
    issue = {"severity": finding.severity, "code": finding.code, "diagnostics": finding.text}
    return {**issue, "expression": [finding.place]} if finding.place else issue
