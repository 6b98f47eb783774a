"""Four times the requests of `test_fuzz.py`; every hostile value in every parameter and in every path."""

from __future__ import annotations

from tests.rest import test_fuzz

GROUP = "campaigns"


class HostileSearchCampaign(test_fuzz.HostileSearchTests):
    every = 1


class FuzzCampaign(test_fuzz.FuzzTests):
    examples = 600
