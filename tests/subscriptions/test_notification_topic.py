"""Notification Bundles; test names contain the requirement numbers of the guide (requirements-server.csv)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import loads
from ipf.fhir.xml.writer import from_xml
from ipf.ports import HANDSHAKE, HEARTBEAT, Event, Json, Version
from ipf.subscriptions.guide import CONTENT, MAX_COUNT, STATUS_R4, TIMEOUT
from ipf.subscriptions.guide import HEARTBEAT as PERIOD
from ipf.subscriptions.notification import notification
from ipf.subscriptions.notification_topic import Form, NotificationContext, bundle, form_of
from ipf.subscriptions.terms import terms_of

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BASE = "https://fhir.example.org/fhir"
TOPIC = "http://example.org/topic"
BODY = b'{"resourceType":"Encounter","id":"e1","meta":{"versionId":"2"},"status":"finished","class":{"code":"AMB"}}'
CREATED = Event(7, "Encounter", "e1", 2, AT, "c-7", BODY, "PUT")
GONE = Event(8, "Encounter", "e2", 4, AT, "c-8", b"", "DELETE")
PATIENT = Version(9, "Patient", "p1", 1, AT, b'{"resourceType":"Patient","id":"p1","x":1.00}', method="POST")


def subscription(content: str | None = "full-resource", mime: str = "application/fhir+json", **channel: Any) -> Json:
    """A topic subscription; `content` None = without the guide's level."""
    made: Json = {"type": "rest-hook", "endpoint": "https://h.example.org/in", "payload": mime, **channel}
    if content is not None:
        made["_payload"] = {"extension": [{"url": CONTENT, "valueCode": content}]}
    return {"resourceType": "Subscription", "id": "s1", "status": "active", "criteria": TOPIC, "channel": made}


def sent(one: Json, *events: Event, kind: str = "event-notification", **more: Any) -> Json:
    """The Bundle, parsed."""
    telling = NotificationContext(BASE, AT, 8, kind, terms_of(one).content, form_of(one), **more)
    made: Json = loads(bundle(one, events, telling))
    return made


def parameters(made: Json) -> list[tuple[str, Any]]:
    """(name, value or parts) of the Parameters in the first entry."""
    found = made["entry"][0]["resource"]["parameter"]
    return [(one["name"], next(value for name, value in one.items() if name != "name")) for one in found]


class FormTests(TestCase):
    def test_forms(self) -> None:
        self.assertEqual(form_of(subscription(None)), Form.PLAIN)
        self.assertEqual(form_of(subscription()), Form.R4)
        self.assertEqual(form_of(subscription(mime="application/fhir+json; fhirVersion=4.0")), Form.R4)
        self.assertEqual(form_of(subscription(mime="application/fhir+json;fhirVersion=4.3")), Form.R4B)

    def test_req_14_15_28_first_entry_is_the_status(self) -> None:
        made = sent(subscription(), CREATED)
        self.assertEqual(
            (made["resourceType"], made["type"], made["timestamp"]), ("Bundle", "history", "2026-01-02T03:04:05.000Z")
        )
        self.assertNotIn("total", made)
        status = made["entry"][0]
        self.assertTrue(status["fullUrl"].startswith("urn:uuid:"))
        self.assertEqual(status["request"], {"method": "GET", "url": f"{BASE}/Subscription/s1/$status"})
        self.assertEqual(status["response"]["status"], "200")
        self.assertEqual(status["resource"]["meta"]["profile"], [STATUS_R4])
        self.assertTrue(all({"request", "response"} <= entry.keys() for entry in made["entry"]))

    def test_req_99_101_102_103_status_has_topic_and_numbers(self) -> None:
        found = parameters(sent(subscription(), CREATED))
        self.assertEqual(
            [name for name, _ in found],
            ["subscription", "topic", "status", "type", "events-since-subscription-start", "notification-event"],
        )
        values = dict(found)
        self.assertEqual(values["subscription"], {"reference": f"{BASE}/Subscription/s1"})
        self.assertEqual((values["topic"], values["status"], values["type"]), (TOPIC, "active", "event-notification"))
        self.assertEqual(values["events-since-subscription-start"], "8")
        parts = {part["name"]: part for part in values["notification-event"]}
        self.assertEqual(parts["event-number"]["valueString"], "7")
        self.assertEqual(parts["timestamp"]["valueInstant"], "2026-01-02T03:04:05.000Z")
        self.assertNotIn("topic", dict(parameters(sent(subscription("empty"), CREATED))))

    def test_req_38_39_empty_has_no_reference_and_no_resource(self) -> None:
        made = sent(subscription("empty"), CREATED, GONE, includes={7: [PATIENT]})
        self.assertEqual(len(made["entry"]), 1)
        events = [value for name, value in parameters(made) if name == "notification-event"]
        self.assertEqual([[part["name"] for part in event] for event in events], [["event-number", "timestamp"]] * 2)
        self.assertNotIn("Encounter", str(made))
        self.assertNotIn("/e1", str(made))  # with the slash, because a random UUID may contain "e1"

    def test_req_40_41_42_id_only_has_references_and_no_resource(self) -> None:
        made = sent(subscription("id-only"), CREATED, includes={7: [PATIENT]})
        (event,) = [value for name, value in parameters(made) if name == "notification-event"]
        self.assertEqual([(part["name"], part.get("valueReference", {}).get("reference")) for part in event[2:]],
                         [("focus", f"{BASE}/Encounter/e1"), ("additional-context", f"{BASE}/Patient/p1")])  # fmt: skip
        self.assertEqual(
            [entry["fullUrl"] for entry in made["entry"][1:]], [f"{BASE}/Encounter/e1", f"{BASE}/Patient/p1"]
        )
        self.assertTrue(all("resource" not in entry and "request" in entry for entry in made["entry"][1:]))

    def test_req_43_44_45_full_resource_has_the_stored_bytes(self) -> None:
        one = subscription()
        telling = NotificationContext(BASE, AT, 8, includes={7: [PATIENT]})
        text = bundle(one, [CREATED, GONE], telling)
        self.assertIn(BODY, text)
        self.assertIn(PATIENT.body, text)
        entries = loads(text)["entry"][1:]
        self.assertEqual([entry["request"] for entry in entries], [
            {"method": "PUT", "url": "Encounter/e1"}, {"method": "DELETE", "url": "Encounter/e2"},
            {"method": "POST", "url": "Patient"}])  # fmt: skip
        self.assertEqual([entry["response"]["status"] for entry in entries], ["200", "204", "201"])
        self.assertNotIn("resource", entries[1])

    def test_a_resource_appears_once(self) -> None:
        made = sent(
            subscription(), CREATED, includes={7: [Version(1, "Encounter", "e1", 2, AT, BODY), PATIENT, PATIENT]}
        )
        self.assertEqual(len(made["entry"]), 3)

    def test_req_29_93_handshake_and_heartbeat(self) -> None:
        one = {**subscription(), "status": "requested"}
        for kind in (HANDSHAKE, HEARTBEAT):
            made = sent(one, kind=kind)
            self.assertEqual(len(made["entry"]), 1)
            values = dict(parameters(made))
            self.assertEqual((values["type"], values["status"]), (kind, "requested"))
            self.assertNotIn("notification-event", values)

    def test_error_is_in_the_status(self) -> None:
        values = dict(parameters(sent({**subscription(), "status": "error", "error": "HTTP status 500"})))
        self.assertEqual(values["error"], {"text": "HTTP status 500"})

    def test_req_90_r4b(self) -> None:
        made = sent(subscription(mime="application/fhir+json; fhirVersion=4.3"), CREATED, includes={7: [PATIENT]})
        status = made["entry"][0]["resource"]
        self.assertEqual(status["resourceType"], "SubscriptionStatus")
        self.assertEqual((status["type"], status["eventsSinceSubscriptionStart"]), ("event-notification", "8"))
        self.assertEqual(status["notificationEvent"], [{
            "eventNumber": "7", "timestamp": "2026-01-02T03:04:05.000Z",
            "focus": {"reference": f"{BASE}/Encounter/e1", "type": "Encounter"},
            "additionalContext": [{"reference": f"{BASE}/Patient/p1", "type": "Patient"}]}])  # fmt: skip

    def test_interface_specification_form(self) -> None:
        made = sent(subscription(None), CREATED)
        status, entry = made["entry"]
        self.assertEqual(status["resource"]["resourceType"], "SubscriptionStatus")
        self.assertEqual(status["resource"]["subscription"], {"reference": "Subscription/s1"})
        self.assertEqual(status["resource"]["topic"], TOPIC)
        event = status["resource"]["notificationEvent"][0]
        self.assertEqual((event["eventNumber"], event["focus"]["reference"]), ("7", "Encounter/e1"))
        self.assertEqual((entry["fullUrl"], entry["resource"]["id"]), (f"{BASE}/Encounter/e1", "e1"))


