"""The work of messages with many groups, of every shape; `test_growth` has a part of them."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.flows.test_growth import MOST, SHAPES, steps, works

GROUP = "campaigns"


class GrowthCampaign(TestCase):
    timeout = 900

    def test_steps_of_the_map(self) -> None:
        """Of every shape."""
        for shape in SHAPES:
            with self.subTest(shape=shape):
                self.assertLess(steps(shape, 400), MOST * steps(shape, 100))

    def test_every_shape(self) -> None:
        """First, and told again."""
        for shape in SHAPES:
            for what, (few, many) in works(shape, (25, 100)):
                with self.subTest(shape=shape, what=what):
                    self.assertLess(many, MOST * few)
