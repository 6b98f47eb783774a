"""Role `deliver`: activation of subscriptions, notifications, and messages that are sent on to other systems."""

from __future__ import annotations

from ipf.app.roles.pair import Pair
from ipf.app.roles.process import Process
from ipf.app.stages.notifications import start_delivery


def start_delivering(process: Process, pair: Pair) -> None:
    """Start to notify and to forward."""
    start_delivery(pair.settings, pair.stores, pair.notifications, process.reactor, process.stack)
    pair.forwarding.start(process.reactor, process.stack)
