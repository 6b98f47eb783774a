"""Problem in, OperationOutcome out: the one place where the FHIR side words a failure.

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
    """The OperationOutcome resource of a problem: one issue for each finding."""
    issues = [_issue(issue, problem.category) for issue in problem.issues]
    return {"resourceType": "OperationOutcome", "issue": issues}


def refuse(problem: Problem) -> Answer:
    """The HTTP answer to a request that failed."""
    headers = [("Retry-After", "1")] if problem.category is Category.UNAVAILABLE else []
    if problem.category is Category.UNAUTHORIZED:
        challenge = problem.challenge if isinstance(problem, Unauthorized) else ""
        headers.append(("WWW-Authenticate", f"Bearer {challenge}".strip()))
    return Answer(problem.rendering.http_status, dumps(operation_outcome(problem)), headers)


def success(text: str, findings: Sequence[Finding] = ()) -> Json:
    """The OperationOutcome that `Prefer: return=OperationOutcome` asks for, with what validation found."""
    issue = {"severity": "information", "code": "informational", "diagnostics": text}
    found = outcome(findings)["issue"] if findings else []
    return {"resourceType": "OperationOutcome", "issue": [issue, *found]}


def warning(texts: Sequence[str]) -> Json:
    """Remarks on an answer that is given all the same, such as parameters of a search that were ignored."""
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
