"""Fifty new seeds: part 4 of 4."""

from twisted.trial.unittest import TestCase

from tests.simulation.new_seeds import NewSeeds


class NewSeedTests4(NewSeeds, TestCase):
    """See `new_seeds.py`."""
