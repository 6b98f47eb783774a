"""nats-server of the distribution, with JetStream: `.ci/run` installs it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
from nats.js.api import StreamConfig
from nats.js.errors import NotFoundError

from tests.brokers.process import BrokerProcess
from tests.waiting import free_port

PROGRAM = shutil.which("nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/bin")


@dataclass(frozen=True, slots=True)
class Stored:
    """A message of a stream, in its order."""

    subject: str
    data: bytes
    headers: dict[str, str]


class NatsServer(BrokerProcess):
    """One server.  `configuration`: lines of its configuration file; `login`: of the tests' client."""

    def __init__(self, folder: Path, configuration: str = "", login: dict[str, Any] | None = None) -> None:
        super().__init__(folder)
        self.port = free_port()
        self._configuration = configuration
        self._login = login or {}

    def command(self) -> Sequence[str]:
        """See `BrokerProcess`."""
        assert PROGRAM is not None, "nats-server is not installed: apt-get install nats-server"
        file = self.folder / "nats.conf"
        file.write_text(f"{self._configuration}\n")
        store = str(self.folder / "store")
        return [PROGRAM, "-c", str(file), "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", store]

    async def _client(self) -> Any:
        return await nats.connect(f"nats://127.0.0.1:{self.port}", **self._login)

    async def add_stream(self, name: str, *subjects: str, **options: Any) -> None:
        """Make a stream for these subjects."""
        client = await self._client()
        await client.jetstream().add_stream(StreamConfig(name=name, subjects=list(subjects), **options))
        await client.close()

    async def stored(self, stream: str) -> list[Stored]:
        """All messages of a stream."""
        client = await self._client()
        try:
            found, manager = [], client.jsm()
            state = (await manager.stream_info(stream)).state
            for number in range(state.first_seq, state.last_seq + 1):
                try:
                    one = await manager.get_msg(stream, number)
                except NotFoundError:
                    continue
                found.append(Stored(str(one.subject), one.data or b"", dict(one.headers or {})))
            return found
        finally:
            await client.close()

    async def count(self, stream: str) -> int:
        """The number of messages of a stream."""
        client = await self._client()
        try:
            return (await client.jsm().stream_info(stream)).state.messages
        finally:
            await client.close()
