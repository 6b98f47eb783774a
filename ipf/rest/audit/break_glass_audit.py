"""The records of a break-glass request besides those of the interaction: one for each patient whom it touched.

They name the reason, and are made whatever the settings say of reads.

Source: https://hl7.org/fhir/R4/auditevent.html (purposeOfEvent); v3-ActReason BTG
"""

from __future__ import annotations

from ipf.ports import Answer, Request
from ipf.ports.audit.records import ADMIN, FHIR, Audit
from ipf.ports.messages.mapping import Origin
from ipf.rest.http.break_glass import reason_of
from ipf.security.audit.records import Operation, operation_records
from ipf.security.audit.rules import BREAK_GLASS, AuditRules, NewIdSuffix, context_of
from ipf.security.audit.target import Asked


def break_glass_records(
    rules: AuditRules,
    request: Request,
    answer: Answer,
    seconds: float,
    ended: int,
    new_id_suffix: NewIdSuffix,
    asked: Asked,
) -> list[Audit]:
    """The records of a request of a caller with `break_glass`.  `ended`: milliseconds since 1970."""
    surface = ADMIN if rules.has_no_tenant(request.caller) else FHIR
    context = context_of(request.tenant, request.caller, surface, BREAK_GLASS, "E", answer.status, request.address)
    reason = Origin("", "", (("reason", reason_of(request)),))
    operation = Operation(
        context, ended, int(seconds * 1000), request.correlation_id, asked, reason, request.request_id,
    )  # fmt: skip
    return operation_records(operation, answer.about, new_id_suffix)
