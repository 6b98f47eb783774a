"""What a creator gets that may not read what matches: the registered form without content, on every channel."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import dumps, loads
from ipf.fhir.xml.writer import from_xml
from ipf.pipeline.deliver.authorization import Authorization
from ipf.pipeline.deliver.bound_clients import ClientBinding, texts_of
from ipf.pipeline.deliver.compose import Composer
from ipf.ports import Caller, Event, Json, Lease, Notification, Session
from ipf.subscriptions.guide import CONTENT
from ipf.subscriptions.matching import MatchingIndex
from ipf.wire.channels.message import Message
from tests.contracts.resources import T0
from tests.fakes import MemoryFhirStore
from tests.pipeline.deliver.test_authorization import Grants
from tests.security.test_scopes import ADA

MINIMUM = Caller("ada", "app", ("system/Subscription.crus",))
READER = Caller("ada", "app", ("system/Subscription.crus", "system/Patient.r"))
TOPIC, SEARCH = "http://example.org/topic", "Patient?gender=female"
JSON, XML = "application/fhir+json", "application/fhir+xml"


def subscription(criteria: str, payload: str | None, level: str | None = None, kind: str = "rest-hook") -> Json:
    """A stored Subscription."""
    channel: Json = {"type": kind, "endpoint": "https://a.example/in", "header": ["X-Key: 1"]}
    if payload is not None:
        channel["payload"] = payload
    if level is not None:
        channel["_payload"] = {"extension": [{"url": CONTENT, "valueCode": level}]}
    meta = {"versionId": "1"}
    return {"resourceType": "Subscription", "id": "s", "meta": meta, "status": "active", "criteria": criteria,
            "channel": channel}  # fmt: skip


class WithheldContentTests(TestCase):
    async def made(self, creator: Caller, resource: Json) -> Notification:
        """The notification of one changed Patient."""
        store = MemoryFhirStore()
        compose = Composer(store, MatchingIndex(), lambda: T0, "https://ipf.example/fhir")
        authorization = Authorization(Grants(creator), compose, store.read_version)
        lease = Lease("default", 1, "s", 1, T0, resource, 0, None, 7)
        events = [Event(7, "Patient", "p1", 3, T0, "c", dumps(ADA))]
        return await authorization.events(lease, await authorization.authorization_filter(lease, events))

    async def test_topics_get_a_bundle_with_the_status(self) -> None:
        """In the contract's form, and in the guide's forms for R4 and R4B."""
        for payload, level, first in (
            (JSON, None, "SubscriptionStatus"),
            (JSON, "full-resource", "Parameters"), (XML, "full-resource", "Parameters"),
            (JSON, "id-only", "Parameters"), (JSON, "empty", "Parameters"),
            (f"{JSON}; fhirVersion=4.3", "full-resource", "SubscriptionStatus"),
        ):  # fmt: skip
            read = from_xml if "xml" in payload else loads
            sent = await self.made(MINIMUM, subscription(TOPIC, payload, level))
            whole: Any = read(sent.body or b"")
            self.assertEqual((sent.method, whole["type"], len(whole["entry"])), ("POST", "history", 1), payload)
            status = whole["entry"][0]["resource"]
            self.assertEqual(status["resourceType"], first)
            self.assertIn('"7"', str(dumps(status), "utf-8"))
            for word in (b"Patient", b"p1"):
                self.assertNotIn(word, sent.body or b"", payload)
            self.assertIn(("Content-Type", sent.content_type), sent.headers)
            self.assertIn(("X-Key", "1"), sent.headers)
            shown = await self.made(READER, subscription(TOPIC, payload, level))
            entries = len((read(shown.body or b""))["entry"])
            self.assertEqual(entries, 1 if level == "empty" else 2)
            self.assertEqual(list(shown.headers), list(sent.headers))

    async def test_the_contracts_status_names_the_topic_and_the_event(self) -> None:
        sent = await self.made(MINIMUM, subscription(TOPIC, JSON))
        status = loads(sent.body or b"")["entry"][0]["resource"]
        self.assertEqual((status["topic"], status["type"]), (TOPIC, "event-notification"))
        self.assertEqual(status["subscription"], {"reference": "Subscription/s"})
        self.assertEqual([one["eventNumber"] for one in status["notificationEvent"]], ["7"])

    async def test_a_search_gets_the_id_only_notification(self) -> None:
        """The contract's "id-only": an empty POST to the endpoint, with the registered headers."""
        for payload in (JSON, XML, None):
            sent = await self.made(MINIMUM, subscription(SEARCH, payload))
            self.assertEqual((sent.method, sent.url, sent.body), ("POST", "https://a.example/in", None))
            self.assertEqual(list(sent.headers), [("X-Key", "1")])
        shown = await self.made(READER, subscription(SEARCH, JSON))
        self.assertEqual((shown.method, shown.url), ("PUT", "https://a.example/in/Patient/p1"))

    async def test_a_websocket_gets_a_ping(self) -> None:
        """Also for a topic, whose Bundle goes to clients that bound with a token."""
        session = Session("default", lambda resource: True, None, MINIMUM)
        for criteria, by_token in ((SEARCH, False), (TOPIC, False), (SEARCH, True), (TOPIC, True)):
            sent = await self.made(MINIMUM, subscription(criteria, JSON, kind="websocket"))
            texts = texts_of(sent, ClientBinding(session, 0.0, by_token))
            if criteria == TOPIC and by_token:
                self.assertEqual([len(loads(one)["entry"]) for one in texts], [1])
            else:
                self.assertEqual(texts, [b"ping s"], (criteria, by_token))

    async def test_a_message_has_a_header_and_no_resource(self) -> None:
        post: Any = None
        message = Message(post, "https://ipf.example/fhir", now=lambda: T0)
        for criteria, entries in ((SEARCH, ["MessageHeader"]), (TOPIC, ["MessageHeader", "Bundle"])):
            sent = message.wrapped(await self.made(MINIMUM, subscription(criteria, JSON, kind="message")))
            found = loads(sent.body or b"")["entry"]
            self.assertEqual([one["resource"]["resourceType"] for one in found], entries)
            self.assertNotIn(b"p1", sent.body or b"")

    async def test_a_message_broker_is_not_told_whose_it_is(self) -> None:
        """Neither by the value nor by the key, which is the patient otherwise."""
        for criteria in (SEARCH, TOPIC):
            resource = subscription(criteria, JSON, kind="message")
            resource["channel"]["endpoint"] = "kafka://broker:9092/fhir.patients"
            keys = [(await self.made(creator, resource)).key for creator in (READER, MINIMUM)]
            self.assertEqual(keys, ["Patient/p1", "Subscription/s"])
            self.assertNotIn(b"p1", (await self.made(MINIMUM, resource)).body or b"")

    async def test_a_mail_has_numbers_only(self) -> None:
        """No reference and no attachment: the content level of the notification."""
        for criteria in (SEARCH, TOPIC):
            sent = await self.made(MINIMUM, subscription(criteria, JSON, kind="email"))
            self.assertEqual(sent.content, "empty")
