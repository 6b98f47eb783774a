"""An audit record as an AuditEvent resource.

Type and subtype are those of RESTful operations.  The caller is the agent.  Entities are every resource written or
returned, the patients concerned, the request (`query`) and the correlation id.

Source: https://hl7.org/fhir/R4/auditevent.html, https://hl7.org/fhir/R4/valueset-audit-event-sub-type.html
"""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from uuid import UUID

from ipf.fhir.model.json import dumps
from ipf.ports import Json, Version
from ipf.ports.audit import Audit, unversioned
from ipf.ports.mapping import Origin

TYPE_SYSTEM = "http://terminology.hl7.org/CodeSystem/audit-event-type"
SUBTYPE_SYSTEM = "http://hl7.org/fhir/restful-interaction"
_SOURCE_SYSTEM = "http://terminology.hl7.org/CodeSystem/security-source-type"
_ENTITY_SYSTEM = "http://terminology.hl7.org/CodeSystem/audit-entity-type"
_ROLE_SYSTEM = "http://terminology.hl7.org/CodeSystem/object-role"
_PARTICIPATION = "http://terminology.hl7.org/CodeSystem/provenance-participant-type"
_DICOM = "http://dicom.nema.org/resources/ontology/DCM"

_QUERY_ROLE = {"system": _ROLE_SYSTEM, "code": "24", "display": "Query"}
_PATIENT_ROLE = {"system": _ROLE_SYSTEM, "code": "1", "display": "Patient"}
_RESOURCE_ROLE = {"system": _ROLE_SYSTEM, "code": "4", "display": "Domain Resource"}
_PERSON = {"system": _ENTITY_SYSTEM, "code": "1", "display": "Person"}
_OBJECT = {"system": _ENTITY_SYSTEM, "code": "2", "display": "System Object"}
_OTHER = {"system": _ENTITY_SYSTEM, "code": "4", "display": "Other"}
_SOURCE = {"system": _SOURCE_SYSTEM, "code": "4", "display": "Application Server"}


def version_of(audit: Audit) -> Version:
    """The record as the only version of a resource.  Its rid is negative: the store assigns positive ones."""
    return Version(
        -UUID(audit.id).int, "AuditEvent", audit.id, 1, audit.recorded_at, dumps(audit_event(audit)), method="POST"
    )


def audit_event(audit: Audit) -> Json:
    """The AuditEvent resource of a record."""
    began = audit.recorded_at - timedelta(milliseconds=audit.duration_ms)
    event: Json = {
        "resourceType": "AuditEvent",
        "id": audit.id,
        "meta": {"versionId": "1", "lastUpdated": _instant(audit.recorded_at)},
        "type": {"system": TYPE_SYSTEM, "code": "rest", "display": "RESTful Operation"},
        "subtype": [
            {"system": SUBTYPE_SYSTEM, "code": audit.context.interaction, "display": audit.context.interaction}
        ],
        "action": audit.context.action,
        "period": {"start": _instant(began), "end": _instant(audit.recorded_at)},
        "recorded": _instant(audit.recorded_at),
        "outcome": str(audit.context.outcome),
    }
    if audit.context.status:
        event["outcomeDesc"] = f"HTTP {audit.context.status}"
    event["agent"] = _agents(audit)
    event["source"] = {"site": audit.context.tenant, "observer": {"display": "ipf"}, "type": [_SOURCE]}
    event["entity"] = _entities(audit)
    return event


def _agents(audit: Audit) -> list[Json]:
    identifier = {"value": audit.context.agent}
    if audit.context.issuer:
        identifier = {"system": audit.context.issuer, "value": audit.context.agent}
    who: Json = {"reference": audit.context.user} if "/" in audit.context.user else {}
    who |= {"identifier": identifier, "display": audit.context.agent}
    person = bool(audit.context.user)
    code = {"system": _PARTICIPATION, "code": "enterer"} if person else {"system": _DICOM, "code": "110153"}
    agent: Json = {"type": {"coding": [code]}, "who": who, "altId": audit.context.agent}
    if audit.context.agent_name:
        agent["name"] = audit.context.agent_name
    agent["requestor"] = True
    if audit.context.address:
        agent["network"] = {"address": audit.context.address, "type": "2"}
    return [agent] if audit.origin is None or not audit.origin.agent_system else [agent, _sender(audit.origin)]


def _sender(origin: Origin) -> Json:
    """The system that a message came from: `agent-system` of its vendor profile, and MSH-3.1 of the message."""
    name, system = origin.agent_system, origin.agent_system
    identifier = {"system": system, "value": origin.source_system} if ":" in system else {"value": origin.source_system}
    source = {"system": _DICOM, "code": "110153", "display": "Source Role ID"}
    return {
        "type": {"coding": [source]},
        "who": {"identifier": identifier, "display": origin.source_system},
        "name": name,
        "requestor": False,
    }


def _entities(audit: Audit) -> list[Json]:
    entities: list[Json] = []
    shown = set()
    for reference in audit.entities:
        shown.add(unversioned(reference))
        is_patient = reference.startswith("Patient/")
        kind, role = (_PERSON, _PATIENT_ROLE) if is_patient else (_OBJECT, _RESOURCE_ROLE)
        entities.append({"what": {"reference": reference}, "type": kind, "role": role})
    entities += [
        {"what": {"reference": one}, "type": _PERSON, "role": _PATIENT_ROLE}
        for one in audit.patients
        if one not in shown
    ]
    if audit.request_target:
        query = b64encode(audit.request_target.encode("utf-8", "replace")).decode()
        entities.append({"type": _OBJECT, "role": _QUERY_ROLE, "query": query})
    if audit.correlation_id:
        identifier = {"type": {"text": "X-Correlation-Id"}, "value": audit.correlation_id}
        entities.append({"what": {"identifier": identifier}, "type": _OTHER})
    if audit.origin is not None and audit.origin.details:
        detail = [{"type": name, "valueString": text} for name, text in audit.origin.details]
        entities.append({"type": _OTHER, "name": "source message", "detail": detail})
    return entities


def _instant(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
