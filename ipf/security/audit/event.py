"""An audit record as an AuditEvent resource.

Type, subtype, action and outcome are those of RESTful operations; a notification is an export.  Agents: the person of
the token, the client, this server; the first is the requestor.  Entities: every resource written or returned, the
patients concerned, the request (`query`), X-Request-Id, the correlation id.  A record names the pattern of IHE that it
satisfies in `meta.profile` (`audit_patterns`).  Patterns tell entities apart by their type, so that in the record of a
search the results have their resource type as type, and in the record of one resource the request is `Other`.

Source: https://hl7.org/fhir/R4/auditevent.html, https://hl7.org/fhir/R4/valueset-audit-event-sub-type.html;
https://profiles.ihe.net/ITI/BALP/content.html
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

from ipf.fhir.model.json import dumps
from ipf.ports import Json, Version
from ipf.ports.audit.records import Audit, AuditContext, unversioned
from ipf.ports.messages.mapping import Origin
from ipf.security.audit.patterns import (
    DESTINATION,
    DISCLOSE,
    EXPORT,
    QUERY,
    REQUEST_ID_SYSTEM,
    SOURCE,
    Code,
    family_of,
    is_disclosure,
    profile_of,
    roles_of,
)
from ipf.security.audit.rules import BREAK_GLASS, ENGINE, ORIGIN_SYSTEM

TYPE_SYSTEM = "http://terminology.hl7.org/CodeSystem/audit-event-type"
SUBTYPE_SYSTEM = "http://hl7.org/fhir/restful-interaction"
OWN_SUBTYPE_SYSTEM = "urn:ipf:CodeSystem/audit-subtype"
_REST: Code = (TYPE_SYSTEM, "rest", "RESTful Operation")
_SOURCE_SYSTEM = "http://terminology.hl7.org/CodeSystem/security-source-type"
_ENTITY_SYSTEM = "http://terminology.hl7.org/CodeSystem/audit-entity-type"
_RESOURCE_TYPES = "http://hl7.org/fhir/resource-types"
_ROLE_SYSTEM = "http://terminology.hl7.org/CodeSystem/object-role"

_QUERY_ROLE = {"system": _ROLE_SYSTEM, "code": "24", "display": "Query"}
_PATIENT_ROLE = {"system": _ROLE_SYSTEM, "code": "1", "display": "Patient"}
_RESOURCE_ROLE = {"system": _ROLE_SYSTEM, "code": "4", "display": "Domain Resource"}
_PERSON = {"system": _ENTITY_SYSTEM, "code": "1", "display": "Person"}
_OBJECT = {"system": _ENTITY_SYSTEM, "code": "2", "display": "System Object"}
_OTHER = {"system": _ENTITY_SYSTEM, "code": "4", "display": "Other"}
_REQUEST_ID = {"system": REQUEST_ID_SYSTEM, "code": "XrequestId"}
_SOURCE = {"system": _SOURCE_SYSTEM, "code": "4", "display": "Application Server"}
_BREAK_THE_GLASS = {
    "system": "http://terminology.hl7.org/CodeSystem/v3-ActReason",
    "code": "BTG",
    "display": "break the glass",
}
_IP_ADDRESS, _URI = "2", "5"
_SERVER: Json = {"display": "ipf"}


def version_of(audit: Audit, base_url: str) -> Version:
    """The record as the only version of a resource.  Its rid is negative: the store assigns positive ones."""
    body = dumps(audit_event(audit, base_url))
    return Version(-UUID(audit.id).int, "AuditEvent", audit.id, 1, audit.recorded_at, body, method="POST")


def audit_event(audit: Audit, base_url: str) -> Json:
    """The AuditEvent resource of a record.  `base_url`: the address of this server."""
    began = audit.recorded_at - timedelta(milliseconds=audit.duration_ms)
    tag = [{"system": ORIGIN_SYSTEM, "code": ENGINE}]
    meta: Json = {"versionId": "1", "lastUpdated": _instant(audit.recorded_at), "tag": tag}
    profile = profile_of(audit)
    event: Json = {
        "resourceType": "AuditEvent",
        "id": audit.id,
        "meta": meta if profile is None else {**meta, "profile": [profile]},
        "type": _coding(EXPORT if is_disclosure(audit) else _REST),
        "subtype": [*map(_coding, _subtypes(audit))],
        "action": audit.context.action,
        "period": {"start": _instant(began), "end": _instant(audit.recorded_at)},
        "recorded": _instant(audit.recorded_at),
        "outcome": str(audit.context.outcome),
    }
    if audit.context.interaction == BREAK_GLASS:
        event["purposeOfEvent"] = [{"coding": [_BREAK_THE_GLASS]}]
    if audit.context.status:
        event["outcomeDesc"] = f"HTTP {audit.context.status}"
    event["agent"] = [*_agents(audit, base_url)]
    event["source"] = {"site": audit.context.tenant, "observer": _SERVER, "type": [_SOURCE]}
    event["entity"] = [*_entities(audit), *_identifiers(audit)]
    return event


def _subtypes(audit: Audit) -> list[Code]:
    interaction = audit.context.interaction
    if is_disclosure(audit):
        return [(OWN_SUBTYPE_SYSTEM, interaction, interaction), DISCLOSE]
    if interaction == BREAK_GLASS:
        return [(OWN_SUBTYPE_SYSTEM, interaction, interaction)]
    return [(SUBTYPE_SYSTEM, interaction, interaction)]


def _agents(audit: Audit, base_url: str) -> Iterator[Json]:
    """The person, the client, this server, the sender of a message; the first has made the request."""
    context, roles = audit.context, roles_of(audit)
    if is_disclosure(audit):
        yield from _sender_and_receiver(context, base_url)
        return
    requestor: Json = {"altId": context.agent, "requestor": True}
    if context.purpose:
        requestor["purposeOfUse"] = [{"coding": [_purpose(one)]} for one in context.purpose]
    client: Json = {"type": _concept(roles.client), "who": _who(context, context.agent)}
    if context.user:
        reference = {"reference": context.user} if "/" in context.user else {}
        yield {"type": _concept(roles.user), "who": reference | _who(context, context.agent), **requestor}
        client["who"] = _who(context, context.agent_name or context.agent)
        requestor = {"requestor": False}
    if context.agent_name:
        client["name"] = context.agent_name
    client |= requestor
    if context.address:
        client["network"] = {"address": context.address, "type": _IP_ADDRESS}
    yield client
    network = {"address": base_url, "type": _URI}
    yield {"type": _concept(roles.server), "who": _SERVER, "requestor": False, "network": network}
    if audit.origin is not None and audit.origin.agent_system:
        yield _sender(audit.origin)


def _sender_and_receiver(context: AuditContext, base_url: str) -> Iterator[Json]:
    """Of a notification: this server, and the endpoint or the websocket client."""
    server = {"type": _concept(SOURCE), "who": _SERVER, "network": {"address": base_url, "type": _URI}}
    is_client = context.agent != _SERVER["display"]
    yield {**server, "requestor": not is_client}
    who = _who(context, context.agent) if is_client else {"display": context.address}
    receiver: Json = {"type": _concept(DESTINATION), "who": who, "requestor": is_client}
    if context.user and "/" in context.user:
        receiver["who"] = {"reference": context.user} | who
    if is_client:
        receiver["altId"] = context.agent
    yield {**receiver, "network": {"address": context.address, "type": _URI}}


def _who(context: AuditContext, agent: str) -> Json:
    identifier = {"system": context.issuer, "value": agent} if context.issuer else {"value": agent}
    return {"identifier": identifier, "display": agent}


def _purpose(text: str) -> Json:
    system, _, code = text.rpartition("|")
    return {"system": system, "code": code} if system else {"code": code}


def _coding(code: Code) -> Json:
    return dict(zip(("system", "code", "display"), code, strict=True))


def _concept(code: Code) -> Json:
    return {"coding": [_coding(code)]}


def _sender(origin: Origin) -> Json:
    """The system that a message came from: `agent-system` of its vendor profile, and MSH-3.1 of the message."""
    name, system = origin.agent_system, origin.agent_system
    identifier = {"system": system, "value": origin.source_system} if ":" in system else {"value": origin.source_system}
    who = {"identifier": identifier, "display": origin.source_system}
    return {"type": _concept(SOURCE), "who": who, "name": name, "requestor": False}


def _entities(audit: Audit) -> Iterator[Json]:
    """The resources, the patients, the request."""
    family = family_of(audit)
    is_one = bool(family) and family != QUERY
    shown = set()
    for reference in audit.entities:
        kind = reference.partition("/")[0]
        if kind == "Patient" and not is_one:
            shown.add(unversioned(reference))
            yield _patient(reference)
        else:
            code = {"system": _RESOURCE_TYPES, "code": kind, "display": kind} if family == QUERY else _OBJECT
            yield {"what": {"reference": reference}, "type": code, "role": _RESOURCE_ROLE}
    for one in audit.all_patients:
        if one not in shown:
            yield _patient(one)
    if audit.request_target and not is_disclosure(audit):
        query = b64encode(audit.request_target.encode("utf-8", "replace")).decode()
        yield {"type": _OTHER if is_one else _OBJECT, "role": _QUERY_ROLE, "query": query}


def _patient(reference: str) -> Json:
    return {"what": {"reference": reference}, "type": _PERSON, "role": _PATIENT_ROLE}


def _identifiers(audit: Audit) -> Iterator[Json]:
    """X-Request-Id, which is the correlation id where the client sent none; the correlation id; the source message
    or what the other entities leave out of the request."""
    is_request = bool(audit.context.address) and not is_disclosure(audit)
    request_id = audit.request_id or audit.correlation_id
    if is_request and request_id:
        yield {"what": {"identifier": {"value": request_id}}, "type": _REQUEST_ID}
    if audit.correlation_id:
        identifier = {"type": {"text": "X-Correlation-Id"}, "value": audit.correlation_id}
        yield {"what": {"identifier": identifier}, "type": _OTHER}
    if audit.origin is not None and audit.origin.details:
        detail = [{"type": name, "valueString": text} for name, text in audit.origin.details]
        yield {"type": _OTHER, "name": _name_of_details(audit, audit.origin), "detail": detail}


def _name_of_details(audit: Audit, origin: Origin) -> str:
    if audit.context.interaction == BREAK_GLASS:
        return BREAK_GLASS
    return "source message" if origin.source_system or origin.agent_system else "request"


def _instant(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
