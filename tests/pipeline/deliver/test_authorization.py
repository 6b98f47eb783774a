"""Authorization of events by the grants of the writers of the Subscription."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import dumps
from ipf.pipeline.deliver.authorization import Authorization, SubscriptionChanged
from ipf.ports import OPEN, SYSTEM, Caller, Event, Json, Lease, Notification, Terms, Version
from ipf.ports.grants import Writer
from ipf.security.event_access import Decision, decide
from ipf.subscriptions.terms import terms_of
from tests.contracts.resources import T0
from tests.security.test_scopes import ADA, BOB, LAB, VITAL, VITALS

LAST = {("Patient", "p1"): ADA, ("Patient", "p2"): BOB}

SUBSCRIPTION: Json = {
    "resourceType": "Subscription", "id": "s", "meta": {"versionId": "1"},
    "channel": {"type": "rest-hook", "endpoint": "https://a", "payload": "application/fhir+json", "_payload": {},
                "header": ["A: b"]},
}  # fmt: skip

# (creator: scopes or None, patient, resource, decision)
DECISIONS: list[tuple[str | None, str | None, Json, Decision]] = [
    (None, None, ADA, Decision.SEND),
    ("system/Subscription.crus system/Patient.r", None, ADA, Decision.SEND),
    ("system/Subscription.crus system/Patient.s", None, ADA, Decision.SEND),
    ("system/*.read", None, VITALS, Decision.SEND),
    ("system/Subscription.crus", None, ADA, Decision.WITHOUT_CONTENT),
    ("system/Subscription.crus system/Patient.cud", None, ADA, Decision.WITHOUT_CONTENT),
    ("", None, ADA, Decision.WITHOUT_CONTENT),
    ("system/Patient.r", None, VITALS, Decision.WITHOUT_CONTENT),
    (f"system/Observation.rs?category={VITAL}", None, VITALS, Decision.SEND),
    (f"system/Observation.rs?category={VITAL}", None, LAB, Decision.SKIP),
    ("patient/*.rs", "p1", ADA, Decision.SEND),
    ("patient/*.rs", "p1", BOB, Decision.SKIP),
    ("patient/*.rs", None, ADA, Decision.SKIP),
    ("system/Subscription.crus patient/Observation.rs", "p1", ADA, Decision.SKIP),
]


def event(number: int, resource: Json, deleted: bool = False) -> Event:
    """An event of this resource."""
    body = b"" if deleted else dumps(resource)
    return Event(number, resource["resourceType"], resource["id"], 1, T0, "c", body)


def lease(**changes: Any) -> Lease:
    """A leased subscription."""
    return Lease("default", 1, "s", 1, T0, {**SUBSCRIPTION, **changes}, 0, None)


def lease_to(reader: Caller) -> Lease:
    """A leased subscription with a websocket client."""
    return replace(lease(), callers=(reader,))


class Grants:
    """The writers of every Subscription; counts the calls."""

    def __init__(self, *writers: Caller | Writer) -> None:
        self.found = [one if isinstance(one, Writer) else Writer(one) for one in writers]
        self.newest = 1
        self.asked = 0

    async def writers(self, tenant: str, subscription_id: str, version_id: int) -> Sequence[Writer] | None:
        """See `ports.CreatorGrants.writers`."""
        self.asked += 1
        return None if version_id < self.newest else self.found


class Composed:
    """`ports.Compose` that records its arguments."""

    def __init__(self) -> None:
        self.given: list[tuple[Lease, Sequence[Event]]] = []

    def terms(self, subscription: Json) -> Terms:
        """See `ports.Compose.terms`."""
        return terms_of(subscription)

    async def events(self, lease: Lease, events: Sequence[Event]) -> Notification:
        """See `ports.Compose.events`."""
        self.given.append((lease, events))
        return Notification("POST", "https://a", (), None, "c")

    async def heartbeat(self, lease: Lease) -> Notification:
        """See `ports.Compose.heartbeat`."""
        return await self.events(lease, ())

    async def handshake(self, lease: Lease) -> Notification:
        """See `ports.Compose.handshake`."""
        return await self.events(lease, ())


class AuthorizationTests(TestCase):
    def authorization(self, *writers: Caller | Writer) -> tuple[Authorization, Grants, Composed]:
        """An Authorization, its grants and its composer."""
        grants, composed = Grants(*writers), Composed()
        return Authorization(grants, composed, self.read_version), grants, composed  # type: ignore[arg-type]

    async def read_version(self, tenant: str, resource_type: str, id: str, version_id: int) -> Version | None:
        """The version before each deletion."""
        body = dumps(LAST[resource_type, id])
        return Version(1, resource_type, id, version_id, T0, body)

    def wait(self, work: Any) -> Any:
        """The result of a coroutine that does not wait."""
        return self.successResultOf(Deferred.fromCoroutine(work))

    def test_decisions(self) -> None:
        for scopes, patient, resource, decision in DECISIONS:
            caller = OPEN if scopes is None else Caller("ada", "app", tuple(scopes.split()), patient=patient)
            self.assertIs(decide(caller, event(1, resource)), decision, (scopes, patient, resource))
        gone = event(1, ADA, deleted=True)
        self.assertIs(decide(Caller("ada", scopes=("system/Patient.r",)), gone), Decision.SEND)
        self.assertIs(decide(Caller("ada", scopes=("patient/*.r",), patient="p1"), gone), Decision.SKIP)
        self.assertIs(decide(SYSTEM, gone), Decision.SEND)
        vital = Caller("ada", scopes=(f"system/Observation.r?category={VITAL}",))
        for last, decision in ((VITALS, Decision.SEND), (LAB, Decision.SKIP)):
            known = replace(event(1, VITALS, deleted=True), last_body=dumps(last))
            self.assertIs(decide(vital, known), decision)

    def test_filter_and_notification(self) -> None:
        creator = Caller("ada", "app", ("system/Subscription.crus", "system/Observation.rs"))
        authorization, grants, composed = self.authorization(creator)
        events = [event(1, VITALS), event(3, ADA)]
        kept = self.wait(authorization.authorization_filter(lease(), events))
        self.assertEqual(kept, events)
        self.wait(authorization.events(lease(), kept[:1]))
        self.wait(authorization.events(lease(), kept))
        (first, shown), (second, composed_events) = composed.given
        self.assertEqual((first.resource, shown, first.callers), (SUBSCRIPTION, kept[:1], [creator]))
        self.assertEqual((first.is_content_withheld, second.is_content_withheld), (False, True))
        self.assertEqual(second.resource, SUBSCRIPTION)
        self.assertEqual([one.body for one in composed_events], [b"", b""])
        self.assertEqual(grants.asked, 1)

    def test_grants_are_read_per_version(self) -> None:
        authorization, grants, _ = self.authorization(Caller("ada"))
        for version in ("1", "1", "2", "2"):
            self.wait(authorization.authorization_filter(lease(meta={"versionId": version}), [event(1, ADA)]))
        self.assertEqual(grants.asked, 2)

    def test_several_writers(self) -> None:
        """An event is sent when all writers may see it; without content when one of them has no scope."""
        wide = Caller("bob", "ehr", ("system/*.cruds",))
        plain = Caller("ada", "app", ("system/Subscription.cru", "system/Observation.rs"))
        vital = Caller("ada", "app", ("system/Subscription.cru", f"system/Observation.rs?category={VITAL}"))
        events = [event(1, VITALS), event(2, LAB), event(3, ADA)]
        for writers in ((wide, plain), (plain, wide)):
            authorization, _, composed = self.authorization(*writers)
            kept = self.wait(authorization.authorization_filter(lease(), events))
            self.assertEqual([one.number for one in kept], [1, 2, 3])
            self.wait(authorization.events(lease(), kept))
            ((composed_events, shown),) = composed.given
            self.assertEqual((composed_events.callers, [one.body for one in shown]), (list(writers), [b"", b"", b""]))
        authorization, _, composed = self.authorization(wide)
        self.assertEqual(self.wait(authorization.authorization_filter(lease(), events)), events)
        self.assertEqual(
            [one.number for one in self.wait(authorization.authorization_filter(lease_to(vital), events))], [1]
        )

    def test_older_version_is_refused(self) -> None:
        """The current grants may belong to another endpoint."""
        authorization, grants, composed = self.authorization(Caller("bob", "ehr", ("system/*.cruds",)))
        grants.newest = 2
        self.failureResultOf(
            Deferred.fromCoroutine(authorization.authorization_filter(lease(), [event(1, ADA)])), SubscriptionChanged
        )
        self.failureResultOf(
            Deferred.fromCoroutine(authorization.events(lease(), [event(1, ADA)])), SubscriptionChanged
        )
        self.assertEqual(composed.given, [])
        newer = lease(meta={"versionId": "2"})
        self.assertEqual(self.wait(authorization.authorization_filter(newer, [event(1, ADA)])), [event(1, ADA)])

    def test_without_writers_everything_is_sent(self) -> None:
        authorization, _, composed = self.authorization()
        events = [event(1, VITALS), event(2, ADA)]
        self.assertIs(self.wait(authorization.authorization_filter(lease(), events)), events)
        self.wait(authorization.events(lease(), events))
        self.assertEqual(composed.given, [(lease(), events)])

    def test_subscribers_read(self) -> None:
        """The scope on Subscription implies reading what matches, and no limit of a narrow scope is lifted."""
        for scopes, patient, resource, decision in DECISIONS:
            caller = OPEN if scopes is None else Caller("ada", "app", tuple(scopes.split()), patient=patient)
            expected = Decision.SEND if decision is Decision.WITHOUT_CONTENT else decision
            self.assertIs(decide(caller, event(1, resource), subscribers_read=True), expected, scopes)
        grants, composed = Grants(Caller("ada", "app", ("system/Subscription.crus",))), Composed()
        authorization = Authorization(grants, composed, self.read_version, subscribers_read=True)  # type: ignore[arg-type]
        kept = self.wait(authorization.authorization_filter(lease(), [event(1, ADA)]))
        self.wait(authorization.events(lease(), kept))
        ((made, shown),) = composed.given
        self.assertEqual((made.is_content_withheld, shown), (False, kept))

    def test_deletions_of_what_was_visible(self) -> None:
        """The version before decides."""
        creator = Caller("ada", "app", ("patient/*.rs",), patient="p1")
        authorization, _, composed = self.authorization(creator)
        events = [replace(event(number, one, deleted=True), version_id=2) for number, one in ((1, ADA), (2, BOB))]
        kept = self.wait(authorization.authorization_filter(lease(), events))
        self.assertEqual([one.number for one in kept], [1])
        self.wait(authorization.events(lease(), kept))
        self.assertEqual(composed.given[0][0].resource, SUBSCRIPTION)

    def test_numbers_of_an_endpoint(self) -> None:
        """An endpoint of a narrow client begins with the events after it took over; others keep their numbers."""
        narrow = Caller("ada", "app", ("system/Subscription.cru", "patient/*.rs"), patient="p1")
        wide = Caller("bob", "ehr", ("system/*.cruds",))
        events = [event(number, ADA) for number in (4, 5, 6)]
        for writers, numbers, total in (
            ((Writer(narrow, 4, True),), [1, 2], 3),
            ((Writer(narrow, 4, True), Writer(wide, 5)), [1, 2], 3),
            ((Writer(wide, 4, True),), [4, 5, 6], 7),
            ((Writer(narrow, 4), Writer(wide, 0, True)), [4, 5, 6], 7),
            ((Writer(narrow),), [4, 5, 6], 7),
        ):
            authorization, _, composed = self.authorization(*writers)
            seven = replace(lease(), last_event_number=7)
            self.wait(authorization.events(seven, self.wait(authorization.authorization_filter(seven, events))))
            self.wait(authorization.heartbeat(seven))
            self.wait(authorization.handshake(seven))
            (made, shown), *others = composed.given
            self.assertEqual([one.number for one in shown], numbers, writers)
            self.assertEqual([one.last_event_number for one, _ in [(made, shown), *others]], [total] * 3, writers)

    def test_numbers_of_a_client(self) -> None:
        """A narrow client counts only events within its own grants."""
        narrow = Caller("ada", "app", ("system/Subscription.cru", "patient/*.rs"), patient="p1")
        authorization, _, _ = self.authorization(Writer(narrow, 4), Caller("bob", "ehr", ("system/*.cruds",)))
        for caller, expected in (
            (OPEN, 0),
            (Caller("eve", "x", ("system/Subscription.r",)), 0),
            (narrow, 4),
            (replace(narrow, expires_at=5.0, scopes=narrow.scopes[::-1]), 4),
            (replace(narrow, patient="p2"), None),
            (replace(narrow, client="other"), None),
            (replace(narrow, scopes=("patient/*.rs",)), None),
        ):
            self.assertEqual(self.wait(authorization.numbered_from(lease(), caller)), expected, caller)
