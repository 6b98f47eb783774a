"""The contract of `ports.DeliveryQueue`, on a FHIR store that writes the events."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from ipf.ports import (
    Attempt,
    Caller,
    DeliveryEnd,
    DeliveryQueue,
    Lease,
    NewEvent,
    SubscriptionCreator,
    SubscriptionState,
)
from ipf.ports.delivery import Settled
from tests.contracts.audit import audit
from tests.contracts.clock import CLOCK
from tests.contracts.resources import CORRELATION, Writing, change, patient


def soon(seconds: float = 60) -> datetime:
    """So many seconds from now."""
    return CLOCK() + timedelta(seconds=seconds)


def attempt(number: int, succeeded: bool = True) -> Attempt:
    """One try."""
    status, error = (200, None) if succeeded else (500, "no \x1f luck")
    return Attempt(number, CLOCK(), succeeded, status, 12, error, CORRELATION)


class DeliveryQueueContract(Writing):
    """Tests for a subclass that sets `self.store` and `self.queue`, on `CLOCK`, in `setUp`."""

    queue: DeliveryQueue

    async def fire(self, subscription_rid: int, id: str) -> None:
        """One event of a new Patient."""
        rid = await self.store.new_rid()
        await self.write(change(rid, patient(id)), events=[NewEvent(subscription_rid, 0)])

    async def lease(self, seconds: float = 60) -> list[Lease]:
        """What is due."""
        return await self.queue.lease("w", 10, soon(seconds))

    async def pending(self, lease: Lease) -> list[tuple[int, str]]:
        """Numbers and ids of the events not delivered."""
        return [(event.number, event.id) for event in await self.queue.events(lease, 10)]

    async def test_tenants_of_an_id(self) -> None:
        """In whatever partition it is; several where clients chose the same id; none of a deleted one."""
        for tenant, id, status in (("default", "s1", "active"), ("north", "s1", "off"), ("north", "s2", "error"),
                                   ("south", "s1", "deleted")):  # fmt: skip
            resource = {"resourceType": "Subscription", "id": id, "status": status, "criteria": "Patient?"}
            rid = await self.store.new_rid()
            state = SubscriptionState(tenant, rid, id, status)
            await self.write(replace(change(rid, resource), tenant=tenant), subscriptions_change=True,
                             subscriptions=[state])  # fmt: skip
        for id, tenants in (("s1", ["default", "north"]), ("s2", ["north"]), ("s3", [])):
            self.assertEqual(sorted(await self.queue.tenants_of(id)), tenants)

    async def test_a_narrow_client_that_takes_over_an_endpoint_gets_later_events(self) -> None:
        """Another client's pending events do not reach it; without `skips` they do."""
        rid = await self.subscribe("s1")
        resource = {"resourceType": "Subscription", "id": "s1", "status": "active", "criteria": "Patient?"}
        for number, (skips, left) in enumerate(((False, [(1, "a")]), (True, [(3, "c")])), 2):
            await self.fire(rid, "ab"[number - 2])
            creator = SubscriptionCreator("default", rid, Caller("ada", f"app{number}"), skips=skips)
            await self.write(change(rid, resource, number, resource), subscriptions_change=True, creators=[creator])
            if skips:
                self.assertEqual(await self.lease(), [])
                await self.fire(rid, "c")
            (lease,) = await self.lease()
            self.assertEqual(await self.pending(lease), left)
            await self.queue.settle(lease, DeliveryEnd(None, []))

    async def test_delivery(self) -> None:
        """Leased once, events in order, cursor and counters advance, released when nothing is left."""
        rid, quiet = await self.subscribe("s1"), await self.subscribe("s2")
        self.assertEqual(await self.lease(), [])
        for id_ in ("a", "b", "c"):
            await self.fire(rid, id_)
        (lease,) = await self.lease()
        self.assertEqual((lease.subscription_id, lease.resource["id"], lease.attempt_count), ("s1", "s1", 0))
        self.assertEqual(await self.lease(), [])
        self.assertEqual(await self.pending(lease), [(1, "a"), (2, "b"), (3, "c")])
        (first, *_) = await self.queue.events(lease, 1)
        self.assertEqual((first.resource_type, first.version_id, first.correlation_id), ("Patient", 1, CORRELATION))
        self.assertEqual(first.body, b'{"resourceType":"Patient","id":"a"}')
        self.assertEqual([event.number for event in lease.events][:2], [1, 2])
        self.assertEqual(lease.events[0].body, first.body)
        keep = DeliveryEnd(2, [attempt(1), attempt(2)], keep_until=soon())
        self.assertEqual(await self.queue.settle(lease, keep), Settled(True))
        self.assertEqual(await self.pending(lease), [(3, "c")])
        last = attempt(3)
        self.assertTrue(await self.queue.settle(lease, DeliveryEnd(3, [last])))
        page = await self.queue.history("default", "s1", 1, 0)
        assert page is not None
        self.assertEqual((page.total, list(page.attempts)), (3, [last]))
        self.assertEqual(await self.lease(), [])
        self.assertIsNone(await self.queue.settle(lease, DeliveryEnd(None, [])))
        health = await self.queue.health("default", "s1")
        assert health is not None
        self.assertEqual((health.rid, health.last_event_number, health.delivered_number), (rid, 3, 3))
        self.assertEqual((health.success_count, health.failure_count, health.last_error), (3, 0, None))
        self.assertNotEqual(rid, quiet)
        self.assertIsNone(await self.queue.health("north", "s1"))

    async def recorded(self) -> list[str]:
        """The ids of the audit records, sorted."""
        raise NotImplementedError

    async def test_audit_records_are_written_with_the_attempts(self) -> None:
        """Also when the lease was lost meanwhile: the notification was sent."""
        rid = await self.subscribe("s1")
        await self.fire(rid, "a")
        (lease,) = await self.lease()
        one, two, three, four = (audit(number) for number in range(4))
        settled = await self.queue.settle(lease, DeliveryEnd(1, [attempt(1)], audits=[one, two]))
        self.assertEqual(settled, Settled(False))
        self.assertIsNone(await self.queue.settle(lease, DeliveryEnd(None, [attempt(1)], audits=[three])))
        await self.queue.record_sent({rid: [attempt(1)]}, [four])
        self.assertEqual(await self.recorded(), [one.id, two.id, three.id, four.id])

    async def test_settle_returns_the_next_events(self) -> None:
        """The lease is kept while there are further events, which are returned; then it is released."""
        rid, other = await self.subscribe("s1"), await self.subscribe("s2")
        for id_ in ("a", "b", "c", "d"):
            await self.fire(rid, id_)
        await self.fire(other, "z")
        lease, second = await self.lease()
        self.assertEqual([event.id for event in second.events], ["z"])
        settled = await self.queue.settle(lease, DeliveryEnd(1, [attempt(1)], keep_until=soon(), more=2))
        assert settled is not None and settled.is_kept
        self.assertEqual([(event.number, event.id) for event in settled.events], [(2, "b"), (3, "c")])
        settled = await self.queue.settle(lease, DeliveryEnd(3, [], keep_until=soon(), more=5))
        assert settled is not None
        self.assertEqual([event.id for event in settled.events], ["d"])
        self.assertEqual(await self.queue.settle(lease, DeliveryEnd(4, [], keep_until=soon(), more=5)), Settled(False))
        self.assertEqual(await self.lease(), [])
        await self.fire(rid, "e")
        (lease,) = await self.lease()
        self.assertEqual([(event.number, event.id) for event in lease.events], [(5, "e")])
        await self.fire(rid, "f")
        await self._become(rid, "off", 2)
        end = DeliveryEnd(5, [], keep_until=soon(), more=5)
        self.assertEqual(await self.queue.settle(lease, end), Settled(False))

    async def test_lease_is_not_renewed_for_a_subscription_that_is_off(self) -> None:
        """What was acknowledged is settled; with and without an attempt of its own."""
        rid = await self.subscribe("s1")
        for id_ in ("a", "b", "c"):
            await self.fire(rid, id_)
        for version, reached, attempts in ((2, 1, [attempt(1)]), (4, 2, [])):
            (lease,) = await self.lease()
            await self._become(rid, "off", version)
            end = DeliveryEnd(reached, attempts, keep_until=soon())
            self.assertEqual(await self.queue.settle(lease, end), Settled(False))
            self.assertIsNone(await self.queue.settle(lease, end))
            await self._become(rid, "active", version + 1)
            health = await self.queue.health("default", "s1")
            assert health is not None
            self.assertEqual(health.delivered_number, reached)

    async def test_failure_backs_off(self) -> None:
        """Not due before `retry_at`; failure count and time of the first failure are kept until a success."""
        rid = await self.subscribe("s1")
        await self.fire(rid, "a")
        (lease,) = await self.lease()
        failing = DeliveryEnd(None, [attempt(1, False)], retry_at=soon(600), attempt_count=1)
        await self.queue.settle(lease, failing)
        await self.fire(rid, "b")
        self.assertEqual(await self.lease(), [])
        CLOCK.advance(601)
        (lease,) = await self.lease()
        self.assertEqual(lease.attempt_count, 1)
        self.assertIsNotNone(lease.failing_since)
        await self.queue.settle(lease, DeliveryEnd(1, [attempt(1)]))
        (lease,) = await self.lease()
        self.assertEqual((lease.attempt_count, lease.failing_since), (0, None))
        self.assertEqual(await self.pending(lease), [(2, "b")])

    async def test_lease_expires(self) -> None:
        """Another worker takes over; the former holder settles nothing and reads nothing."""
        rid = await self.subscribe("s1")
        await self.fire(rid, "a")
        (lost,) = await self.lease(600)
        CLOCK.advance(601)
        (held,) = await self.lease()
        self.assertIsNone(await self.queue.settle(lost, DeliveryEnd(1, [attempt(1)])))
        self.assertEqual(await self.pending(lost), [])
        self.assertEqual(await self.pending(held), [(1, "a")])

    async def test_leases_of_a_dead_worker_are_released(self) -> None:
        """At once; the dead worker can no longer settle, and leases of others stay."""
        rid, other = await self.subscribe("s1"), await self.subscribe("s2")
        await self.fire(rid, "a")
        (lost,) = await self.queue.lease("host:1", 5, soon())
        await self.fire(other, "b")
        (kept,) = await self.queue.lease("host:2", 5, soon())
        self.assertEqual(sorted(await self.queue.holders()), ["host:1", "host:2"])
        self.assertEqual(await self.queue.release("host:1"), 1)
        self.assertEqual(await self.queue.holders(), ["host:2"])
        self.assertIsNone(await self.queue.settle(lost, DeliveryEnd(1, [attempt(1)])))
        (again,) = await self.queue.lease("host:3", 5, soon())
        self.assertEqual(await self.pending(again), [(1, "a")])
        self.assertEqual(await self.pending(kept), [(1, "b")])

    async def test_only_active_subscriptions_are_leased(self) -> None:
        """`requested` waits for activation, `error` keeps its events, a new status resets the backoff."""
        rid = await self.subscribe("s1", "requested")
        await self.fire(rid, "a")
        self.assertEqual(await self.lease(), [])
        self.assertEqual(await self.queue.requested(10), [("default", "s1")])
        await self._become(rid, "active", 2)
        self.assertEqual(await self.queue.requested(10), [])
        (lease,) = await self.lease()
        failing = DeliveryEnd(None, [attempt(1, False)], retry_at=soon(), attempt_count=8)
        await self.queue.settle(lease, failing)
        await self._become(rid, "error", 3)
        await self.fire(rid, "b")
        self.assertEqual(await self.lease(), [])
        await self._become(rid, "active", 4)
        (lease,) = await self.lease()
        self.assertEqual(lease.attempt_count, 0)
        self.assertEqual(await self.pending(lease), [(1, "a"), (2, "b")])
        self.assertEqual(await self.queue.active(), 1)

    async def test_off_pauses_a_leased_subscription(self) -> None:
        """`off` pauses delivery at the next load, although the lease is still held."""
        rid = await self.subscribe("s1", "active")
        await self.fire(rid, "a")
        (lease,) = await self.lease()
        await self._become(rid, "off", 2)
        self.assertEqual(await self.pending(lease), [])
        self.assertEqual(await self.queue.active(), 0)

    async def test_requested_revokes_the_lease(self) -> None:
        """The endpoint may have changed: the old one receives nothing more, the new one all events."""
        rid = await self.subscribe("s1", "active")
        await self.fire(rid, "a")
        (old,) = await self.lease()
        await self._become(rid, "requested", 2)
        await self._become(rid, "active", 3)
        self.assertEqual(await self.pending(old), [])
        self.assertIsNone(await self.queue.settle(old, DeliveryEnd(1, [attempt(1)], keep_until=soon(), more=9)))
        (lease,) = await self.lease()
        self.assertEqual(await self.pending(lease), [(1, "a")])
        await self._become(rid, "active", 4)
        self.assertIsNotNone(await self.queue.settle(lease, DeliveryEnd(1, [attempt(1)])))

    async def test_heartbeats_are_due_after_silence(self) -> None:
        """Not before; an acknowledged attempt of any kind postpones the next; without a period there is none."""
        await self.subscribe("s1", heartbeat_seconds=0)
        await self.subscribe("s2")
        await self.subscribe("s3", heartbeat_seconds=60)
        (lease,) = await self.queue.heartbeats("w", 5, soon())
        self.assertEqual((lease.subscription_id, lease.last_event_number), ("s1", 0))
        self.assertEqual(await self.queue.heartbeats("w", 5, soon()), [])
        beat = Attempt(0, CLOCK(), True, 200, 3, None, CORRELATION, "heartbeat")
        self.assertTrue(await self.queue.settle(lease, DeliveryEnd(None, [beat])))
        page = await self.queue.history("default", "s1", 10, 0)
        assert page is not None
        self.assertEqual((page.total, page.attempts[0].kind, page.attempts[0].event_number), (1, "heartbeat", 0))
        self.assertEqual(len(await self.queue.heartbeats("w", 5, soon())), 1)

    async def test_history_and_health(self) -> None:
        """Every attempt, newest first, in pages; the health of all subscriptions in one call, with the resource."""
        rid = await self.subscribe("s1")
        await self.subscribe("s2", "error", error="gone")
        await self.subscribe("s3", "deleted")
        for id_ in ("a", "b", "c"):
            await self.fire(rid, id_)
        (lease,) = await self.lease()
        await self.queue.settle(lease, DeliveryEnd(None, [attempt(1, False)], attempt_count=1))
        (lease,) = await self.lease()
        both = Attempt(1, CLOCK(), True, 204, 7, None, CORRELATION, to_event_number=2)
        await self.queue.settle(lease, DeliveryEnd(2, [both]))
        page = await self.queue.history("default", "s1", 1, 0)
        assert page is not None
        self.assertEqual((page.total, list(page.attempts)), (2, [both]))
        page = await self.queue.history("default", "s1", 1, 1)
        assert page is not None
        self.assertEqual((page.attempts[0].succeeded, page.attempts[0].http_status), (False, 500))
        empty = await self.queue.history("default", "s1", 5, 10)
        assert empty is not None
        self.assertEqual((empty.total, len(empty.attempts)), (2, 0))
        self.assertIsNone(await self.queue.history("default", "nobody", 5, 0))
        self.assertIsNone(await self.queue.history("default", "s3", 5, 0))
        first, second = await self.queue.healths(None, 500)
        self.assertEqual((first.id, first.success_count, first.failure_count, first.delivered_number), ("s1", 1, 1, 2))
        self.assertEqual((second.id, second.error, second.resource["id"]), ("s2", "gone", "s2"))
        self.assertIsNone(second.last_attempt_succeeded)
        self.assertEqual(len(await self.queue.healths("default", 1)), 1)
        self.assertEqual(await self.queue.healths("north", 5), [])

    async def test_attempts_without_a_lease(self) -> None:
        """A handshake is counted and in the ledger; for a deleted subscription nothing is written."""
        await self.subscribe("s1", "requested")
        shake = Attempt(0, CLOCK(), False, 503, 3, "HTTP status 503", CORRELATION, "handshake")
        await self.queue.record("default", "s1", [shake])
        await self.queue.record("default", "nobody", [shake])
        health = await self.queue.health("default", "s1")
        assert health is not None
        self.assertEqual((health.failure_count, health.last_error, health.delivered_number), (1, "HTTP status 503", 0))
        page = await self.queue.history("default", "s1", 5, 0)
        assert page is not None
        self.assertEqual(list(page.attempts), [shake])

    async def test_websockets_are_read_not_leased(self) -> None:
        """Each reader has its own cursor; the row follows the furthest; only active subscriptions are read."""
        rid, other = await self.subscribe("s1", channel_type="websocket"), await self.subscribe("s2")
        off = await self.subscribe("s3", "off", channel_type="websocket")
        for id_ in ("a", "b", "c"):
            await self.fire(rid, id_)
        await self.fire(off, "d")
        self.assertEqual(await self.lease(), [])
        found_lease = await self.queue.websocket_subscription("default", "s1")
        assert found_lease is not None
        self.assertEqual(
            (
                found_lease.subscription_rid,
                found_lease.last_event_number,
                found_lease.resource["id"],
            ),
            (rid, 3, "s1"),
        )
        self.assertIsNone(await self.queue.websocket_subscription("default", "s2"))
        self.assertIsNone(await self.queue.websocket_subscription("north", "s1"))
        found = await self.queue.events_after({rid: 1, other: 0, off: 0}, 10)
        self.assertEqual(
            [(found_rid, event.number, event.id) for found_rid, event in found], [(rid, 2, "b"), (rid, 3, "c")]
        )
        self.assertEqual(len(await self.queue.events_after({rid: 0}, 2)), 2)
        await self.queue.record_sent({rid: [attempt(2), attempt(3)]})
        await self.queue.record_sent({rid: [attempt(1)]})
        await self.queue.record_sent({})
        health = await self.queue.health("default", "s1")
        assert health is not None
        self.assertEqual((health.delivered_number, health.success_count), (3, 3))

    async def test_reading_and_resending(self) -> None:
        """Events by number; events to send again are due from the number on; the lease is revoked."""
        rid = await self.subscribe("s1")
        for id_ in ("a", "b", "c"):
            await self.fire(rid, id_)
        (held,) = await self.lease()
        self.assertTrue(await self.queue.settle(held, DeliveryEnd(3, [], keep_until=held.until)))
        read = await self.queue.event_range("default", "s1", 2, 9, 5)
        self.assertEqual([(one.number, one.id, one.method) for one in read], [(2, "b", "PUT"), (3, "c", "PUT")])
        self.assertEqual(len(await self.queue.event_range("default", "s1", 1, 3, 2)), 2)
        self.assertEqual(await self.queue.event_range("other", "s1", 1, 3, 2), [])
        seen = await self.queue.peek("default", "s1")
        assert seen is not None
        self.assertEqual((seen.token, seen.last_event_number, seen.resource["id"]), (0, 3, "s1"))
        self.assertIsNone(await self.queue.peek("default", "nobody"))
        self.assertEqual(await self.queue.resend("default", "s1", 2, 3), 2)
        self.assertIsNone(await self.queue.settle(held, DeliveryEnd(3, [])))
        (again,) = await self.lease()
        self.assertEqual(await self.pending(again), [(2, "b"), (3, "c")])
        await self.queue.settle(again, DeliveryEnd(None, [], retry_at=soon(-1)))
        (retried,) = await self.lease()
        self.assertEqual(held.resent, 0)
        self.assertEqual(retried.resent, again.resent, "a repeated attempt")
        self.assertEqual(await self.queue.resend("default", "s1", 2, 3), 2)
        (once_more,) = await self.lease()
        self.assertEqual(len({held.resent, again.resent, once_more.resent}), 3, "each resend has another number")
        self.assertIsNone(await self.queue.resend("default", "nobody", 1, 1))
        await self._become(rid, "error", 2)
        self.assertIsNone(await self.queue.resend("default", "s1", 1, 3))

    async def test_a_range_is_sent_again(self) -> None:
        """Afterwards delivery continues at its former position; overlapping ranges merge."""
        rid = await self.subscribe("s1")
        for number in range(1, 8):
            await self.fire(rid, f"p{number}")
        (lease,) = await self.lease()
        await self.queue.settle(lease, DeliveryEnd(6, []))
        self.assertEqual(await self.queue.resend("default", "s1", 2, 3), 3)
        (lease,) = await self.lease()
        self.assertEqual([event.number for event in lease.events], [2, 3])
        settled = await self.queue.settle(lease, DeliveryEnd(2, [], keep_until=soon(), more=9))
        assert settled is not None
        self.assertEqual([event.number for event in settled.events], [3])
        settled = await self.queue.settle(lease, DeliveryEnd(3, [], keep_until=soon(), more=9))
        assert settled is not None
        self.assertEqual([event.number for event in settled.events], [7])
        self.assertEqual(await self.queue.settle(lease, DeliveryEnd(7, [], keep_until=soon(), more=9)), Settled(False))
        self.assertEqual(await self.lease(), [])
        self.assertEqual(await self.queue.resend("default", "s1", 4, 4), 1)
        self.assertEqual(await self.queue.resend("default", "s1", 2, 2), 3)
        (lease,) = await self.lease()
        self.assertEqual(await self.pending(lease), [(number, f"p{number}") for number in (2, 3, 4)])
        self.assertEqual(await self.queue.settle(lease, DeliveryEnd(4, [])), Settled(False))
        self.assertEqual(await self.lease(), [])
        self.assertEqual(await self.queue.resend("default", "s1", 6, 7), 2)
        (lease,) = await self.lease()
        self.assertEqual(await self.pending(lease), [(6, "p6"), (7, "p7")])

    async def test_ended_subscriptions(self) -> None:
        """Subscriptions past their `end` that still fire."""
        rid, past = await self.subscribe("s1"), datetime(2024, 1, 1, tzinfo=UTC)
        self.assertEqual(await self.queue.ended(5), [])
        for status, expected in (
            ("requested", [("default", "s1")]),
            ("active", [("default", "s1")]),
            ("error", [("default", "s1")]),
            ("off", []),
        ):
            state = SubscriptionState("default", rid, "s1", status, heartbeat_seconds=0, ends_at=past)
            await self.write(subscriptions_change=True, subscriptions=[state])
            self.assertEqual(await self.queue.ended(5), expected)
            self.assertEqual(await self.queue.requested(5), [], "no handshake after the end")
            self.assertEqual(await self.queue.heartbeats("w", 5, soon()), [], "no heartbeat after the end")

    async def _become(self, rid: int, status: str, number: int) -> None:
        resource = {"resourceType": "Subscription", "id": "s1", "status": status}
        state = SubscriptionState("default", rid, "s1", status)
        updated = change(rid, resource, number, resource)
        await self.write(updated, subscriptions_change=True, subscriptions=[state])
