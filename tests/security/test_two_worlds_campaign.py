"""Thousands of the scenarios of `test_two_worlds.py`; `IPF_TWO_WORLDS_RUNS=50000` runs more of them."""

from __future__ import annotations

from tests.security import test_two_worlds
from tests.security.two_worlds import RUNS, seeds
from tests.waiting import SLOW

GROUP = "campaigns"

SECONDS = 0.3 * RUNS * SLOW
"""A scenario takes a sixth of that on a quiet machine."""


class MemoryCampaign(test_two_worlds.InMemory):
    timeout = SECONDS

    def test_what_is_hidden(self) -> None:
        self.run_all(seeds((), RUNS))

    def test_what_labels_hide(self) -> None:
        self.run_all(seeds((), RUNS // 4), has_labels=True)


class PostgresCampaign(test_two_worlds.InPostgres):
    timeout = SECONDS

    async def test_what_is_hidden(self) -> None:
        await self.run_all(seeds((), RUNS // 33))
