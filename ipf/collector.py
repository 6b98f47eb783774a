"""When Python looks for garbage in cycles: seldom, and not in what was loaded for good.

Source: https://docs.python.org/3/library/gc.html#gc.freeze
"""

from __future__ import annotations

import gc
import sys

OF_REQUESTS = 20_000
"""Objects that a process may make, beyond those it gave up, before it looks.  A look must be short
in one that answers."""

OF_WAVES = 500_000
"""The same in a converter process: messages under way are some hundred thousand objects, all of which are given up when
their wave is stored.  Looking through them meanwhile took a tenth of its time (measured)."""

_SWITCH_SECONDS = 0.0005


def tune_collector(young: int = OF_REQUESTS) -> None:
    """What is loaded by now lives for ever: keep it out of the collector's sight (measured: p99 of answers halves).

    Again when maps were compiled, and when they were replaced, or those before would stay for ever.  And a thread that
    plans a large transaction gives way soon when the reactor has something to do (the default of 5 ms is waited for
    several times an answer).
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(young, 20, 50)
