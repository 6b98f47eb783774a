"""What a subscriber may be told of each event, by the grants of whoever wrote the Subscription."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import dumps
from ipf.pipeline.deliver.authorization import Authorization, Outdated, Verdict, judge, without_payload
from ipf.ports import OPEN, SYSTEM, Caller, Event, Json, Lease, Notification
from tests.contracts.resources import T0
from tests.security.test_scopes import ADA, BOB, LAB, VITAL, VITALS

SUBSCRIPTION: Json = {
    "resourceType": "Subscription", "id": "s", "meta": {"versionId": "1"},
    "channel": {"type": "rest-hook", "endpoint": "https://a", "payload": "application/fhir+json", "_payload": {},
                "header": ["A: b"]},
}  # fmt: skip

# (creator: scopes or None, patient, resource, verdict)
JUDGED: list[tuple[str | None, str | None, Json, Verdict]] = [
    (None, None, ADA, Verdict.SEND),
    ("system/Subscription.crus system/Patient.r", None, ADA, Verdict.SEND),
    ("system/Subscription.crus system/Patient.s", None, ADA, Verdict.SEND),
    ("system/*.read", None, VITALS, Verdict.SEND),
    ("system/Subscription.crus", None, ADA, Verdict.SIGNAL),
    ("system/Subscription.crus system/Patient.cud", None, ADA, Verdict.SIGNAL),
    ("", None, ADA, Verdict.SIGNAL),
    ("system/Patient.r", None, VITALS, Verdict.SIGNAL),
    (f"system/Observation.rs?category={VITAL}", None, VITALS, Verdict.SEND),
    (f"system/Observation.rs?category={VITAL}", None, LAB, Verdict.SKIP),
    ("patient/*.rs", "p1", ADA, Verdict.SEND),
    ("patient/*.rs", "p1", BOB, Verdict.SKIP),
    ("patient/*.rs", None, ADA, Verdict.SIGNAL),
]


def event(number: int, resource: Json, deleted: bool = False) -> Event:
    """An event of this resource."""
    body = b"" if deleted else dumps(resource)
    return Event(number, resource["resourceType"], resource["id"], 1, T0, "c", body)


def lease(**changes: Any) -> Lease:
    """A leased subscription."""
    return Lease("default", 1, "s", 1, T0, {**SUBSCRIPTION, **changes}, 0, None)


def lease_to(reader: Caller) -> Lease:
    """The same, with somebody who listens."""
    return replace(lease(), within=(reader,))


class Grants:
    """The writers of every Subscription, and how often they were asked for."""

    def __init__(self, *writers: Caller) -> None:
        self.found = writers
        self.newest = 1
        self.asked = 0

    async def writers(self, tenant: str, subscription_id: str, version_id: int) -> Sequence[Caller] | None:
        """See `ports.CreatorGrants.writers`."""
        self.asked += 1
        return None if version_id < self.newest else self.found


class Composed:
    """`ports.Compose` that keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[tuple[Lease, Sequence[Event]]] = []

    async def events(self, lease: Lease, events: Sequence[Event]) -> Notification:
        """See `ports.Compose.events`."""
        self.given.append((lease, events))
        return Notification("POST", "https://a", (), None, "c")


