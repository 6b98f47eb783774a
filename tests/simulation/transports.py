"""The far ends of the service, in memory: senders, the mapper, subscribers, receivers of forwarded messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from ipf.errors import Category, Problem
from ipf.hl7.answers import AckAnswer
from ipf.ports import Claimed, Delivered, Json, Mapped, Notification
from ipf.ports.messages.forwards import NotSent
from ipf.rest.write.unit import Entry, Method
from tests.simulation.faults import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

GOOD, FLAKY, BROKEN, GARBAGE, PASSED = "good", "flaky", "broken", "garbage", "passed"
KINDS = (GOOD, GOOD, GOOD, GOOD, FLAKY, BROKEN, GARBAGE, PASSED)
PASSED_TYPE = "ADT_A04"
TIME_LIMIT = 10.0
"""Seconds that a subscriber may take."""


@dataclass(frozen=True)
class Outgoing:
    """One message of a sender."""

    control_id: str
    kind: str
    frame: bytes


def message(sender: str, control_id: str, patient: str, kind: str, value: str) -> Outgoing:
    """A message in HL7 v2; what the mapper does with it is in its NTE."""
    if kind == GARBAGE:
        return Outgoing(control_id, kind, f"this is no message {control_id}".encode())
    trigger = "ADT^A04" if kind == PASSED else "ORU^R01"
    lines = [f"MSH|^~\\&|{sender}|HOSP|IPF|HOSP|20260101||{trigger}|{control_id}|P|2.5", f"NTE|1||{kind}|{value}"]
    if patient:
        lines.insert(1, f"PID|1||{patient}^^^HOSP")
    return Outgoing(control_id, kind, "\r".join(lines).encode() + b"\r")


class Sender:
    """Sends its messages one after another; repeats each one until it is acknowledged, as MLLP asks."""

    def __init__(self, world: World, name: str, random: Random, messages: Sequence[Outgoing]) -> None:
        self.name = name
        self.left = list(messages)
        self._world = world
        self._random = random
        self._attempt = 0
        self._process: Process | None = None

    def send(self) -> None:
        """Send the first message that is left, to any process that listens."""
        self._attempt += 1
        replicas = self._world.listening()
        if not self.left:
            return
        if not replicas:
            self._process = None
            self._world.clock.callLater(1.0, self._again, self._attempt)
            return
        replica = self._random.choice(replicas)
        self._process = replica.process
        attempt, outgoing = self._attempt, self.left[0]
        self._world.rules.note(self.name, "sends", outgoing.control_id, outgoing.kind)
        replica.process.clock.callLater(self._random.random() * 0.01, self._arrive, replica, attempt, outgoing)
        self._world.clock.callLater(15.0, self._again, attempt)

    def lost(self, process: Process) -> None:
        """The connection to a process ended."""
        if self._process is process:
            self._world.clock.callLater(0.5, self._again, self._attempt)

    def _again(self, attempt: int) -> None:
        if attempt == self._attempt:
            self.send()

    def _arrive(self, replica: Any, attempt: int, outgoing: Outgoing) -> None:
        def answer(ack: bytes | None) -> None:
            code = _code(ack)
            self._world.rules.acknowledged(self.name, outgoing, code)
            self._world.clock.callLater(self._random.random() * 0.01, self._acknowledged, attempt, code)

        replica.listener.receive(outgoing.frame, self.name, (self.name, replica), answer)

    def _acknowledged(self, attempt: int, code: str) -> None:
        if attempt != self._attempt:
            return
        self._attempt += 1
        if code in ("AA", "AR"):
            self.left.pop(0)
        if self.left:
            self._world.clock.callLater(self._random.random() * self._world.pace, self._again, self._attempt)


def _code(ack: bytes | None) -> str:
    return "" if ack is None else ack.partition(b"MSA|")[2][:2].decode()


class Mapper:
    """A map in process: what the NTE of a message says happens.  Temporary failures end with the faults."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def has_map(self, message_type: str) -> bool:
        """See `ports.Mapper.has_map`."""
        return True

    async def transform(self, message: Claimed) -> Mapped:
        """See `ports.Mapper.transform`."""
        seconds = self._world.mapping_seconds()
        if seconds:
            await self._process.clock.pause(seconds)
        if message.is_json:
            return _mapped(message, "feed", message.source_id.split("/")[1])
        lines = message.raw.decode().split("\r")
        kind = next(line.split("|")[3] for line in lines if line.startswith("NTE"))
        if kind == BROKEN:
            raise Problem(Category.MAPPING, "the map fails")
        if kind == FLAKY and self._world.is_flaky():
            raise Problem(Category.UPSTREAM, "the mapping service is away")
        patient = next((line.split("|")[3].partition("^")[0] for line in lines if line.startswith("PID")), "nobody")
        return _mapped(message, message.source_system.lower(), patient)


