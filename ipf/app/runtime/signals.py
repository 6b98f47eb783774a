"""SIGTERM and SIGINT (Ctrl-C) end the service in order and with status 0, at every moment of its start.

Twisted's own handlers end a process by the signal once more after an orderly stop, so a supervisor sees a failure where
there is none; and they exist only once the reactor runs.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from twisted.internet.error import ReactorNotRunning

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def end_at_once() -> None:
    """Until the reactor runs nothing is open that had to be closed: a signal ends the process."""
    for number in SIGNALS:
        signal.signal(number, lambda number, frame: os._exit(0))


def stop_in_order(reactor: Any) -> None:
    """From now on a signal stops the reactor.  Call it when the reactor runs: it installs handlers at its start.

    Their note of a signal that came just before is removed, or twistd would end the process by it after the stop.
    """
    reactor._exitSignal = None
    for number in SIGNALS:
        signal.signal(number, lambda number, frame: reactor.callFromThread(_stop, reactor))


def _stop(reactor: Any) -> None:
    try:
        reactor.stop()
    except ReactorNotRunning:  # a second signal
        pass
