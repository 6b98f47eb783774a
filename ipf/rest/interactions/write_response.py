"""Responses to writes: the form that `Prefer: return=` names, with validation findings and the client's own secrets.

Source: https://hl7.org/fhir/R4/http.html#ops (return=minimal, representation, OperationOutcome)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ipf.fhir.model.json import dumps
from ipf.fhir.validation import Finding
from ipf.ports import Answer, Json, Request
from ipf.rest.http.exchange import VALIDATION, applied, location, preference, summary, version_headers
from ipf.rest.http.outcome import success
from ipf.rest.write.repository import Repository
from ipf.rest.write.unit import EntryResult

FORMS = ("minimal", "representation", "OperationOutcome")


def write_response(result: EntryResult, request: Request, findings: Sequence[Finding] = ()) -> Answer:
    """The response to a create or update, in the form of `Prefer: return=` (default: representation).

    Validation `findings` are in the OperationOutcome; in the header VALIDATION where the response has none.
    """
    version = result.version
    if version is None:
        return Answer(result.status)
    headers = [*version_headers(version), ("Location", location(version, request.base_url))]
    headers += applied(request, "return", *FORMS)
    form = preference(request, "return")
    if form == "OperationOutcome":
        return Answer(result.status, dumps(success(describe(result), findings)), headers, about=(version,))
    if findings:
        headers.append((VALIDATION, summary(findings)))
    if form == "minimal":
        return Answer(result.status, b"", headers, about=(version,))
    return Answer(result.status, version.body, headers, about=(version,))


def with_sent_secrets(answer: Answer, sent: Json, repository: Repository) -> Answer:
    """The response with the header values of a Subscription as the client sent them; elsewhere they are redacted."""
    if sent["resourceType"] != "Subscription" or not answer.body:
        return answer
    return replace(answer, body=repository.vault.with_sent_values(answer.body, sent))


def describe(result: EntryResult) -> str:
    """The outcome of an entry in one sentence."""
    version = result.version
    if version is None:
        return "the resource to delete does not exist"
    return f"{version.resource_type}/{version.id} {result.outcome} (version {version.version_id})"
