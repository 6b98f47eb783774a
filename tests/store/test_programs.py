"""Random programs of store calls: memory and PostgreSQL agree on every result.

New seeds each run; a seed that ever failed is kept in `KEPT`.  `IPF_TEST_PROGRAMS=500` runs more of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import SystemRandom

from twisted.trial.unittest import TestCase

from ipf.store.deliveries.deliveries import PostgresDeliveryQueue
from ipf.store.inbox.feeds import PostgresFeeds
from ipf.store.inbox.forwards import PostgresForwards
from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.resources.jobs import PostgresJobs
from ipf.store.resources.resources import PostgresFhirStore
from tests import postgres
from tests.contracts.clock import CLOCK
from tests.contracts.delivery_worlds import DeliveryWorld
from tests.contracts.message_worlds import MessageWorld
from tests.contracts.programs import Worlds, difference, program, shortest
from tests.fakes import MemoryDeliveryQueue, MemoryFhirStore, MemoryInbox
from tests.fakes.feeds import MemoryFeeds
from tests.fakes.forwards import MemoryForwards
from tests.fakes.jobs import MemoryJobs
from tests.waiting import turns

COUNT = int(os.environ.get("IPF_TEST_PROGRAMS", "3"))
STEPS = 40
KEPT: dict[str, tuple[int, ...]] = {"messages": (3,), "deliveries": (17, 576540557)}


async def message_worlds(holds: bool) -> tuple[MessageWorld, MessageWorld]:
    """Both sides, empty.  `holds`: `PermanentErrors.hold`."""
    memory = MemoryInbox(CLOCK, holds_permanent=holds)
    database = await postgres.fresh("ipf", size=2, now=CLOCK)
    inbox, seconds = PostgresInbox(database, holds_permanent=holds), iter(range(10**9))
    forwards = PostgresForwards(database, lambda: next(seconds))

    async def ready() -> None:
        last = await forwards.horizon.last_id()
        while await forwards.horizon.move() < last:
            await turns(1)

    async def close() -> None:
        await postgres.drop(database)

    real = MessageWorld(inbox, forwards, PostgresFeeds(database, inbox), ready, close)
    forgotten = MessageWorld(memory, MemoryForwards(memory, CLOCK), MemoryFeeds(memory, CLOCK), _nothing, _nothing)
    return forgotten, real


async def delivery_worlds(_: bool) -> tuple[DeliveryWorld, DeliveryWorld]:
    """Both sides, empty."""
    memory = MemoryFhirStore()
    database = await postgres.fresh("fhir", size=2, now=CLOCK)

    async def close() -> None:
        await postgres.drop(database)

    real = DeliveryWorld(PostgresFhirStore(database), PostgresDeliveryQueue(database), PostgresJobs(database), close)
    return DeliveryWorld(memory, MemoryDeliveryQueue(memory, CLOCK), MemoryJobs(memory, CLOCK), _nothing), real


async def _nothing() -> None:
    pass


KINDS = {"messages": (MessageWorld.steps, message_worlds), "deliveries": (DeliveryWorld.steps, delivery_worlds)}
"""Steps and worlds of each kind of program."""


class ProgramTests(TestCase):
    """Both sides of each kind of store."""

    async def _check(self, kind: str) -> None:
        names, worlds = KINDS[kind]
        for seed in (*KEPT[kind], *(SystemRandom().getrandbits(31) for _ in range(COUNT))):
            await self._agree(seed, names, lambda seed=seed: worlds(seed % 2 == 0))

    async def _agree(self, seed: int, names: Sequence[str], worlds: Worlds) -> None:
        steps = program(names, seed, STEPS)
        found = await difference(steps, worlds)
        if found:
            short = await shortest(steps, worlds)
            self.fail(f"seed {seed}: {await difference(short, worlds) or found}\nprogram: {short}")

    async def test_messages(self) -> None:
        await self._check("messages")

    async def test_deliveries(self) -> None:
        await self._check("deliveries")
