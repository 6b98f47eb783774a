"""AuditEvents as audit messages of DICOM, the XML that ATNA log servers read.

The elements of both correspond (the mapping of R4).  A record of many resources is several messages, so that each is
below the 32,768 bytes that every receiver accepts; each has the id of the record, its X-Request-Id and correlation id.

Source: DICOM PS3.15 A.5.1; https://hl7.org/fhir/R4/auditevent-mappings.html; IHE ITI TF-2 3.20.7 (`PurposeOfUse`).
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from xml.etree.ElementTree import Element, SubElement, tostring

from ipf.ports import Json

MOST_OBJECTS = 40
"""Resources, patients and requests in one message."""

LONGEST_TEXT = 512
_DECLARATION = b'<?xml version="1.0" encoding="UTF-8"?>'
_SYSTEMS = {"http://dicom.nema.org/resources/ontology/DCM": "DCM"}
_RFC_3881 = "RFC-3881"
_PATIENT, _SEARCH, _URI = ("2", "Patient Number"), ("10", "Search Criteria"), ("12", "URI")
_OBJECT_TYPES = "http://terminology.hl7.org/CodeSystem/audit-entity-type"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def audit_messages(event: Json) -> list[bytes]:
    """The messages of an AuditEvent, at least one."""
    named = [one for one in event["entity"] if "identifier" in one.get("what", {})]
    others = [one for one in event["entity"] if "identifier" not in one.get("what", {})]
    parts = [others[first : first + MOST_OBJECTS] for first in range(0, len(others), MOST_OBJECTS)] or [[]]
    return [_message(event, [*part, *named]) for part in parts]


def _message(event: Json, entities: Iterable[Json]) -> bytes:
    message = Element("AuditMessage")
    _event(message, event)
    for agent in event["agent"]:
        _participant(message, agent)
    source = event["source"]
    site = {"AuditEnterpriseSiteID": _text(source["site"])} if source.get("site") else {}
    sender = SubElement(message, "AuditSourceIdentification", site, AuditSourceID=_text(source["observer"]["display"]))
    for code in source["type"]:
        SubElement(sender, "AuditSourceTypeCode", {"csd-code": code["code"]})
    _object(message, f"AuditEvent/{event['id']}", _URI, "2", "13", "record")
    for entity in entities:
        _entity(message, entity)
    xml: bytes = tostring(message, "utf-8", xml_declaration=False)
    return _DECLARATION + xml


def _event(message: Element, event: Json) -> None:
    attributes = {
        "EventActionCode": event["action"], "EventDateTime": event["recorded"],
        "EventOutcomeIndicator": event["outcome"],
    }  # fmt: skip
    found = SubElement(message, "EventIdentification", attributes)
    _coded(found, "EventID", event["type"])
    for subtype in event["subtype"]:
        _coded(found, "EventTypeCode", subtype)
    if "outcomeDesc" in event:
        SubElement(found, "EventOutcomeDescription").text = _text(event["outcomeDesc"])
    for agent in event["agent"]:
        for purpose in agent.get("purposeOfUse", ()):
            _coded(found, "PurposeOfUse", purpose["coding"][0])


def _participant(message: Element, agent: Json) -> None:
    who, network = agent["who"], agent.get("network", {})
    user = who.get("reference") or who.get("identifier", {}).get("value") or who["display"]
    attributes = {"UserID": _text(user)}
    if "altId" in agent:
        attributes["AlternativeUserID"] = _text(agent["altId"])
    if "name" in agent:
        attributes["UserName"] = _text(agent["name"])
    attributes["UserIsRequestor"] = "true" if agent["requestor"] else "false"
    if network:
        attributes |= {
            "NetworkAccessPointID": _text(network["address"]), "NetworkAccessPointTypeCode": network["type"],
        }  # fmt: skip
    found = SubElement(message, "ActiveParticipant", attributes)
    for code in agent["type"]["coding"]:
        _coded(found, "RoleIDCode", code)


def _entity(message: Element, entity: Json) -> None:
    what, kind, role = entity.get("what", {}), entity["type"], entity.get("role", {}).get("code", "")
    type_code = kind["code"] if kind["system"] == _OBJECT_TYPES else "2" if role else "4"
    if "query" in entity:
        asked = b64decode(entity["query"]).decode("utf-8", "replace").partition("?")[0]
        _object(message, asked or "/", _SEARCH, type_code, role, query=entity["query"])
    elif "identifier" in what:
        name = what["identifier"].get("type", {}).get("text") or "X-Request-Id"
        _object(message, what["identifier"]["value"], (name, name, "HTTP"), "4", role, name)
    elif "reference" in what:
        _object(message, what["reference"], _PATIENT if role == "1" else _URI, type_code, role, what["reference"])
    else:
        name = entity["name"]
        found = _object(message, name, (name, name, "ipf"), type_code, role, name)
        for type_, value in _details(entity):
            SubElement(found, "ParticipantObjectDetail", type=_text(type_), value=b64encode(value.encode()).decode())


def _details(entity: Json) -> Iterator[tuple[str, str]]:
    for one in entity.get("detail", ()):
        yield one["type"], one["valueString"]


def _object(
    message: Element, id: str, id_type: tuple[str, ...], type_code: str, role: str, name: str = "", query: str = ""
) -> Element:
    code, words, system = (*id_type, _RFC_3881)[:3]
    attributes = {"ParticipantObjectID": _text(id), "ParticipantObjectTypeCode": type_code}
    if role:
        attributes["ParticipantObjectTypeCodeRole"] = role
    found = SubElement(message, "ParticipantObjectIdentification", attributes)
    _coded(found, "ParticipantObjectIDTypeCode", {"code": code, "system": system, "display": words})
    if query:
        SubElement(found, "ParticipantObjectQuery").text = query
    else:
        SubElement(found, "ParticipantObjectName").text = _text(name)
    return found


def _coded(parent: Element, name: str, code: Mapping[str, str]) -> None:
    system: str = code.get("system", "")
    attributes = {
        "csd-code": _text(code["code"]), "codeSystemName": _text(_SYSTEMS.get(system, system) or "unspecified"),
        "originalText": _text(code.get("display") or code["code"]),
    }  # fmt: skip
    SubElement(parent, name, attributes)


def _text(text: str) -> str:
    """Text that XML can hold; an id or a name beyond the bound is cut."""
    return _NOT_XML.sub("\ufffd", text[:LONGEST_TEXT])
