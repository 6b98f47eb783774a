"""Role `receive`: the listeners of MLLP and of HL7 v2 over HTTP, and the watched folders."""

from __future__ import annotations

from ipf.app.listeners.audit import open_sender_audit
from ipf.app.listeners.hl7_http import open_hl7_http
from ipf.app.listeners.mllp import MllpListeners
from ipf.app.roles.pair import Pair
from ipf.app.roles.process import Process
from ipf.app.stages.files import WatchedFolders
from ipf.pipeline.receive.receive import Receiver
from ipf.security.audit.senders import SenderRefused
from ipf.wire.admin.actuator import Component


async def start_receiving(process: Process, pair: Pair) -> None:
    """Open all of them, and the ports that vendor profiles name.  Problem names the setting of a listener."""
    refused = open_sender_audit(process.settings, pair.stores, process.reactor, process.stack)
    mllp = await open_receivers(process, pair.receiver, refused)
    process.stack.push_async_callback(pair.profiles.stop)
    await pair.profiles.start(mllp.open)


async def open_receivers(process: Process, receiver: Receiver, refused: SenderRefused | None) -> MllpListeners:
    """Open what the settings name, on one receiver.  `refused`: takes senders that may not send."""
    settings, listeners, reactor, stack = process.settings, process.listeners, process.reactor, process.stack
    files = WatchedFolders(settings, receiver)
    if files.sources:
        process.health.add("files", Component(files.health, required=False))
    mllp = MllpListeners(settings, receiver, process.limits.mllp, listeners, reactor, refused)
    await mllp.open_all(stack)
    files.start(reactor, stack)
    await open_hl7_http(settings, receiver, process.limits.http, listeners, stack)
    return mllp
