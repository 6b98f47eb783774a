"""Sparse, wrong and odd messages of every type that has a map: converted, valid, no field of them forgotten."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.mapping.bundle.merging import TWO_OWNERS
from tests.corpus import samples
from tests.mapping_maps import generator
from tests.mapping_maps.mutations import mutation
from tests.mapping_maps.test_unread import three_sets
from tests.mapping_maps.test_validity import wrong
from tests.waiting import SLOW

GROUP = "campaigns"

EACH = range(1, 12)
"""The generated messages of each type; `python -m tests.mapping_maps.validity` tries more."""


class GeneratedTests(TestCase):
    timeout = 600.0 * SLOW  # some two thousand messages are converted and validated

    def test_they_are_valid(self) -> None:
        """Each is converted, and valid."""
        self.assertEqual(wrong(generator.messages(samples.library().message_types, EACH)), {})

    def test_changed_messages_are_valid(self) -> None:
        """Those of the corpus, and public ones, with some fields changed; `tests.mapping_maps.mutations` tries more."""
        found = wrong({str(number): mutation(number) for number in range(1500)})
        refused = {one for kinds in found.values() for one in kinds if one.endswith("the check of this rule failed")}
        self.assertEqual({one for kinds in found.values() for one in kinds} - refused, set(), found)

    def test_every_field_is_accounted_for(self) -> None:
        """Each field is read, declared or unread."""
        library = samples.library()
        for name, text in generator.messages(library.message_types, EACH[:3]).items():
            try:
                self.assertGreater(three_sets(self, name, samples.parse(text), library), 5)
            except Problem as problem:  # one number for things of two patients
                self.assertEqual(problem.text, TWO_OWNERS)
