"""The tests.  Hypothesis makes the same examples in every run: what it finds is found before a commit, not by chance.

`HYPOTHESIS_PROFILE=explore` has it make others each time.
"""

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", derandomize=False, deadline=None, database=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
