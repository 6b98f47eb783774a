"""The tests.

Hypothesis makes the same examples in every run, so that it finds a fault before a commit and not by chance;
`HYPOTHESIS_PROFILE=explore` has it make others each time.  The timeout of a test (default of trial: 120 seconds)
is beyond the slowest machine: it only ends a test that hangs.
"""

import os

from hypothesis import settings
from twisted.trial import util

from tests.waiting import LIMIT

util.DEFAULT_TIMEOUT_DURATION = LIMIT

settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", derandomize=False, deadline=None, database=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
