"""No oracle: whatever a limited client requests, he gets the same answers in two worlds that differ in what is hidden.

New scenarios in each run, from a seed that a failure names; `IPF_TWO_WORLDS_SEED=7` runs that one again.  A seed that
ever failed is added to `KEPT`.  `test_two_worlds_campaign.py` runs thousands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from tests.security.two_worlds import MakeWorlds, Scenario, compare, hidden_steps, report, seeds
from tests.security.two_worlds_server import Server, served
from tests.security.two_worlds_steps import Maker

KEPT: tuple[int, ...] = (0, 1, 2)
NEW = 24
NEW_ON_POSTGRES = 2


async def empty_worlds() -> tuple[Server, Server]:
    """Two worlds in memory."""
    return served(), served()


async def check(seed: int, make: MakeWorlds, *, has_labels: bool = False) -> Scenario:
    """One scenario; AssertionError with the smallest scenario that has a difference."""
    scenario = Maker(seed, has_labels).scenario()
    if (seen := await compare(scenario, await make())) is not None:
        raise AssertionError(f"seed {seed}\n{await report(scenario, make, seen)}")
    return scenario


class InMemory(TestCase):
    """Scenarios on the stores in memory."""

    def setUp(self) -> None:
        self.patch(history_many, "_SCANNED", 2)  # pages of histories are put together from several

    def run_all(self, chosen: Sequence[int], *, has_labels: bool = False) -> None:
        """Check them; what is hidden was asked for."""
        if has_labels:
            install(Privacy(LabelRules.of(["R", f"{ACT_CODE}|ETH"])))
            self.addCleanup(install, None)
        hidden = 0
        for seed in chosen:
            scenario: Any = self.successResultOf(
                Deferred.fromCoroutine(check(seed, empty_worlds, has_labels=has_labels))
            )
            hidden += hidden_steps(scenario.steps)
        self.assertTrue(hidden or len(chosen) == 1)


class InPostgres(TestCase):
    """Scenarios on PostgreSQL, each for tenants of its own in two databases."""

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

    async def run_all(self, chosen: Iterable[int]) -> None:
        """Check them: every answer is equal, and so is the length of page tokens."""
        for seed in chosen:
            await check(seed, self.make)


class MemoryTests(InMemory):
    def test_no_answer_tells_of_what_is_hidden(self) -> None:
        self.run_all(seeds(KEPT, NEW))

    def test_no_answer_tells_of_what_labels_hide(self) -> None:
        """Labels hide resources that the scopes alone would show."""
        self.run_all(seeds(KEPT, NEW // 3), has_labels=True)


class PostgresTests(InPostgres):
    async def test_no_answer_tells_of_what_is_hidden(self) -> None:
        await self.run_all(seeds(KEPT[:1], NEW_ON_POSTGRES))
