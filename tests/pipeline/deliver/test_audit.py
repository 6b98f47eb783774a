"""Audit records of notifications: what they name, and that each attempt has its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.trial.unittest import SynchronousTestCase, TestCase

from ipf.ports import SYSTEM, Caller, Delivered, Event, Lease, Terms
from ipf.security.audit.delivery import delivery_audit, destination_of
from ipf.security.audit.event import audit_event
from ipf.security.audit.rules import id_suffixes
from tests.pipeline.deliver.test_deliver import DeliverFixture
from tests.rest.audit.test_patterns import errors

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LEASE = Lease("north", 1, "s1", 1, NOW, {}, 0, None)
TERMS = Terms("rest-hook", "https://user:secret@sub.example:8443/hook?key=secret")
CLINIC = Caller("app", "clinic-app", user="Practitioner/7")


def event(number: int, resource: str, *patients: str) -> Event:
    """An event of a resource that refers to these patients."""
    kind, _, id = resource.partition("/")
    body = ",".join(f'{{"reference":"Patient/{one}"}}' for one in patients).encode()
    return Event(number, kind, id, 3, NOW, "c-1", b"[" + body + b"]")


class DeliveryAuditTests(SynchronousTestCase):
    """`delivery_audit` as a table."""

    def _records(
        self, *events: Event, content: str = "full-resource", status: int | None = 200, caller: Caller = SYSTEM
    ) -> list[Any]:
        terms = Terms(TERMS.channel_type, TERMS.endpoint, content=content)
        delivered = Delivered(status, 12, None if status == 200 else "no")
        made = delivery_audit(id_suffixes())(LEASE, terms, events, delivered, NOW, caller)
        for one in made:
            event_resource = audit_event(one, "https://ipf.example/fhir")
            self.assertEqual(errors(event_resource), [])
            self.assertNotIn("secret", str(event_resource))
        return made

    def test_one_record_for_each_patient(self) -> None:
        made = self._records(event(1, "Patient/1"), event(2, "Observation/o", "1", "2"), event(3, "Location/l"))
        self.assertEqual(
            [(one.entities[1:], one.all_patients) for one in made],
            [(("Patient/1/_history/3", "Observation/o/_history/3"), ["Patient/1"]),
             (("Observation/o/_history/3",), ["Patient/2"]), (("Location/l/_history/3",), [])],
        )  # fmt: skip
        self.assertEqual({one.entities[0] for one in made}, {"Subscription/s1"})
        context = made[0].context
        self.assertEqual((context.tenant, context.interaction, context.action), ("north", "notification", "R"))
        self.assertEqual((context.address, context.agent), ("https://sub.example:8443", "ipf"))
        self.assertEqual((made[0].correlation_id, made[0].duration_ms), ("c-1", 12))

    def test_an_empty_notification_names_no_resource(self) -> None:
        (one,) = self._records(event(1, "Observation/o", "1"), content="empty")
        self.assertEqual((one.entities, one.all_patients), (("Subscription/s1",), ["Patient/1"]))

    def test_outcomes(self) -> None:
        for status, expected in ((200, 0), (404, 4), (503, 8), (None, 8)):
            (one,) = self._records(event(1, "Patient/1"), status=status)
            self.assertEqual((one.context.outcome, one.context.status), (expected, status or 0))

    def test_a_heartbeat_has_no_record(self) -> None:
        self.assertEqual(self._records(), [])

    def test_who_received_it(self) -> None:
        for caller, receiver in ((SYSTEM, "https://sub.example:8443"), (CLINIC, "app")):
            (one,) = self._records(event(1, "Patient/1"), caller=caller)
            server, agent = audit_event(one, "https://ipf.example/fhir")["agent"]
            self.assertEqual((server["who"]["display"], agent["who"]["display"]), ("ipf", receiver))
            self.assertEqual(agent["network"]["address"], "https://sub.example:8443")

    def test_destinations(self) -> None:
        for endpoint, expected in (
            ("http://a/x?y", "http://a"), ("mailto:nurse@clinic.example", "mailto:@clinic.example"), ("", ""),
        ):  # fmt: skip
            self.assertEqual(destination_of(endpoint), expected)


class DeliverAuditTests(DeliverFixture, TestCase):
    """The stage."""

    def test_each_attempt_is_settled_with_its_records(self) -> None:
        ends: list[Any] = []
        settle = self.queue.settle

        async def kept(lease: Any, end: Any) -> Any:
            ends.append(end)
            return await settle(lease, end)

        self.queue.settle = kept
        self.queue.add("a", 5)
        self.start(audit=delivery_audit(id_suffixes()))
        attempts = [one for end in ends for one in end.attempts]
        audits = [one for end in ends for one in end.audits]
        self.assertEqual((len(attempts), len(audits)), (5, 5))
        self.assertEqual({one.context.outcome for one in audits}, {0})

    def test_a_failure_to_make_a_record_fails_no_delivery(self) -> None:
        def broken(*_: object) -> Any:
            raise ValueError("broken")

        row = self.queue.add("a", 2)
        self.start(audit=broken)
        self.assertEqual((row.delivered, len(self.flushLoggedErrors(ValueError))), (2, 2))
        self.clock.advance(timedelta(seconds=1).total_seconds())
