"""Audit messages of DICOM: each element and attribute by the rules of PS3.15 A.5.1, stated as a table; the frames."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from xml.etree import ElementTree

from twisted.trial.unittest import TestCase

from ipf.ports import Json
from ipf.ports.audit.records import Audit, AuditContext
from ipf.ports.messages.mapping import Origin
from ipf.security.audit.dicom import MOST_OBJECTS, audit_messages
from ipf.security.audit.event import audit_event
from ipf.security.audit.syslog import frames_of

BASE = "https://fhir.example.org/fhir"
Allowed = Callable[[str], object]


def one_of(*texts: str) -> Allowed:
    """One of these."""
    return frozenset(texts).__contains__


def numbers(last: int) -> Allowed:
    """1 to `last`."""
    return one_of(*map(str, range(1, last + 1)))


def token(text: str) -> bool:
    """Any text."""
    return bool(text)


def base64(text: str) -> bool:
    """Base64 of something."""
    return bool(b64decode(text, validate=True))


@dataclass
class Rule:
    """`required`, `optional`: attributes.  `children`: in order, (name, least, most or 0 for any number)."""

    required: dict[str, Allowed] = field(default_factory=dict)
    optional: dict[str, Allowed] = field(default_factory=dict)
    children: tuple[tuple[str, int, int], ...] = ()
    text: Allowed | None = None


CODED = Rule({"csd-code": token, "codeSystemName": token, "originalText": token}, {"displayName": token})
RULES = {
    "AuditMessage": Rule(children=(
        ("EventIdentification", 1, 1), ("ActiveParticipant", 1, 0), ("AuditSourceIdentification", 1, 1),
        ("ParticipantObjectIdentification", 0, 0),
    )),
    "EventIdentification": Rule(
        {"EventDateTime": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z").fullmatch,
         "EventOutcomeIndicator": one_of("0", "4", "8", "12")},
        {"EventActionCode": one_of("C", "R", "U", "D", "E")},
        # PurposeOfUse is IHE's addition (ITI TF-2 3.20.7)
        (("EventID", 1, 1), ("EventTypeCode", 0, 0), ("EventOutcomeDescription", 0, 1), ("PurposeOfUse", 0, 0)),
    ),
    "ActiveParticipant": Rule(
        {"UserID": token, "UserIsRequestor": one_of("true", "false")},
        {"AlternativeUserID": token, "UserName": token, "NetworkAccessPointID": token,
         "NetworkAccessPointTypeCode": numbers(5)},
        (("RoleIDCode", 0, 0), ("MediaIdentifier", 0, 1)),
    ),
    "AuditSourceIdentification": Rule(
        {"AuditSourceID": token}, {"AuditEnterpriseSiteID": token}, (("AuditSourceTypeCode", 0, 0),)
    ),
    "AuditSourceTypeCode": Rule({"csd-code": numbers(9)}),
    "ParticipantObjectIdentification": Rule(
        {"ParticipantObjectID": token},
        {"ParticipantObjectTypeCode": numbers(4), "ParticipantObjectTypeCodeRole": numbers(26),
         "ParticipantObjectDataLifeCycle": numbers(15), "ParticipantObjectSensitivity": token},
        (("ParticipantObjectIDTypeCode", 1, 1), ("ParticipantObjectName|ParticipantObjectQuery", 1, 1),
         ("ParticipantObjectDetail", 0, 0), ("ParticipantObjectDescription", 0, 0)),
    ),
    "EventOutcomeDescription": Rule(text=token), "ParticipantObjectName": Rule(text=token),
    "ParticipantObjectQuery": Rule(text=base64), "ParticipantObjectDetail": Rule({"type": token, "value": base64}),
    **dict.fromkeys(("EventID", "EventTypeCode", "RoleIDCode", "ParticipantObjectIDTypeCode", "PurposeOfUse"), CODED),
}  # fmt: skip


def faults(element: ElementTree.Element, path: str = "") -> Iterator[str]:
    """What is against the rules."""
    path, rule = f"{path}/{element.tag}", RULES[element.tag]
    known = rule.required | rule.optional
    for name in rule.required.keys() - element.keys():
        yield f"{path} lacks {name}"
    for name, value in element.items():
        if name not in known or not known[name](value):
            yield f"{path} {name}={value}"
    if (rule.text is None) != (not element.text) or (rule.text and not rule.text(element.text or "")):
        yield f"{path} has the text {element.text}"
    yield from _order(element, rule, path)
    for child in element:
        yield from faults(child, path)


def _order(element: ElementTree.Element, rule: Rule, path: str) -> Iterator[str]:
    left = [child.tag for child in element]
    for names, least, most in rule.children:
        count = 0
        while left and left[0] in names.split("|"):
            left.pop(0)
            count += 1
        if count < least or (most and count > most):
            yield f"{path} has {count} {names}"
    if left:
        yield f"{path} has {left} out of place"


def event_of(**changes: object) -> Json:
    """An AuditEvent; `changes` of the record or its context."""
    context = AuditContext(
        "north", "fhir", "search", "E", 0, 200, "u-17", "ward-app", "https://idp.example", "Practitioner/7",
        "192.0.2.9", ("urn:oid:2.16.840.1.113883.5.8|TREAT", "ETREAT"),
    )  # fmt: skip
    origin = Origin("urn:oid:1.2.3", "LAB", (("facility", "N\x00RTH"),))
    record = Audit(
        context, 10**12, "7000-8000-000000000001", 5, "0190a0b0-1111-4222-8333-444455556666",
        "Patient?name=M\u00fcller&x=<&>", ("Observation/2/_history/3",), ("Patient/1",), origin, "r-1",
    )  # fmt: skip
    of_context = {name: value for name, value in changes.items() if name in AuditContext._fields}
    own = {name: value for name, value in changes.items() if name not in of_context}
    return audit_event(record._replace(context=context._replace(**of_context), **own), BASE)


class MessageTests(TestCase):
    """Messages."""

    def test_every_kind_of_record(self) -> None:
        for changes in (
            {}, {"interaction": "create", "action": "C"}, {"interaction": "delete", "action": "D", "outcome": 4},
            {"user": ""}, {"user": "", "agent": "anonymous", "agent_name": "", "issuer": "", "outcome": 8},
            {"address": "", "interaction": "transaction", "purpose": ()},
            {"entities": (), "patients": (), "target": "", "status": 401},
            {"status": 0, "origin": None, "request_id": ""}, {"interaction": "message-retry", "surface": "admin"},
            {"target": "x\ufffe\ud800", "agent": "<&\">'\ufffe"}, {"entities": ("Patient/1/_history/2",)},
        ):  # fmt: skip
            (message,) = audit_messages(event_of(**changes))
            self.assertEqual(list(faults(ElementTree.fromstring(message))), [], changes)

    def test_the_rules_find_faults(self) -> None:
        (message,) = audit_messages(event_of())
        for old, new in (
            (b'EventOutcomeIndicator="0"', b'EventOutcomeIndicator="1"'), (b'UserIsRequestor="true"', b""),
            (b"EventID ", b"EventTypeCode "), (b'csd-code="rest"', b'code="rest"'),
            (b"<ParticipantObjectName>record</ParticipantObjectName>", b""),
            (b'NetworkAccessPointTypeCode="2"', b'NetworkAccessPointTypeCode="7"'),
        ):  # fmt: skip
            self.assertIn(old, message)
            self.assertNotEqual(list(faults(ElementTree.fromstring(message.replace(old, new, 1)))), [], old)

    def test_what_stands_in_a_message(self) -> None:
        event = event_of()
        root = ElementTree.fromstring(audit_messages(event)[0])
        (about, *participants) = list(root)[:4]
        self.assertEqual(dict(about.items()), {
            "EventActionCode": "E", "EventDateTime": "2001-09-09T01:46:40.000Z", "EventOutcomeIndicator": "0",
        })  # fmt: skip
        self.assertEqual([one.get("csd-code") for one in about], ["rest", "search", None, "TREAT", "ETREAT"])
        names = "UserID", "UserIsRequestor", "NetworkAccessPointID"
        self.assertEqual([tuple(map(one.get, names)) for one in participants], [
            ("Practitioner/7", "true", None), ("ward-app", "false", "192.0.2.9"), ("ipf", "false", BASE),
        ])  # fmt: skip
        self.assertEqual([one[0].get("csd-code") for one in participants], ["IRCP", "110153", "110152"])
        source = root.find("AuditSourceIdentification")
        self.assertEqual(source is not None and source.get("AuditEnterpriseSiteID"), "north")
        objects = root.findall("ParticipantObjectIdentification")
        names = "ParticipantObjectID", "ParticipantObjectTypeCodeRole"
        self.assertEqual([tuple(map(one.get, names)) for one in objects], [
            (f"AuditEvent/{event['id']}", "13"), ("Observation/2/_history/3", "4"), ("Patient/1", "1"),
            ("Patient", "24"),
            ("source message", None), ("r-1", None), ("0190a0b0-1111-4222-8333-444455556666", None),
        ])  # fmt: skip
        self.assertEqual(b64decode(objects[3][1].text or ""), b"Patient?name=M\xc3\xbcller&x=<&>")
        self.assertEqual(b64decode(objects[4][2].get("value", "")), b"N\x00RTH")

    def test_long_records_are_several_messages(self) -> None:
        """Together they name every resource; each is below what every receiver accepts."""
        names = tuple(f"Observation/{'0' * 60}{number}/_history/1" for number in range(500))
        event = event_of(entities=names, interaction="transaction")
        messages = audit_messages(event)
        self.assertEqual(len(messages), -(-502 // MOST_OBJECTS))
        shown = []
        for message in messages:
            self.assertLess(len(message), 32_768)
            root = ElementTree.fromstring(message)
            self.assertEqual(list(faults(root)), [])
            ids = [one.get("ParticipantObjectID") for one in root.findall("ParticipantObjectIdentification")]
            self.assertEqual((ids[0], ids[-2]), (f"AuditEvent/{event['id']}", "r-1"))
            shown += [one for one in ids if one in names]
        self.assertEqual(tuple(shown), names)


class FrameTests(TestCase):
    """Frames of RFC 5425 with messages of RFC 5424."""

    def test_frames(self) -> None:
        head = re.compile(
            rb"<(\d+)>1 2001-09-09T01:46:40\.000Z (\S+) ipf 17 IHE\+RFC-3881 - (<\?xml .*</AuditMessage>)", re.DOTALL
        )
        for changes, host, priority, shown in (
            ({}, "node-1.example.org", b"85", b"node-1.example.org"), ({"outcome": 4}, "n\u00f6 de", b"84", b"n--de"),
            ({}, "", b"85", b"-"),
            ({"entities": tuple(f"Basic/{one}" for one in range(300))}, "h" * 300, b"85", b"h" * 255),
        ):  # fmt: skip
            event = event_of(**changes)
            rest, found = frames_of(event, host, 17), []
            while rest:
                length, _, rest = rest.partition(b" ")
                found.append(rest[: int(length)])
                rest = rest[int(length) :]
            matched = [head.fullmatch(one) for one in found]
            self.assertEqual([one and one.groups() for one in matched],
                             [(priority, shown, xml) for xml in audit_messages(event)])  # fmt: skip
