"""Markers in every segment of every kind of message; `test_markers` has each segment once."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.mapping_maps.markers import lost
from tests.mapping_maps.test_markers import chosen, known

GROUP = "campaigns"


class MarkerCampaign(TestCase):
    timeout = 900

    def test_every_kind_of_message(self) -> None:
        """The open losses are those of the table, no others and all of them."""
        found = {path for case in chosen(every=True) for path in lost(case)}
        self.assertEqual(sorted(found), sorted(known()))
