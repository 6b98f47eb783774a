"""Random programs of store calls: memory and PostgreSQL agree on every result.

New seeds each run; a seed that ever failed is kept in `KEPT`.  `IPF_TEST_PROGRAMS=500` runs more of them.
"""

from __future__ import annotations

import os
from random import SystemRandom

from twisted.trial.unittest import TestCase

from ipf.store.inbox.feeds import PostgresFeeds
from ipf.store.inbox.forwards import PostgresForwards
from ipf.store.inbox.inbox import PostgresInbox
from tests import postgres
from tests.contracts.clock import CLOCK
from tests.contracts.message_worlds import MessageWorld
from tests.contracts.programs import Worlds, difference, program, shortest
from tests.fakes import MemoryInbox
from tests.fakes.feeds import MemoryFeeds
from tests.fakes.forwards import MemoryForwards
from tests.waiting import turns

COUNT = int(os.environ.get("IPF_TEST_PROGRAMS", "6"))
STEPS = 60
KEPT_MESSAGES: tuple[int, ...] = ()


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


async def _nothing() -> None:
    pass


KINDS = {"messages": (MessageWorld.steps, message_worlds)}
"""Steps and worlds of each kind of program."""


class ProgramTests(TestCase):
    """Both sides of each kind of store."""

    async def _check(self, seed: int, names: tuple[str, ...], worlds: Worlds) -> None:
        steps = program(names, seed, STEPS)
        found = await difference(steps, worlds)
        if found:
            short = await shortest(steps, worlds)
            found = await difference(short, worlds) or found
            self.fail(f"seed {seed}: {found}\nprogram: {short}")

    async def test_messages(self) -> None:
        for seed in (*KEPT_MESSAGES, *(SystemRandom().getrandbits(31) for _ in range(COUNT))):
            await self._check(seed, MessageWorld.steps, lambda seed=seed: message_worlds(seed % 2 == 0))
