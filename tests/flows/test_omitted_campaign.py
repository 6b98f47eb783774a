"""Every field of every sample of the corpus, left out and deleted."""

from __future__ import annotations

from tests.corpus import samples
from tests.event_loop import LIMIT
from tests.flows.omitted_fields import lines, variants
from tests.flows.test_omitted import check
from tests.rest.world import OnMemory

GROUP = "campaigns"


class EveryFieldCampaign(OnMemory):
    timeout = LIMIT  # minutes of processor time

    async def test_every_field(self) -> None:
        """About 1,400 fields."""
        checked = [
            await check(self, name, number, place)
            for name in samples.names()
            for number, place in variants(lines(name))
        ]
        self.assertGreater(sum(checked), 1_000)
