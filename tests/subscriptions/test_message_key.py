"""Keys and ids of messages to brokers."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.ports import Event, Terms
from ipf.subscriptions.message_key import key_of, message_id

TERMS = Terms("kafka", "kafka://one/a")


def event(resource: dict[str, Any] | None = None, resource_type: str = "Observation", number: int = 1) -> Event:
    body = b"" if resource is None else json.dumps(resource).encode()
    return Event(number, resource_type, "r1", 3, datetime(2026, 1, 2, tzinfo=UTC), "c", body)


class KeyTests(TestCase):
    def test_the_patient_is_the_key(self) -> None:
        to = {"reference": "Patient/7"}
        for resource_type, resource, key in (
            ("Patient", {"link": [{"other": {"reference": "Patient/8"}}]}, "Patient/r1"),
            ("Observation", {"subject": to}, "Patient/7"),
            ("Observation", {"subject": {"reference": "Patient/7/_history/2"}}, "Patient/7"),
            ("Observation", {"subject": {"reference": "http://x/fhir/Patient/7"}}, "http://x/fhir/Patient/7"),
            ("Observation", {"performer": [{"reference": "Patient/9"}], "subject": to}, "Patient/7"),
            (
                "Observation",
                {"performer": [{"reference": "Patient/9"}], "subject": {"reference": "Group/1"}},
                "Patient/9",
            ),
            ("Immunization", {"patient": to}, "Patient/7"),
            ("Coverage", {"payor": [{"reference": "Patient/9"}], "beneficiary": to}, "Patient/7"),
            ("Task", {"for": to, "owner": {"reference": "Patient/9"}}, "Patient/7"),
            ("Appointment", {"participant": [{"actor": {"reference": "Location/1"}}, {"actor": to}]}, "Patient/7"),
            ("Location", {"name": "Patient/7"}, "Location/r1"),
            ("Observation", {"subject": {"reference": "#p"}}, "Observation/r1"),
            ("Observation", {"subject": {"reference": 5}}, "Observation/r1"),
        ):
            self.assertEqual(key_of("s1", TERMS, [event(resource, resource_type)]), key, resource)

    def test_a_deletion_has_the_key_of_the_version_before(self) -> None:
        deleted = event(None)
        self.assertEqual(key_of("s1", TERMS, [deleted]), "Observation/r1")
        deleted.last_body = b'{"subject":{"reference":"Patient/7"}}'
        self.assertEqual(key_of("s1", TERMS, [deleted]), "Patient/7")

    def test_keys_without_a_patient(self) -> None:
        """Several events in one notification, a content level that hides the resource, a handshake."""
        one = event({"subject": {"reference": "Patient/7"}})
        for terms, events in (
            (replace(TERMS, max_count=5), [one]),
            (replace(TERMS, max_count=5), [one, one]),
            (replace(TERMS, content="empty"), [one]),
            (TERMS, []),
        ):
            self.assertEqual(key_of("s1", terms, events), "Subscription/s1")


class MessageIdTests(TestCase):
    def test_ids(self) -> None:
        """Equal for a repeated attempt only; no id names a resource."""
        first = message_id("s1", "nats://a/b", [event()], 0)
        self.assertEqual(first, message_id("s1", "nats://a/b", [event({"changed": True})], 0))
        others = (
            message_id("s2", "nats://a/b", [event()], 0),
            message_id("s1", "nats://a/c", [event()], 0),
            message_id("s1", "nats://a/b", [event()], 4),
            message_id("s1", "nats://a/b", [event(number=2)], 0),
            message_id("s1", "nats://a/b", [replace(event(), version_id=4)], 0),
            message_id("s1", "nats://a/b", [event(), event(number=2)], 0),
        )
        self.assertEqual(len({first, *others}), 7)
        self.assertTrue(first.startswith("s1/1/"))
        self.assertNotIn("r1", first)
        self.assertEqual(message_id("s1", "nats://a/b", [], 0), "")
