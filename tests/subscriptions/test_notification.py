"""Notifications of subscriptions by criteria, as HTTP requests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.ports import HANDSHAKE, Event, Notification
from ipf.subscriptions.notification import CONTENT_TYPE, notification
from ipf.subscriptions.notification_topic import NotificationContext

EVENT = Event(3, "Patient", "p1", 2, datetime(2026, 1, 2, tzinfo=UTC), "c-1", b'{"resourceType":"Patient"}')


def made(**channel: Any) -> Notification:
    """The notification for a rest-hook channel."""
    channel = {"type": "rest-hook", "endpoint": "https://hook.example.org/in", **channel}
    one = {"resourceType": "Subscription", "id": "s1", "criteria": "Patient?", "channel": channel}
    return notification(one, [EVENT], NotificationContext("", EVENT.occurred_at, 3))


class NotificationTests(TestCase):
    def test_with_payload(self) -> None:
        sent = made(payload="application/fhir+json", header=["Authorization: Bearer a:b", "X-Key:  1 "])
        self.assertEqual((sent.method, sent.url), ("PUT", "https://hook.example.org/in/Patient/p1"))
        own = ("Content-Type", CONTENT_TYPE)
        self.assertEqual(sent.headers, [own, ("Authorization", "Bearer a:b"), ("X-Key", "1")])
        self.assertEqual(CONTENT_TYPE, "application/fhir+json; charset=UTF-8")
        self.assertEqual((sent.body, sent.correlation_id), (EVENT.body, "c-1"))

    def test_without_payload(self) -> None:
        sent = made(header=["X-Key: 1"])
        self.assertEqual((sent.method, sent.url), ("POST", "https://hook.example.org/in"))
        self.assertEqual((sent.headers, sent.body), ([("X-Key", "1")], None))

    def test_a_handshake_is_an_empty_post(self) -> None:
        """Whatever the payload: there is no event whose resource could be put."""
        for payload in ({}, {"payload": "application/fhir+json"}, {"payload": "application/fhir+xml"}):
            channel = {"type": "rest-hook", "endpoint": "https://a.example/in", "header": ["X-Key: 1"], **payload}
            one = {"resourceType": "Subscription", "id": "s1", "criteria": "Patient?", "channel": channel}
            sent = notification(one, [], NotificationContext("", EVENT.occurred_at, 3, HANDSHAKE))
            self.assertEqual((sent.method, sent.url, sent.kind), ("POST", "https://a.example/in", HANDSHAKE))
            self.assertEqual((list(sent.headers), sent.body), ([("X-Key", "1")], None))

    def test_urls(self) -> None:
        for endpoint, url in (
            ("https://a.example", "https://a.example/Patient/p1"),
            ("https://a.example/", "https://a.example/Patient/p1"),
            ("https://a.example/x/", "https://a.example/x/Patient/p1"),
            ("https://a.example/x?key=1", "https://a.example/x/Patient/p1?key=1"),
        ):
            self.assertEqual(made(endpoint=endpoint, payload="application/fhir+json").url, url)

    def test_a_registered_content_type_replaces_ours(self) -> None:
        """Also in a request without a body: registered headers are attached verbatim."""
        for payload in ({}, {"payload": "application/fhir+json;fhirVersion=4.0"}, {"payload": "application/fhir+xml"}):
            sent = made(**payload, header=["content-type: text/plain", "X-Key: 1"])
            self.assertEqual(list(sent.headers), [("content-type", "text/plain"), ("X-Key", "1")])

    def test_withheld_content_is_an_empty_post(self) -> None:
        """The form of a Subscription without a payload."""
        for payload in ({}, {"payload": "application/fhir+json"}, {"payload": "application/fhir+xml"}):
            channel = {"type": "rest-hook", "endpoint": "https://a.example/in", "header": ["X-Key: 1"], **payload}
            one = {"resourceType": "Subscription", "id": "s1", "criteria": "Patient?", "channel": channel}
            sent = notification(one, [EVENT], NotificationContext("", EVENT.occurred_at, 3, content="empty"))
            self.assertEqual((sent.method, sent.url, sent.body), ("POST", "https://a.example/in", None))
            self.assertEqual((list(sent.headers), sent.events), ([("X-Key", "1")], (EVENT,)))
