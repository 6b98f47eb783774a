"""An erasure that ends at each of its steps."""

from __future__ import annotations

from tests.pipeline.maintenance import test_erasure_crash

GROUP = "campaigns"


class EveryStepCampaign(test_erasure_crash.CrashTests):
    every = 1
