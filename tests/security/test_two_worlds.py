"""No oracle: whatever a limited client requests, he gets the same answers in two worlds that differ in what is hidden.

Thousands of seeded scenarios on the stores in memory, some dozens on PostgreSQL.  `IPF_TWO_WORLDS_RUNS=50000` runs more
of them, `IPF_TWO_WORLDS_SEED=7` only that one.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.rest.interactions.histories import many as history_many
from ipf.security.access import install
from ipf.security.privacy.labels import ACT_CODE, LabelRules
from ipf.security.privacy.policy import Privacy
from ipf.store.audit.audit import PostgresAuditStore
from ipf.store.resources.resources import PostgresFhirStore
from tests import postgres
from tests.security.two_worlds import MakeWorlds, Scenario, compare, hidden_steps, report
from tests.security.two_worlds_server import Server, served
from tests.security.two_worlds_steps import Maker

RUNS = int(os.environ.get("IPF_TWO_WORLDS_RUNS", "2000"))
SEED = os.environ.get("IPF_TWO_WORLDS_SEED")
ON_POSTGRES = 60


def seeds(count: int) -> range:
    """The seeds to run."""
    return range(int(SEED), int(SEED) + 1) if SEED is not None else range(count)


async def empty_worlds() -> tuple[Server, Server]:
    """Two worlds in memory."""
    return served(), served()


async def check(seed: int, make: MakeWorlds, *, has_labels: bool = False) -> Scenario:
    """One scenario; AssertionError with the smallest scenario that has a difference."""
    scenario = Maker(seed, has_labels).scenario()
    if await compare(scenario, await make()) is not None:
        raise AssertionError(f"seed {seed}\n{await report(scenario, make)}")
    return scenario


class OnMemoryTests(TestCase):
    """Thousands of scenarios."""

    timeout = 6000

    def setUp(self) -> None:
        self.patch(history_many, "_SCANNED", 2)  # pages of histories are put together from several

    def result_of(self, coroutine: Any) -> Any:
        """The result of a coroutine that never waits."""
        return self.successResultOf(Deferred.fromCoroutine(coroutine))

    def test_no_answer_tells_of_what_is_hidden(self) -> None:
        """Every answer is equal."""
        hidden = 0
        for seed in seeds(RUNS):
            hidden += hidden_steps(self.result_of(check(seed, empty_worlds)).steps)
        self.assertGreater(hidden, 0)

    def test_no_answer_tells_of_what_labels_hide(self) -> None:
        """Labels hide resources that the scopes alone would show."""
        install(Privacy(LabelRules.of(["R", f"{ACT_CODE}|ETH"])))
        self.addCleanup(install, None)
        hidden = 0
        for seed in seeds(RUNS // 4):
            hidden += hidden_steps(self.result_of(check(seed, empty_worlds, has_labels=True)).steps)
        self.assertGreater(hidden, 0)


class OnPostgresTests(postgres.PostgresTestCase):  # type: ignore[misc]  # chosen at run time
    """Some dozens of scenarios, each for tenants of its own in two databases."""

    timeout = 6000

    async def setUp(self) -> None:
        databases = [await postgres.database(self, "fhir") for _ in range(2)]
        self.worlds = [
            Server(PostgresFhirStore(one), database=one, export_hours=1e6, trail=PostgresAuditStore(one))
            for one in databases
        ]
        self.runs = 0

    async def make(self) -> tuple[Server, Server]:
        """Two worlds whose tenants have nothing yet."""
        self.runs += 1
        for world in self.worlds:
            world.suffix = f"-{self.runs}"
        first, second = self.worlds
        return first, second

    async def test_no_answer_tells_of_what_is_hidden(self) -> None:
        """Every answer is equal, and so is the length of page tokens."""
        for seed in seeds(ON_POSTGRES):
            await check(seed, self.make)