def _mapped(message: Claimed, system: str, patient: str) -> Mapped:
    number = f"{system}-{patient}"
    resource: Json = {
        "resourceType": "Patient", "id": number, "active": True, "name": [{"family": message.source_id}],
    }  # fmt: skip
    basic: Json = {
        "resourceType": "Observation", "id": f"o-{message.id}", "status": "final", "code": {"text": "x"},
        "subject": {"reference": f"Patient/{number}"}, "valueString": message.source_id,
    }  # fmt: skip
    entries = tuple(
        Entry(Method.UPDATE, str(one["resourceType"]), str(one["id"]), one, place=f"Bundle.entry[{place}]")
        for place, one in enumerate((resource, basic))
    )
    return Mapped({}, "urn:ipf:map:simulated", entries=entries)


@dataclass
class Subscriber:
    """A subscriber, and what it has received.  `mode`: what it does with the next notification.

    `acknowledged`: up to this number it has answered 2xx to every event.
    """

    id: str
    resource_type: str
    random: Random
    mode: str = "ok"
    received: list[int] = field(default_factory=list)
    answered: set[int] = field(default_factory=set)
    acknowledged: int = 0

    MODES = ("ok", "ok", "400", "500", "503", "429", "hang", "drop", "flaky")

    @property
    def resource(self) -> Json:
        """Its Subscription, as it registers it."""
        criteria = {"Patient": "Patient?active=true", "Observation": "Observation?status=final"}[self.resource_type]
        channel = {"type": "rest-hook", "endpoint": f"https://{self.id}.test/hook", "payload": "application/fhir+json"}
        return {
            "resourceType": "Subscription", "id": self.id, "status": "requested", "reason": "simulated",
            "criteria": criteria, "channel": channel,
        }  # fmt: skip

    def answer(self) -> tuple[Delivered | None, float]:
        """What it answers, and after how many seconds; None: nothing."""
        mode = self.random.choice(("ok", "500", "hang")) if self.mode == "flaky" else self.mode
        seconds = self.random.choice((0.0, 0.0, 0.05, 2.0))
        if mode == "hang":
            return None, 0.0
        if mode == "drop":
            return Delivered(None, 1, "connection refused"), seconds
        if mode == "429":
            return Delivered(429, 1, None, retry_after=self.random.choice((None, 3.0))), seconds
        return Delivered(200 if mode == "ok" else int(mode), 1, None), seconds

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """It answered 2xx."""
        self.answered.update(numbers)
        while self.acknowledged + 1 in self.answered:
            self.acknowledged += 1


class MemoryChannel:
    """`ports.Channel` of one process to the subscribers."""

    unavailable = None

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def destination(self, endpoint: str) -> str:
        """See `ports.Channel.destination`."""
        return endpoint

    async def send(self, notification: Notification) -> Delivered:
        """See `ports.Channel.send`."""
        subscriber = self._world.subscribers[notification.subscription_id]
        numbers = [event.number for event in notification.events]
        await self._process.clock.pause(0.001)
        self._world.rules.notified(self._process, subscriber, notification)
        subscriber.received += numbers
        delivered, seconds = subscriber.answer()
        if delivered is None:
            await self._process.clock.pause(TIME_LIMIT)
            return Delivered(None, int(TIME_LIMIT * 1000), "no response in time")
        if delivered.succeeded:
            subscriber.acknowledge(numbers)
        self._world.rules.note(subscriber.id, "answers", numbers, delivered.http_status)
        if seconds or self._process.clock.is_stalled:
            await self._process.clock.pause(seconds)
        return delivered


class ForwardPeer:
    """A receiver of forwarded messages, and the connection of one process to it."""

    def __init__(self, world: World, process: Process, name: str) -> None:
        self._world = world
        self._process = process
        self._name = name

    async def send(self, message: bytes, control_id: str) -> AckAnswer:
        """See `forward.Connection.send`."""
        code = self._world.forward_answer()
        await self._process.clock.pause(0.001)
        self._world.rules.forwarded(self._name, message, code)
        if code is None:
            await self._process.clock.pause(30.0)
            raise NotSent("no answer within 30 s")
        await self._process.clock.pause(0.001)
        return AckAnswer(code, control_id, "")

    async def close(self) -> None:
        """See `forward.Connection.close`."""
