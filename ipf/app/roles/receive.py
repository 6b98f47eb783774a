"""Role `receive`: the listeners of MLLP and of HL7 v2 over HTTP, and the watched folders."""

from __future__ import annotations

from ipf.app.listeners.audit import open_sender_audit
from ipf.app.listeners.hl7_http import open_hl7_http
from ipf.app.listeners.mllp import MllpListeners
from ipf.app.roles.pair import Pair
from ipf.app.roles.process import Process
from ipf.app.stages.files import WatchedFolders
from ipf.wire.admin.actuator import Component


async def start_receiving(process: Process, pair: Pair) -> None:
    """Open all of them, and the ports that vendor profiles name.  Problem names the setting of a listener."""
    settings, listeners, reactor, stack = process.settings, process.listeners, process.reactor, process.stack
    files = WatchedFolders(settings, pair.receiver)
    if files.sources:
        process.health.add("files", Component(files.health, required=False))
    refused = open_sender_audit(settings, pair.stores, reactor, stack)
    mllp = MllpListeners(settings, pair.receiver, process.limits.mllp, listeners, reactor, refused)
    await mllp.open_all(stack)
    files.start(reactor, stack)
    await open_hl7_http(settings, pair.receiver, process.limits.http, listeners, stack)
    stack.push_async_callback(pair.profiles.stop)
    await pair.profiles.start(mllp.open)
