"""The stores of resources, deliveries and jobs, for `tests/contracts/programs.py`: on one FHIR database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

from ipf.ports import (
    Attempt,
    DeliveryEnd,
    DeliveryQueue,
    FhirStore,
    Json,
    Lease,
    Lookup,
    NewEvent,
    SubscriptionState,
    Writes,
)
from ipf.ports.jobs import Job as StoredJob
from ipf.ports.jobs import JobFile, Jobs
from tests.contracts.clock import CLOCK
from tests.contracts.programs import World
from tests.contracts.resources import change, patient

CORRELATION = "00000000-0000-0000-0000-000000000001"
WORKERS, NAMES, TENANT = ("w1", "w2"), ("s1", "s2", "s3"), "default"
STATES = ("active", "active", "active", "requested", "error", "off")


class DeliveryWorld(World):
    """`subscribed`: the Subscriptions by id; each write of one is a new version."""

    steps = (
        *("subscribe", "fire", "fire", "lease", "settle", "settle") * 3, "put_patient", "read", "heartbeats", "events",
        "beat", "record", "record_sent", "resend", "release", "peek", "websocket", "event_range", "events_after",
        "create_job", "lease_job", "lease_job", "write_job", "write_job", "renew_job", "remove_job", "expire_jobs",
    )  # fmt: skip

    def __init__(
        self, store: FhirStore, queue: DeliveryQueue, jobs: Jobs, close: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__()
        self.store, self.queue, self.jobs, self._close = store, queue, jobs, close
        self.subscribed: dict[str, tuple[int, int, Json]] = {}
        self.patients: dict[str, tuple[int, int, Json]] = {}
        self.leases: list[Lease] = []
        self.leased_jobs: list[StoredJob] = []

    async def close(self) -> None:
        await self._close()

    async def visible(self) -> Any:
        histories = [await self.queue.history(TENANT, name, 50, 0) for name in NAMES]
        jobs = [(await self.jobs.get(TENANT, name), await self.jobs.files(TENANT, name)) for name in NAMES]
        queue = self.queue
        healths = sorted(await queue.healths(TENANT, 50), key=lambda one: one.rid)
        return (
            healths, histories, sorted(await queue.holders()), sorted(await queue.requested(50)),
            sorted(await queue.ended(50)), await queue.active(), jobs, sorted((await self.store.counts()).items()),
        )  # fmt: skip

    # -- resources

    async def _write(self, known: dict[str, tuple[int, int, Json]], resource: Json, **writes: Any) -> int:
        rid, number, before = known.get(resource["id"], (0, 0, None))
        rid = rid or await self.store.new_rid()
        async with self.store.transaction() as transaction:
            await transaction.look_up(Lookup(), subscriptions_change="state" in writes)
            state = [writes.pop("state")(rid)] if "state" in writes else []
            changes = [replace(change(rid, resource, number + 1, before), correlation_id=CORRELATION)]
            await transaction.commit(Writes(changes, subscriptions=state, **writes))
        known[resource["id"]] = (rid, number + 1, resource)
        return rid

    async def subscribe(self, draw: Random) -> Any:
        name, status = draw.choice(NAMES), draw.choice(STATES)
        kind, beat = draw.choice(("rest-hook", "rest-hook", "websocket")), draw.choice((None, 30))
        ends = draw.choice((None, None, CLOCK() + timedelta(seconds=90)))
        resource = {"resourceType": "Subscription", "id": name, "status": status, "criteria": "Patient?"}
        error = "refused" if status == "error" else None

        def state(rid: int) -> SubscriptionState:
            return SubscriptionState(TENANT, rid, name, status, error, kind, beat, ends)

        await self._write(self.subscribed, resource, state=state)

    async def put_patient(self, draw: Random) -> Any:
        await self._write(self.patients, patient(draw.choice("abc"), active=draw.random() < 0.5))

    async def fire(self, draw: Random) -> Any:
        events = [NewEvent(rid, 0) for rid, _, _ in self.subscribed.values() if draw.random() < 0.7]
        await self._write(self.patients, patient(draw.choice("abc"), active=draw.random() < 0.5), events=events)

    async def read(self, draw: Random) -> Any:
        name = draw.choice("abcd")
        current = await self.store.read(TENANT, "Patient", name)
        return current, await self.store.history(TENANT, "Patient", name, 9, None)

    # -- deliveries

    async def lease(self, draw: Random) -> Any:
        until = CLOCK() + timedelta(seconds=draw.choice((0, 30, 60)))
        found = await self.queue.lease(draw.choice(WORKERS), draw.choice((1, 9)), until)
        return self._kept(found)

    async def heartbeats(self, draw: Random) -> Any:
        found = await self.queue.heartbeats(draw.choice(WORKERS), draw.choice((1, 9)), CLOCK() + timedelta(seconds=60))
        return self._kept(found)

    def _kept(self, found: list[Lease]) -> list[Lease]:
        """With their first two events: the store in memory adds no more of them to a lease."""
        found = [replace(lease, events=lease.events[:2]) for lease in found]
        self.leases += found
        return found

    def _lease(self, draw: Random) -> Lease | None:
        return draw.choice(self.leases[-4:]) if self.leases else None

    async def events(self, draw: Random) -> Any:
        lease = self._lease(draw)
        return lease and await self.queue.events(lease, draw.choice((1, 9)))

    def _attempt(self, number: int, succeeded: bool, kind: str = "event-notification") -> Attempt:
        status, error = (200, None) if succeeded else (503, "closed")
        return Attempt(number, CLOCK(), succeeded, status, 7, error, CORRELATION, kind)

    async def settle(self, draw: Random) -> Any:
        lease = self._lease(draw)
        return lease and await self.queue.settle(lease, self._end(draw, lease))

    def _end(self, draw: Random, lease: Lease) -> DeliveryEnd:
        numbers = [event.number for event in lease.events][: draw.choice((1, 2))]
        if not numbers:
            return DeliveryEnd(None, [])
        if draw.random() < 0.3:
            due = CLOCK() + timedelta(seconds=draw.choice((0, 5, 60)))
            return DeliveryEnd(None, [self._attempt(numbers[0], False)], due, lease.attempt_count + 1)
        attempts = [self._attempt(number, True) for number in numbers]
        until = draw.choice((None, CLOCK() + timedelta(seconds=60)))
        return DeliveryEnd(numbers[-1], attempts, keep_until=until, more=draw.choice((0, 1, 9)) if until else 0)

    async def beat(self, draw: Random) -> Any:
        lease = self._lease(draw)
        end = DeliveryEnd(None, [self._attempt(0, draw.random() < 0.7, "heartbeat")])
        return lease and await self.queue.settle(lease, end)

    async def record(self, draw: Random) -> Any:
        await self.queue.record(TENANT, draw.choice(NAMES), [self._attempt(0, draw.random() < 0.5, "handshake")])

    async def record_sent(self, draw: Random) -> Any:
        lease = await self.queue.websocket_subscription(TENANT, draw.choice(NAMES))
        if lease is not None and lease.last_event_number:
            sent = self._attempt(draw.randint(1, lease.last_event_number), True)
            await self.queue.record_sent({lease.subscription_rid: [replace(sent, http_status=None)]})

    async def resend(self, draw: Random) -> Any:
        name = draw.choice(NAMES)
        health = await self.queue.health(TENANT, name)
        if health is None or not health.last_event_number:
            return None
        first = draw.randint(1, health.last_event_number)
        return await self.queue.resend(TENANT, name, first, draw.randint(first, health.last_event_number))

    async def release(self, draw: Random) -> Any:
        return await self.queue.release(draw.choice(WORKERS))

    async def peek(self, draw: Random) -> Any:
        return await self.queue.peek(TENANT, draw.choice(NAMES))

    async def websocket(self, draw: Random) -> Any:
        return await self.queue.websocket_subscription(TENANT, draw.choice(NAMES))

    async def event_range(self, draw: Random) -> Any:
        return await self.queue.event_range(TENANT, draw.choice(NAMES), draw.choice((1, 2)), draw.choice((2, 9)), 3)

    async def events_after(self, draw: Random) -> Any:
        return await self.queue.events_after({rid: draw.choice((0, 1)) for rid, _, _ in self.subscribed.values()}, 3)

    # -- jobs

    async def create_job(self, draw: Random) -> Any:
        name = draw.choice(NAMES)
        if await self.jobs.get(TENANT, name) is None and not await self.jobs.remove(TENANT, name):
            expires = CLOCK() + timedelta(seconds=draw.choice((1, 100, 10_000)))
            await self.jobs.create(StoredJob(TENANT, name, "request", "{}", expires, b"{}"))

    async def lease_job(self, draw: Random) -> Any:
        found = await self.jobs.lease(draw.choice((1, 60)))
        if found is not None:
            self.leased_jobs.append(found)
        return found

    def _job(self, draw: Random) -> StoredJob | None:
        return draw.choice(self.leased_jobs[-3:]) if self.leased_jobs else None

    async def write_job(self, draw: Random) -> Any:
        job, file = self._job(draw), draw.choice((None, JobFile("http://x", 1, b"{}\n")))
        if job is None:
            return None
        done = draw.random() < 0.4
        if done:  # the worker forgets it
            self.leased_jobs.remove(job)
        return await self.jobs.write(replace(job, status="done" if done else "running", state='{"n":1}'), file)

    async def renew_job(self, draw: Random) -> Any:
        job = self._job(draw)
        return job and await self.jobs.renew(job, draw.choice((1, 60)), "1 of 2")

    async def remove_job(self, draw: Random) -> Any:
        return await self.jobs.remove(TENANT, draw.choice(NAMES))

    async def expire_jobs(self, draw: Random) -> Any:
        return await self.jobs.expire()
