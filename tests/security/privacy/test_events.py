"""Notifications of every channel obey labels and Consents: when a change makes an event, and before each is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import dumps
from ipf.pipeline.deliver.authorization import Authorization
from ipf.ports import Caller, Change, Event, Json, Version
from ipf.ports.queries.index import EMPTY
from ipf.security.access import install, refresh_access
from ipf.security.event_access import Decision, View, decide, view_of
from ipf.security.privacy.labels import CONFIDENTIALITY, LabelRules
from ipf.security.privacy.policy import Privacy
from ipf.security.privacy.register import ConsentRegister
from tests.fakes import MemoryFhirStore
from tests.fakes.consents import MemoryConsents
from tests.pipeline.deliver.test_authorization import Composed, Grants, lease
from tests.security.privacy.consents import consent, labelled, observation, put, rule

T0 = datetime(2026, 1, 1, tzinfo=UTC)
META = {"versionId": "1", "lastUpdated": "2026-01-01T00:00:00.000Z"}
PLAIN, DENIED = observation("o1", "p2", meta=META), observation("o2", "p1", meta=META)
LABELLED = labelled(PLAIN, CONFIDENTIALITY, "R")
READER = Caller("ada", "app", ("system/*.rs", "system/Subscription.crus"))
SIGNALLED = Caller("bob", "app", ("system/Subscription.crus",))
CLEARED = Caller("eve", "app", ("system/*.rs", "conf/R"))
SEND, SKIP, SIGNAL = Decision.SEND, Decision.SKIP, Decision.WITHOUT_CONTENT

DECISIONS: list[tuple[Caller, Json, Decision]] = [
    (READER, PLAIN, SEND),
    (READER, LABELLED, SKIP),
    (READER, DENIED, SKIP),
    (CLEARED, LABELLED, SEND),
    (CLEARED, DENIED, SKIP),
    (SIGNALLED, PLAIN, SIGNAL),
    (SIGNALLED, LABELLED, SKIP),
    (SIGNALLED, DENIED, SKIP),
]

VIEWS: list[tuple[Caller, Json | None, Json | None, View]] = [
    (READER, None, PLAIN, View.WHOLE),
    (READER, PLAIN, LABELLED, View.HIDDEN),
    (READER, LABELLED, PLAIN, View.CREATE),
    (READER, LABELLED, None, View.HIDDEN),
    (READER, PLAIN, None, View.WHOLE),
    (READER, None, DENIED, View.HIDDEN),
    (CLEARED, PLAIN, LABELLED, View.WHOLE),
    (SIGNALLED, None, PLAIN, View.WHOLE),
    (SIGNALLED, None, DENIED, View.HIDDEN),
    (SIGNALLED, DENIED, None, View.HIDDEN),
]


def event(resource: Json, version: int = 1, *, deleted: bool = False) -> Event:
    """An event of a version; of a deletion with the version before it."""
    body = dumps(resource)
    kind, id = str(resource["resourceType"]), str(resource["id"])
    found = Event(version, kind, id, version, T0, "c", body)
    return replace(found, body=b"", method="DELETE", last_body=body) if deleted else found


def change(before: Json | None, after: Json | None) -> Change:
    """A change from one content to another."""
    known = after or before or {}
    version = Version(1, "Observation", str(known["id"]), 2, T0, b"" if after is None else dumps(after), after is None)
    entries = [EMPTY if one is None else extract(one) for one in (before, after)]
    return Change("default", version, after, *entries, "c", "update", before)


class EventTests(TestCase):
    async def setUp(self) -> None:
        self.store = MemoryFhirStore()
        register = ConsentRegister(MemoryConsents(self.store), lambda: T0)
        install(Privacy(LabelRules.of(["R"]), register))
        self.addCleanup(install, None)

    async def deny(self) -> None:
        """Store a Consent that denies everything of Patient/p1."""
        await put(self.store, {**consent(rule("deny")), "id": "denial"})

    async def test_decisions(self) -> None:
        await self.deny()
        await refresh_access()
        for caller, resource, expected in DECISIONS:
            for deleted in (False, True):
                version = 2 if resource is LABELLED else 1
                found = decide(caller, event(resource, version, deleted=deleted))
                self.assertIs(found, expected, (caller.subject, resource["id"], deleted))

    async def test_views(self) -> None:
        await self.deny()
        await refresh_access()
        for caller, before, after, expected in VIEWS:
            self.assertIs(view_of(caller, change(before, after)), expected, (caller.subject, before, after))

    async def test_before_each_is_sent(self) -> None:
        """Events that were made before a Consent was stored or a label set are not sent any more."""
        read: Any = self.store.read_version
        authorization = Authorization(Grants(READER), Composed(), read, self.store.read_many)  # type: ignore[arg-type]
        for one in (PLAIN, DENIED):
            await put(self.store, one)
        events = [event(PLAIN), event(DENIED)]

        async def sent() -> Sequence[str]:
            return [one.id for one in await authorization.authorization_filter(lease(), events)]

        self.assertEqual(await sent(), ["o1", "o2"])
        await self.deny()
        self.assertEqual(await sent(), ["o1"])
        await put(self.store, LABELLED, 2)
        self.assertEqual(await sent(), [])
