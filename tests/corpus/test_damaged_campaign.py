"""Every damage of every line of every sample; `test_damaged` has a part of them."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.corpus import damage, samples

GROUP = "campaigns"


class DamageCampaign(TestCase):
    timeout = 600

    def test_every_line(self) -> None:
        """Sample by sample."""
        for name in samples.names():
            with self.subTest(sample=name):
                self.assertEqual(damage.all_faults(damage.cases(name)), [])
