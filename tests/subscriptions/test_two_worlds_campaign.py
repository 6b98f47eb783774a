"""Hundreds of the scenarios of `test_two_worlds.py`; `IPF_TWO_WORLDS_RUNS=50000` runs more of them."""

from __future__ import annotations

from tests.security.two_worlds import RUNS, seeds
from tests.subscriptions import test_two_worlds
from tests.waiting import SLOW

GROUP = "campaigns"


class TwoWorldsCampaign(test_two_worlds.InMemory):
    timeout = 0.3 * RUNS * SLOW  # an eighth of that on a quiet machine

    def test_nothing_tells_of_what_is_hidden(self) -> None:
        self.run_all(seeds((), RUNS // 6))