class RequestTests(TestCase):
    def test_req_25_26_27_posted_with_the_registered_mime_type(self) -> None:
        one = subscription(mime="application/fhir+json; fhirVersion=4.0", header=["Authorization: Bearer x"])
        made = notification(one, [CREATED, GONE], NotificationContext(BASE, AT, 8), "t")
        self.assertEqual((made.method, made.url), ("POST", "https://h.example.org/in"))
        self.assertEqual(
            made.headers, [("Content-Type", "application/fhir+json; fhirVersion=4.0"), ("Authorization", "Bearer x")]
        )
        self.assertEqual((made.tenant, made.subscription_id, made.correlation_id), ("t", "s1", "c-8"))

    def test_xml(self) -> None:
        for one, first in ((subscription(mime="application/fhir+xml"), "Parameters"),
                           (subscription(None, "application/fhir+xml"), "SubscriptionStatus")):  # fmt: skip
            made = notification(one, [CREATED], NotificationContext(BASE, AT, 8, form=form_of(one)))
            assert made.body is not None
            self.assertIn(f"<{first}>".encode(), made.body)
            self.assertIn(b"<Encounter", made.body)
        legacy = {**one, "criteria": "Encounter?"}
        made = notification(legacy, [CREATED], NotificationContext(BASE, AT, 8))
        self.assertEqual((made.method, made.url), ("PUT", "https://h.example.org/in/Encounter/e1"))
        self.assertEqual(made.headers, [("Content-Type", "application/fhir+xml; charset=UTF-8")])
        assert made.body is not None
        self.assertEqual(from_xml(made.body)["status"], "finished")

    def test_req_93_94_97_98_terms(self) -> None:
        numbers = [{"url": MAX_COUNT, "valuePositiveInt": 20}, {"url": TIMEOUT, "valueUnsignedInt": 5},
                   {"url": PERIOD, "valueUnsignedInt": 60}]  # fmt: skip
        terms = terms_of(subscription(extension=numbers))
        self.assertEqual((terms.max_count, terms.timeout_seconds, terms.heartbeat_seconds), (20, 5.0, 60))
        self.assertTrue(terms.needs_handshake)
        bare = terms_of(subscription(None, extension=numbers))
        self.assertEqual((bare.max_count, bare.heartbeat_seconds, bare.needs_handshake), (1, None, False))
        self.assertFalse(terms_of(subscription(type="websocket")).needs_handshake)
