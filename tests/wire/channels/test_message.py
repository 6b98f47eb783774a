"""The message channel posts a message Bundle that holds the notification."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import loads
from ipf.fhir.xml.writer import from_xml
from ipf.ports import Delivered, Notification
from ipf.wire.channels.message import Message

NOW = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
PATIENT = b'{"resourceType":"Patient","id":"p1","extension":[{"url":"urn:x","valueDecimal":1.00}]}'


class Post:
    """A channel that stores notifications."""

    unavailable = None

    def __init__(self) -> None:
        self.sent: list[Notification] = []

    def destination(self, endpoint: str) -> str:
        return endpoint.upper()

    async def send(self, notification: Notification) -> Delivered:
        self.sent.append(notification)
        return Delivered(200, 1, None)


class MessageTests(TestCase):
    def setUp(self) -> None:
        self.post = Post()
        self.message = Message(self.post, "https://ipf.example.org/fhir", now=lambda: NOW)
        self.notification = Notification(
            "PUT",
            "https://far.example.org/fhir",
            [("Authorization", "Bearer x")],
            PATIENT,
            "c",
        )

    async def send(self, notification: Notification) -> Notification:
        self.assertTrue((await self.message.send(notification)).succeeded)
        return self.post.sent[-1]

    async def test_a_message_bundle_is_posted(self) -> None:
        sent = await self.send(self.notification)
        self.assertEqual((sent.method, sent.url), ("POST", "https://far.example.org/fhir"))
        self.assertEqual(
            list(sent.headers),
            [("Content-Type", "application/fhir+json; charset=UTF-8"), ("Authorization", "Bearer x")],
        )
        assert sent.body is not None
        bundle = loads(sent.body)
        self.assertEqual((bundle["type"], bundle["timestamp"]), ("message", "2026-01-02T03:04:05.678Z"))
        header, content = bundle["entry"]
        self.assertEqual(header["resource"]["resourceType"], "MessageHeader")
        self.assertEqual(header["resource"]["eventCoding"]["code"], "event-notification")
        self.assertEqual(header["resource"]["source"]["endpoint"], "https://ipf.example.org/fhir")
        self.assertEqual(header["resource"]["destination"], [{"endpoint": "https://far.example.org/fhir"}])
        self.assertEqual(header["resource"]["focus"], [{"reference": content["fullUrl"]}])
        self.assertEqual(content["resource"]["id"], "p1")
        self.assertIn(b"1.00", sent.body)

    async def test_a_registered_content_type_is_attached(self) -> None:
        headers = [("Authorization", "Bearer x"), ("content-type", "odd")]
        self.assertEqual((await self.send(replace(self.notification, headers=headers))).headers, headers)

    async def test_without_payload(self) -> None:
        sent = await self.send(replace(self.notification, body=None, kind="heartbeat"))
        (header,) = loads(sent.body or b"")["entry"]
        self.assertNotIn("focus", header["resource"])
        self.assertEqual(header["resource"]["eventCoding"]["code"], "heartbeat")

    async def test_xml(self) -> None:
        body = b'<Patient xmlns="http://hl7.org/fhir"><id value="p1"/></Patient>'
        sent = await self.send(replace(self.notification, body=body, content_type="application/fhir+xml"))
        bundle = from_xml(sent.body or b"")
        self.assertEqual(bundle["entry"][1]["resource"], {"resourceType": "Patient", "id": "p1"})
        self.assertEqual(sent.headers[0], ("Content-Type", "application/fhir+xml; charset=UTF-8"))

    async def test_an_unparsable_body_is_a_failure(self) -> None:
        delivered = await self.message.send(replace(self.notification, body=b"{broken"))
        self.assertFalse(delivered.succeeded)
        self.assertEqual(self.post.sent, [])

    def test_the_destination_is_that_of_the_posting_channel(self) -> None:
        self.assertEqual(self.message.destination("https://far"), "HTTPS://FAR")
