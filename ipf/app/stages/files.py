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
from ipf.ports import DEFAULT_TENANT, Json
from ipf.ports.messages.sources import OTHER


class WatchedFolders:
    """The folders of the settings; they are watched from `start` on."""

    def __init__(self, settings: Settings, receiver: Receiver) -> None:
        self._poll_seconds = settings.file_poll_seconds
        self.sources = [_source(settings, receiver, name, Path(folder)) for name, folder in settings.file_sources]

    def start(self, reactor: Any, stack: AsyncExitStack) -> None:
        """Watch every folder."""
        for source in self.sources:
            run_periodically(self._poll_seconds, source.poll, f"the file source {source.name}", reactor, stack)

    async def health(self) -> Json:
        """Health details: files since the start, and why the last one was moved to `failed`.

        RuntimeError names the sources whose files cannot be taken.
        """
        if stuck := [f"{one.name}: {one.problem}" for one in self.sources if one.problem is not None]:
            raise RuntimeError("; ".join(stuck))
        return {
            one.name: {"taken": one.taken, "failed": one.failed, "last_error": one.last_error} for one in self.sources
        }


def _source(settings: Settings, receiver: Receiver, name: str, folder: Path) -> FileSource:
    tenant = dict(settings.mllp_tenants).get(name, DEFAULT_TENANT)
    listener = MllpListener(name, settings.mllp_fallback_charset, tenant, tells_all=True, protocol=OTHER)
    receive = partial(_receive, receiver, listener, settings.mllp_max_frame_bytes)
    return FileSource(name, folder, receive, run_in_thread, now)


async def _receive(receiver: Receiver, listener: MllpListener, limit: int, raw: bytes) -> bytes | None:
    """The acknowledgement of one message; a large one is rejected as over MLLP."""
    if len(raw) <= limit:
        return await receiver.receive(raw, listener, "file")
    answered: Deferred[bytes | None] = Deferred()
    receiver.oversize(Oversize(raw[:KEPT_HEAD], len(raw)), listener, "file", answered.callback)
    return await answered
