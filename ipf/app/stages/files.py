"""The watched folders (`IPF_FILE_SOURCES`), on the receive stage of the listeners."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from ipf.app.runtime.periodic import run_periodically
from ipf.app.runtime.process import now, run_in_thread
from ipf.config.settings import Settings
from ipf.hl7.framing import KEPT_HEAD, Oversize
from ipf.pipeline.receive.files import FileSource
from ipf.pipeline.receive.receive import MllpListener, Receiver
from ipf.ports import DEFAULT_TENANT
from ipf.ports.sources import OTHER


def start_files(settings: Settings, receiver: Receiver, reactor: Any, stack: AsyncExitStack) -> None:
    """Watch every folder."""
    tenants = dict(settings.mllp_tenants)
    for name, folder in settings.file_sources:
        tenant = tenants.get(name, DEFAULT_TENANT)
        listener = MllpListener(name, settings.mllp_fallback_charset, tenant, tells_all=True, protocol=OTHER)
        receive = partial(_receive, receiver, listener, settings.mllp_max_frame_bytes)
        source = FileSource(name, Path(folder), receive, run_in_thread, now)
        run_periodically(settings.file_poll_seconds, source.poll, f"the file source {name}", reactor, stack)


async def _receive(receiver: Receiver, listener: MllpListener, limit: int, raw: bytes) -> bytes | None:
    """The acknowledgement of one message; a large one is rejected as over MLLP."""
    if len(raw) <= limit:
        return await receiver.receive(raw, listener, "file")
    answered: Deferred[bytes | None] = Deferred()
    receiver.oversize(Oversize(raw[:KEPT_HEAD], len(raw)), listener, "file", answered.callback)
    return await answered
