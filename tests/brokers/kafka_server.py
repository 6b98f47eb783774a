"""Apache Kafka: one node, broker and controller.  Maven installs it once (`pom.xml`), under the temporary folder.

`.ci/run` installs Maven and Java; where they are not, or the registry is not reached, tests that need it are skipped.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers.process import BrokerProcess
from tests.waiting import PATIENCE, free_port, until

PACKAGE = Path(__file__).with_name("pom.xml")
_INSTALL_SECONDS = 12 * PATIENCE
JAVA = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
MISSING = "Apache Kafka is not installed: it needs Maven, Java and their registry"


@cache
def installed() -> Path | None:
    """The folder with the programs; None when they cannot be installed."""
    digest = sha256(PACKAGE.read_bytes()).hexdigest()[:8]
    place = Path(tempfile.gettempdir()) / f"ipf-kafka-{os.getuid()}-{digest}"
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        return place if place.is_dir() or _install(place) else None


def _install(place: Path) -> bool:
    if shutil.which("mvn") is None or shutil.which("java") is None:
        return False
    folder = Path(tempfile.mkdtemp(prefix="ipf-kafka-"))
    command = ["mvn", "-q", "-B", "-f", str(PACKAGE), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    try:
        subprocess.run(command, check=True, timeout=_INSTALL_SECONDS, capture_output=True, cwd=folder)
    except (subprocess.SubprocessError, OSError):
        shutil.rmtree(folder, ignore_errors=True)
        return False
    folder.rename(place)
    return True


class KafkaServer(BrokerProcess):
    """One node.  `secure`: (certificate and key in one PEM file, user, password) of a further listener with TLS."""

    def __init__(self, folder: Path, secure: tuple[Path, str, str] | None = None, **settings: str) -> None:
        super().__init__(folder)
        self.port, self._controller_port, self.secure_port = free_port(), free_port(), free_port()
        self._secure = secure
        self._settings = settings
        self._place = installed()

    def _run(self, *arguments: str) -> list[str]:
        return [*JAVA, "-cp", f"{self._place}/*", *arguments]

    @property
    def _file(self) -> Path:
        return self.folder / "server.properties"

    def command(self) -> Sequence[str]:
        """See `BrokerProcess`."""
        if not self._file.exists():
            self._file.write_text("".join(f"{name}={value}\n" for name, value in self._properties().items()))
            format = self._run(
                "kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", str(self._file)
            )
            subprocess.run(format, check=True, capture_output=True, cwd=self.folder)
        return self._run("kafka.Kafka", str(self._file))

    def _properties(self) -> dict[str, str]:
        listeners = {"PLAINTEXT": self.port, "CONTROLLER": self._controller_port}
        found = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.folder / "log"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        if self._secure is not None:
            pem, user, password = self._secure
            login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";'
            listeners["SECURE"] = self.secure_port
            found |= {
                "listener.name.secure.ssl.keystore.type": "PEM",
                "listener.name.secure.ssl.keystore.location": str(pem),
                "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
                "listener.name.secure.plain.sasl.jaas.config": login,
            }
        found["listeners"] = ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", "SECURE": "SASL_SSL"}
        found["listener.security.protocol.map"] = ",".join(f"{name}:{protocols[name]}" for name in listeners)
        return found | {name.replace("_", "."): value for name, value in self._settings.items()}

    @property
    def servers(self) -> str:
        """The address without TLS."""
        return f"127.0.0.1:{self.port}"

    async def add_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        """Make a topic, and wait until it has a leader."""
        config = {key.replace("_", "."): value for key, value in settings.items()}
        admin = AdminClient({"bootstrap.servers": self.servers})
        (made,) = admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values()
        await asyncio.to_thread(made.result, PATIENCE)
        await until(lambda: self._has_leaders(admin, name, partitions), "the topic has leaders")

    def _has_leaders(self, admin: AdminClient, name: str, partitions: int) -> bool:
        found = admin.list_topics(name, timeout=PATIENCE).topics[name].partitions
        return len(found) == partitions and all(one.leader >= 0 for one in found.values())

    def count(self, topic: str) -> int:
        """The number of messages of a topic."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "tests"})
        try:
            partitions = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
            marks = [consumer.get_watermark_offsets(TopicPartition(topic, one), timeout=PATIENCE) for one in partitions]
            return sum(last - first for first, last in marks)
        finally:
            consumer.close()

    def stored(self, topic: str) -> list[Any]:
        """All messages of a topic, partition by partition, in their order."""
        group = {"group.id": "tests", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self.servers, "auto.offset.reset": "earliest", **group})
        found: list[Any] = []
        try:
            partitions = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
            for number in sorted(partitions):
                first, last = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=PATIENCE)
                consumer.assign([TopicPartition(topic, number, first)])
                count = 0
                while first < last and (not count or found[-1].offset() < last - 1):
                    message = consumer.poll(PATIENCE)
                    if message is None or message.error():
                        raise KafkaException(None if message is None else message.error())
                    found.append(message)
                    count += 1
        finally:
            consumer.close()
        return found
