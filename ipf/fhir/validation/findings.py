"""The findings of validation, and the state of one run.

Source: https://hl7.org/fhir/R4/operationoutcome.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from ipf.fhir.fhirpath import Expression, FhirPathError, Host

Json = dict[str, Any]
ERROR, WARNING, INFORMATION = "error", "warning", "information"
MAX_FINDINGS = 200
MAX_PROPOSALS = 50
MOST_STEPS = 5_000_000
"""Of FHIRPath, of all rules of one validation: about a second.  A Bundle of 440 KB from Synthea takes ten thousand."""
Meant = str | int | Decimal | None
"""A valid value that was probably meant."""
Propose = Callable[[], Meant]


class UsedUp(FhirPathError):
    """A rule is not evaluated: the steps of the validation are used up, which is one finding of it."""

    def __init__(self) -> None:
        super().__init__("the steps of the validation are used up")


@dataclass(frozen=True, slots=True)
class Finding:
    """`severity` error | warning | information; `code` of issue-type; `location` FHIRPath with indices.

    `text` names codes, urls and types, never names or numbers of a patient.  `meant`: the valid value that was probably
    meant, as it would be written; "" when nothing is near.
    """

    severity: str
    code: str
    text: str
    location: str
    meant: str = ""

    @property
    def words(self) -> str:
        """The text, and at its end the proposal: `; did you mean 'mm[Hg]'?`."""
        return f"{self.text}; did you mean {self.meant}?" if self.meant else self.text


@dataclass(frozen=True, slots=True)
class Policy:
    """Options of validation beyond R4.

    `markup`: texts that look like HTML are errors.  `example_urls` False: urls of example.org and the like are errors.
    `dead_links`: links of narratives that no browser can follow (urn:) are errors.  `unknown_extensions`: severity of
    extensions that are unknown to this server.  `exists(reference)`: called for relative references whose target is
    not in the document; False is an error.  `contained` False: contained resources are not validated.
    """

    markup: bool = False
    example_urls: bool = True
    dead_links: bool = False
    unknown_extensions: str = INFORMATION
    exists: Callable[[str], bool] | None = None
    contained: bool = True


class Contained:
    """The contained resources of a root by id, indexed at the first question."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._by_id: dict[str, Json] | None = None

    def find(self, id: str) -> Json | None:
        """The first contained resource with this id."""
        if self._by_id is None:
            found = self._root.get("contained")
            listed = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
            self._by_id = {str(one.get("id")): one for one in reversed(listed)}
        return self._by_id.get(id)


@dataclass(slots=True)
class Scope:
    """The resource under validation (`%resource`), its root (`%rootResource`), and the resolution of its references.

    `resolve(reference)`: a resource of the same document (contained, in the Bundle), or None.  `contained`: those of
    the root.
    """

    resource: Json
    root: Json
    resolve: Callable[[str], Json | None]
    location: str
    index: Any = None  # of a Bundle: its entries
    contained: Contained = field(default=None)  # type: ignore[assignment]  # made of the root where it is not given

    def __post_init__(self) -> None:
        if self.contained is None:
            self.contained = Contained(self.root)


@dataclass(slots=True)
class Steps:
    """The steps of FHIRPath that all rules of one validation share.

    `used_up_at`: the location of the first rule for which none were left; None: there are some.
    """

    steps_left: int = field(default_factory=lambda: MOST_STEPS)
    used_up_at: str | None = None


@dataclass(slots=True)
class Run:
    """One validation: its findings, its current scope and depth."""

    scope: Scope
    policy: Policy = field(default_factory=Policy)
    findings: list[Finding] = field(default_factory=list)
    conforming: dict[tuple[int, str], bool] = field(
        default_factory=dict
    )  # (id of a value, profile) -> conforms; True while it is being computed
    nested: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)  # (location, profiles) validated already
    depth: int = 0
    proposals: int = 0
    left: Steps = field(default_factory=Steps)

    def evaluate(
        self, expression: Expression, focus: Any, variables: Mapping[str, Any], host: Host, location: str
    ) -> list[Any]:
        """The result of an expression of a rule, within the steps of the validation.

        FhirPathError when it cannot be evaluated; UsedUp when the validation has no steps left.
        """
        left = self.left
        if left.used_up_at is not None:
            raise UsedUp
        try:
            return expression.evaluate(focus, variables, host=host, budget=left)
        finally:
            if left.steps_left < 0:
                left.used_up_at = location

    def error(self, code: str, text: str, location: str, propose: Propose | None = None) -> None:
        """Add a finding that makes the resource invalid."""
        self.add(ERROR, code, text, location, propose)

    def warn(self, code: str, text: str, location: str, propose: Propose | None = None) -> None:
        """Add a warning."""
        self.add(WARNING, code, text, location, propose)

    def note(self, code: str, text: str, location: str) -> None:
        """Add an information, such as a rule that could not be checked."""
        self.add(INFORMATION, code, text, location)

    def add(self, severity: str, code: str, text: str, location: str, propose: Propose | None = None) -> None:
        """Add a finding.  Warnings and information are dropped after MAX_FINDINGS, errors after twice as many.

        `propose` is called for the first MAX_PROPOSALS that have one, since it may compare a thousand codes.
        """
        count = len(self.findings)
        if count < MAX_FINDINGS or (severity == ERROR and count < 2 * MAX_FINDINGS):
            meant = ""
            if propose is not None and self.proposals < MAX_PROPOSALS:
                self.proposals += 1
                meant = _written(propose())
            self.findings.append(Finding(severity, code, text, location, meant))


def used_up(steps: Steps) -> list[Finding]:
    """The finding about the steps of a validation; none while there are some."""
    if steps.used_up_at is None:
        return []
    budget = f"the budget of {MOST_STEPS} steps of the rules of one validation is used up here"
    text = f"{budget}: further rules are not checked"
    return [Finding(ERROR, "too-costly", text, steps.used_up_at)]


def _written(meant: Meant) -> str:
    """A proposal as it would be written: texts in quotation marks, numbers and booleans as in JSON."""
    if meant is None or isinstance(meant, str):
        return f"'{meant}'" if meant else ""
    return str(meant).lower()


Check = Callable[[Any, Any, str, Run], None]  # value, its sibling property `_name`, location, run


def outcome(findings: Iterable[Finding]) -> Json:
    """The findings as an OperationOutcome; without findings it has one issue of severity information."""
    issues = [_issue(one) for one in findings]
    if not issues:
        issues = [{"severity": INFORMATION, "code": "informational", "diagnostics": "no issues were found"}]
    return {"resourceType": "OperationOutcome", "issue": issues}


def failed(findings: Iterable[Finding]) -> bool:
    """Whether any finding is an error."""
    return any(one.severity == ERROR for one in findings)


def _issue(finding: Finding) -> Json:
    issue = {"severity": finding.severity, "code": finding.code, "diagnostics": finding.words}
    return {**issue, "expression": [finding.location]} if finding.location else issue
