"""RabbitMQ of the distribution: `.ci/run` installs it.  Its port mapper (epmd) is a child process as well."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pika

from tests.brokers.process import BrokerProcess
from tests.waiting import PATIENCE, free_port, until

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def _content(file: Path) -> bytes:
    """Of a file that the node may replace meanwhile."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


class RabbitServer(BrokerProcess):
    """One node.  `configuration`: further lines of its configuration file; `login`: of its first user."""

    def __init__(self, folder: Path, configuration: str = "", login: tuple[str, str] = ("guest", "guest")) -> None:
        super().__init__(folder)
        self.port, self.secure_port = free_port(), free_port()
        self._distribution_port, self._mapper_port = free_port(), free_port()
        self._node = f"ipf{self.port}@localhost"
        self._configuration = configuration.replace("SECURE_PORT", str(self.secure_port))
        self._login = pika.PlainCredentials(*login)
        self._mapper: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        """See `BrokerProcess`."""
        assert PROGRAM.exists(), "RabbitMQ is not installed: apt-get install rabbitmq-server"
        lines = [f"listeners.tcp.1 = 127.0.0.1:{self.port}", "log.console = true", self._configuration]
        (self.folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (self.folder / "plugins").write_text("[].\n")
        if self._mapper is None:
            epmd = shutil.which("epmd")
            assert epmd is not None
            self._mapper = subprocess.Popen(
                [epmd, "-address", "127.0.0.1", "-port", str(self._mapper_port)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,  # not those of trial
            )  # fmt: skip
        return [str(PROGRAM)]

    def environment(self) -> dict[str, str]:
        """See `BrokerProcess`."""
        place = str(self.folder)
        return os.environ | {
            "HOME": place,
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": f"{place}/rabbitmq.conf",
            "RABBITMQ_MNESIA_BASE": f"{place}/mnesia",
            "RABBITMQ_LOG_BASE": f"{place}/log",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{place}/plugins",
            "RABBITMQ_PID_FILE": f"{place}/pid",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} -start_epmd false",
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def end(self) -> None:
        """kill -9 of the node and of its port mapper."""
        try:
            self.kill()
        finally:
            if self._mapper is not None:
                self._mapper.kill()
                self._mapper.wait()

    def _connect(self) -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port, credentials=self._login))

    def _declare(self, name: str, **arguments: Any) -> None:
        with self._connect() as connection:
            connection.channel().queue_declare(name, durable=True, arguments=arguments)

    async def add_queue(self, name: str, **arguments: Any) -> None:
        """Make a durable queue, and wait until it outlives `kill`.

        The broker writes its log of definitions later, and part by part: what is before another entry is complete.
        """
        named = {key.replace("_", "-"): value for key, value in arguments.items()}
        await asyncio.to_thread(self._declare, name, **named)
        await asyncio.to_thread(self._declare, next_entry := f"{name}.next-entry")
        await until(lambda: self._is_on_disk(next_entry), "the queue is on disk")

    def _is_on_disk(self, queue: str) -> bool:
        """Whether the tables of the node have its name."""
        tables = self.folder.glob(f"mnesia/{self._node}/*.[DL]*")
        return any(queue.encode() in _content(table) for table in tables)

    def _count(self, queue: str) -> int:
        with self._connect() as connection:
            return int(connection.channel().queue_declare(queue, passive=True).method.message_count)

    async def count(self, queue: str) -> int:
        """The number of messages of a queue."""
        return await asyncio.to_thread(self._count, queue)

    def _stored(self, queue: str) -> list[tuple[Any, bytes]]:
        with self._connect() as connection:
            channel, found = connection.channel(), []
            while True:
                method, properties, body = channel.basic_get(queue)
                if method is None:
                    return found  # not acknowledged: they go back into the queue, in their order
                found.append((properties, body))

    async def stored(self, queue: str) -> list[tuple[Any, bytes]]:
        """All messages of a queue, as (properties, body)."""
        async with asyncio.timeout(PATIENCE):
            return await asyncio.to_thread(self._stored, queue)
