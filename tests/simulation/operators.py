"""Operators, and what happens to machines: drawn from the seed, at times drawn from it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from ipf.errors import Problem
from ipf.ports import MessageFilter, NewJob, Selection, Status, WrongState
from ipf.rest.operations.subscription_status import set_status
from ipf.rest.write.commit import commit
from ipf.rest.write.unit import Entry, Method, single
from ipf.subscriptions.matching import MatchingIndex
from tests.simulation.faults import Faults, FhirPort, Port, Process
from tests.simulation.transports import Subscriber

if TYPE_CHECKING:
    from tests.simulation.world import World

ACTIONS = (
    "retry", "retry", "delete", "pause", "resume", "resume", "mode", "mode", "mode", "crash", "crash", "stall", "stop",
    "start", "start", "start", "outage", "job", "change", "change", "forward",
)  # fmt: skip


class Operators:
    """Acts on the stores without faults, as an operator who repeats what failed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"operators {world.seed}")
        process = Process("operator", world.clock, Faults(Random(0)), world.rules)
        self._inbox: Any = Port(world.inbox, process, "inbox")
        self._fhir: Any = FhirPort(world.fhir, process, "fhir")
        self._admin: Any = Port(world.admin, process, "admin")
        self._forwards: Any = Port(world.forwards, process, "forwards")
        self._matcher = MatchingIndex(has_grants=False)
        self._count = self._random.choice((0, 5, 20, 40))
        self._actions = ACTIONS if self._random.random() < 0.7 else tuple(self._random.sample(ACTIONS, 4))

    def begin(self) -> None:
        """Register the subscribers, and act at times until the faults end."""
        world = self._world
        for number, subscriber in enumerate(world.subscribers.values()):
            world.clock.callLater(self._random.choice((0.0, 0.0, 5.0)) * number, self._act, self._register, subscriber)
        for _ in range(3):
            self.change()
        for _ in range(self._count):
            action = self._random.choice(self._actions)
            world.clock.callLater(self._random.random() * world.fault_seconds, self._act, getattr(self, action))

    def restore(self) -> None:
        """After the faults: everything is up, subscribers answer, and those in error or paused are requested again."""
        world = self._world
        for subscriber in world.subscribers.values():
            subscriber.mode = "ok"
            world.clock.callLater(1.0, self._act, self._status, subscriber.id, "requested", ("off", "error"))
        world.clock.callLater(100.0, self._repair)
        self.start()
        self._act(self._resume_forwarding)

    def _repair(self) -> None:
        """An operator looks again from time to time, until all is at rest."""
        world = self._world
        for subscriber in world.subscribers.values():
            self._act(self._status, subscriber.id, "requested", ("error",))
        world.clock.callLater(100.0, self._repair)
        self.start()

    def _act(self, action: Any, *args: Any) -> None:
        if self._world.is_quiet and getattr(action, "__name__", "") in ACTIONS:
            return
        result = action(*args)
        if result is not None:
            Deferred.fromCoroutine(result).addErrback(self._world._failed)

    # -- messages

    async def retry(self) -> None:
        """Retry a message, whatever its state: the contract's matrix says what happens."""
        await self._change_message(self._inbox.retry, (Status.FAILED, Status.DEAD_LETTER))

    async def delete(self) -> None:
        """Delete a message, whatever its state."""
        await self._change_message(self._inbox.delete, (Status.DEAD_LETTER,))

    async def _change_message(self, change: Any, allowed: tuple[Status, ...]) -> None:
        rows = list(self._world.inbox.rows.values())
        chosen = [row for row in rows if row.status in allowed] if self._random.random() < 0.7 else rows
        if not chosen:
            return
        row = self._random.choice(chosen)
        before = row.status
        try:
            await change(row.id)
            self._world.rules.hold(before in allowed, f"message {row.id} in {before} was changed by {change.__name__}")
            self._world.notify("inbox")
        except WrongState:
            self._world.rules.hold(before not in allowed, f"message {row.id} in {before} could not be changed")
        except Problem:
            self._world.rules.hold(row.original_id is not None, f"message {row.id} was not found")

    async def job(self) -> None:
        """Retry or discard all dead letters."""
        kind = self._random.choice(("retry", "discard"))
        wanted = Selection(None, MessageFilter(status=Status.DEAD_LETTER))
        await self._admin.start_job(NewJob(kind, wanted, {}, False, 100), 100)

    # -- subscriptions

    async def _register(self, subscriber: Subscriber) -> None:
        resource = subscriber.resource
        entry = Entry(Method.UPDATE, "Subscription", subscriber.id, resource)
        unit = single(entry, correlation_id=self._world.new_id())
        (result,) = await commit([unit], self._fhir, self._matcher, self._world.clock.now)
        if isinstance(result, Problem):
            raise result
        self._world.notify("subscription")

    async def _status(self, id: str, status: str, only_from: tuple[str, ...]) -> None:
        world = self._world
        if any(stream.state.id == id for stream in world.fhir.streams.values()):
            await set_status(
                "default", id, status, None, self._fhir, self._matcher, world.clock.now, only_from=only_from,
                correlation_id=world.new_id(),
            )  # fmt: skip
            world.notify("subscription")

    async def pause(self) -> None:
        """Set a subscription off."""
        await self._status(self._any_subscriber().id, "off", ("requested", "active", "error"))

    async def resume(self) -> None:
        """Request a subscription again."""
        await self._status(self._any_subscriber().id, "requested", ("off", "error", "active"))

    def mode(self) -> None:
        """A subscriber behaves differently from now on."""
        subscriber = self._any_subscriber()
        subscriber.mode = self._random.choice(subscriber.MODES)

    def _any_subscriber(self) -> Subscriber:
        return self._random.choice(list(self._world.subscribers.values()))

    # -- machines

    def crash(self) -> None:
        """Kill a process."""
        alive = [one for one in self._world.replicas if one.process.alive]
        if alive:
            self._world.crash_process(self._random.choice(alive))

    def stop(self) -> None:
        """Stop a process."""
        listening = self._world.listening()
        if listening:
            self._world.stop_process(self._random.choice(listening))

    def start(self) -> None:
        """Start a process on each host that has none."""
        running = {one.host for one in self._world.replicas if one.process.alive}
        for host in self._world.hosts:
            if host not in running:
                self._world.start_process(host)

    def stall(self) -> None:
        """A process runs nothing for a while."""
        alive = [one for one in self._world.replicas if one.process.alive]
        if alive:
            self._random.choice(alive).process.stall(self._random.choice((1.0, 20.0, 100.0)))

    def outage(self) -> None:
        """The database is away for a while."""
        self._world.faults.outage_until = self._world.clock.seconds() + self._random.choice((2.0, 15.0))

    # -- others

    def change(self) -> None:
        """A resource changes at the polled server."""
        self._world.source.change(self._random.choice(("1", "2", "3", "4")))

    async def forward(self) -> None:
        """Pause or resume the destination, or retry its dead letters."""
        name = self._world.destination.name
        if name not in self._world.forwards._rows:
            return
        if self._random.random() < 0.5:
            await self._forwards.pause(name, paused=self._random.random() < 0.5)
        else:
            await self._forwards.retry(name, None)

    async def _resume_forwarding(self) -> None:
        if self._world.destination.name in self._world.forwards._rows:
            await self._forwards.pause(self._world.destination.name, paused=False)