class ReleaseTests(TestCase):
    def release(self, *writers: Caller) -> tuple[Authorization, Grants, Composed]:
        """One around a composer that keeps what it was given."""
        grants, composed = Grants(*writers), Composed()
        return Authorization(grants, composed), grants, composed  # type: ignore[arg-type]

    def wait(self, work: Any) -> Any:
        """What a coroutine returns at once."""
        return self.successResultOf(Deferred.fromCoroutine(work))

    def test_verdicts(self) -> None:
        for scopes, patient, resource, verdict in JUDGED:
            caller = OPEN if scopes is None else Caller("ada", "app", tuple(scopes.split()), patient=patient)
            self.assertIs(judge(caller, event(1, resource)), verdict, (scopes, patient, resource))
        gone = event(1, ADA, deleted=True)
        self.assertIs(judge(Caller("ada", scopes=("system/Patient.r",)), gone), Verdict.SEND)
        self.assertIs(judge(Caller("ada", scopes=("patient/*.r",), patient="p1"), gone), Verdict.SKIP)
        self.assertIs(judge(SYSTEM, gone), Verdict.SEND)

    def test_the_sieve_and_the_notification(self) -> None:
        creator = Caller("ada", "app", ("system/Subscription.crus", f"system/Observation.rs?category={VITAL}"))
        release, grants, composed = self.release(creator)
        events = [event(1, VITALS), event(2, LAB), event(3, ADA)]
        kept = self.wait(release.authorization_filter(lease(), events))
        self.assertEqual([one.number for one in kept], [1, 3])
        self.wait(release.events(lease(), kept[:1]))
        self.wait(release.events(lease(), kept))
        (first, shown), (second, told) = composed.given
        self.assertEqual((first.resource, shown, first.within), (SUBSCRIPTION, kept[:1], [creator]))
        self.assertEqual(second.resource["channel"],
                         {"type": "rest-hook", "endpoint": "https://a", "header": ["A: b"]})  # fmt: skip
        self.assertEqual([one.body for one in told], [b"", b""])
        self.assertEqual(grants.asked, 1)

    def test_grants_are_read_again_for_another_version(self) -> None:
        release, grants, _ = self.release(Caller("ada"))
        for version in ("1", "1", "2", "2"):
            self.wait(release.authorization_filter(lease(meta={"versionId": version}), [event(1, ADA)]))
        self.assertEqual(grants.asked, 2)

    def test_several_writers(self) -> None:
        """What all of them may see is sent; what one may not is not; without content where one has none."""
        wide = Caller("bob", "ehr", ("system/*.cruds",))
        vital = Caller("ada", "app", ("system/Subscription.cru", f"system/Observation.rs?category={VITAL}"))
        events = [event(1, VITALS), event(2, LAB), event(3, ADA)]
        for writers in ((wide, vital), (vital, wide)):
            release, _, composed = self.release(*writers)
            kept = self.wait(release.authorization_filter(lease(), events))
            self.assertEqual([one.number for one in kept], [1, 3])
            self.wait(release.events(lease(), kept))
            ((told, shown),) = composed.given
            self.assertEqual((told.within, [one.body for one in shown]), (list(writers), [b"", b""]))
        release, _, composed = self.release(wide)
        self.assertEqual(self.wait(release.authorization_filter(lease(), events)), events)
        self.assertEqual(
            [one.number for one in self.wait(release.authorization_filter(lease_to(vital), events))], [1, 3]
        )

    def test_an_older_version_is_not_told(self) -> None:
        """The grants that are there now are not for the endpoint that it had."""
        release, grants, composed = self.release(Caller("bob", "ehr", ("system/*.cruds",)))
        grants.newest = 2
        self.failureResultOf(Deferred.fromCoroutine(release.authorization_filter(lease(), [event(1, ADA)])), Outdated)
        self.failureResultOf(Deferred.fromCoroutine(release.events(lease(), [event(1, ADA)])), Outdated)
        self.assertEqual(composed.given, [])
        newer = lease(meta={"versionId": "2"})
        self.assertEqual(self.wait(release.authorization_filter(newer, [event(1, ADA)])), [event(1, ADA)])

    def test_without_a_creator_everything_is_told(self) -> None:
        release, _, composed = self.release()
        events = [event(1, VITALS), event(2, ADA)]
        self.assertIs(self.wait(release.authorization_filter(lease(), events)), events)
        self.wait(release.events(lease(), events))
        self.assertEqual(composed.given, [(lease(), events)])

    def test_without_payload_leaves_the_rest(self) -> None:
        self.assertIn("payload", SUBSCRIPTION["channel"])
        self.assertNotIn("payload", without_payload(SUBSCRIPTION)["channel"])
