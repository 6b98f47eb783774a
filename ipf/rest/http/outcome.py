"""OperationOutcome resources: from a Problem, after a success, for warnings.

Source: https://hl7.org/fhir/R4/operationoutcome.html
"""

from __future__ import annotations

from collections.abc import Sequence

from ipf.errors import Category, Issue, Problem
from ipf.fhir.model.json import dumps
from ipf.fhir.validation import Finding, outcome
from ipf.ports import Answer, Json
from ipf.security.access import Unauthorized


def operation_outcome(problem: Problem) -> Json:
    """The OperationOutcome of a problem, with one issue per finding."""
    issues = [_issue(issue, problem.category) for issue in problem.issues]
    return {"resourceType": "OperationOutcome", "issue": issues}


def refuse(problem: Problem) -> Answer:
    """The HTTP response of a failed request."""
    headers = [("Retry-After", "1")] if problem.category is Category.UNAVAILABLE else []
    if problem.category is Category.UNAUTHORIZED:
        challenge = problem.challenge if isinstance(problem, Unauthorized) else ""
        headers.append(("WWW-Authenticate", f"Bearer {challenge}".strip()))
    return Answer(problem.rendering.http_status, dumps(operation_outcome(problem)), headers)


def success(text: str, findings: Sequence[Finding] = ()) -> Json:
    """The OperationOutcome of `Prefer: return=OperationOutcome`, with validation findings."""
    issue = {"severity": "information", "code": "informational", "diagnostics": text}
    found = outcome(findings)["issue"] if findings else []
    return {"resourceType": "OperationOutcome", "issue": [issue, *found]}


def warning(texts: Sequence[str]) -> Json:
    """The OperationOutcome of warnings, such as ignored search parameters."""
    issues = [{"severity": "warning", "code": "informational", "diagnostics": text} for text in texts]
    return {"resourceType": "OperationOutcome", "issue": issues}


def _issue(issue: Issue, default: Category) -> Json:
    category = issue.category or default
    severity = "fatal" if category is Category.INTERNAL else "error"
    code = issue.code or category.value.issue_type
    found: Json = {"severity": issue.severity or severity, "code": code, "diagnostics": issue.text}
    if issue.place:
        found["expression"] = [issue.place]
    return found
