"""Authorization of events by the grants of the writers of the Subscription."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import dumps
from ipf.pipeline.deliver.authorization import Authorization, Decision, SubscriptionChanged, decide, without_payload
from ipf.ports import OPEN, SYSTEM, Caller, Event, Json, Lease, Notification
from tests.contracts.resources import T0
from tests.security.test_scopes import ADA, BOB, LAB, VITAL, VITALS

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
    ("patient/*.rs", None, ADA, Decision.WITHOUT_CONTENT),
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

    def __init__(self, *writers: Caller) -> None:
        self.found = writers
        self.newest = 1
        self.asked = 0

    async def writers(self, tenant: str, subscription_id: str, version_id: int) -> Sequence[Caller] | None:
        """See `ports.CreatorGrants.writers`."""
        self.asked += 1
        return None if version_id < self.newest else self.found


class Composed:
    """`ports.Compose` that records its arguments."""

    def __init__(self) -> None:
        self.given: list[tuple[Lease, Sequence[Event]]] = []

    async def events(self, lease: Lease, events: Sequence[Event]) -> Notification:
        """See `ports.Compose.events`."""
        self.given.append((lease, events))
        return Notification("POST", "https://a", (), None, "c")


class AuthorizationTests(TestCase):
    def authorization(self, *writers: Caller) -> tuple[Authorization, Grants, Composed]:
        """An Authorization, its grants and its composer."""
        grants, composed = Grants(*writers), Composed()
        return Authorization(grants, composed), grants, composed  # type: ignore[arg-type]

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

    def test_filter_and_notification(self) -> None:
        creator = Caller("ada", "app", ("system/Subscription.crus", f"system/Observation.rs?category={VITAL}"))
        authorization, grants, composed = self.authorization(creator)
        events = [event(1, VITALS), event(2, LAB), event(3, ADA)]
        kept = self.wait(authorization.authorization_filter(lease(), events))
        self.assertEqual([one.number for one in kept], [1, 3])
        self.wait(authorization.events(lease(), kept[:1]))
        self.wait(authorization.events(lease(), kept))
        (first, shown), (second, composed_events) = composed.given
        self.assertEqual((first.resource, shown, first.callers), (SUBSCRIPTION, kept[:1], [creator]))
        self.assertEqual(second.resource["channel"],
                         {"type": "rest-hook", "endpoint": "https://a", "header": ["A: b"]})  # fmt: skip
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
        vital = Caller("ada", "app", ("system/Subscription.cru", f"system/Observation.rs?category={VITAL}"))
        events = [event(1, VITALS), event(2, LAB), event(3, ADA)]
        for writers in ((wide, vital), (vital, wide)):
            authorization, _, composed = self.authorization(*writers)
            kept = self.wait(authorization.authorization_filter(lease(), events))
            self.assertEqual([one.number for one in kept], [1, 3])
            self.wait(authorization.events(lease(), kept))
            ((composed_events, shown),) = composed.given
            self.assertEqual((composed_events.callers, [one.body for one in shown]), (list(writers), [b"", b""]))
        authorization, _, composed = self.authorization(wide)
        self.assertEqual(self.wait(authorization.authorization_filter(lease(), events)), events)
        self.assertEqual(
            [one.number for one in self.wait(authorization.authorization_filter(lease_to(vital), events))], [1, 3]
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

    def test_without_payload_keeps_other_members(self) -> None:
        self.assertIn("payload", SUBSCRIPTION["channel"])
        self.assertNotIn("payload", without_payload(SUBSCRIPTION)["channel"])
