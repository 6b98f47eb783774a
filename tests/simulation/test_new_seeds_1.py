"""Fifty new seeds: part 1 of 4."""

from twisted.trial.unittest import TestCase

from tests.simulation.new_seeds import NewSeeds


class NewSeedTests1(NewSeeds, TestCase):
    """See `new_seeds.py`."""
