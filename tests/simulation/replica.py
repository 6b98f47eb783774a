"""One process of the service: the real stages, wired as `ipf/app/stages` does, on ports that may fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from ipf.app.runtime.periodic import run_periodically
from ipf.app.stages.polling import Polling
from ipf.errors import Problem, StoreUnreachable
from ipf.pipeline.convert.batches import BatchPolicy
from ipf.pipeline.convert.convert import Converter
from ipf.pipeline.deliver.activate import Activate, SetStatus
from ipf.pipeline.deliver.compose import Composer
from ipf.pipeline.deliver.deliver import Deliver
from ipf.pipeline.forward.forward import Forwarder
from ipf.pipeline.maintenance.jobs import Jobs
from ipf.pipeline.poll.feed_pass import PollParts
from ipf.pipeline.poll.poll import Poller
from ipf.pipeline.receive.group_commit import GroupCommit
from ipf.pipeline.receive.receive import ListenerReceiver, MllpListener, Receiver
from ipf.pipeline.worker import ReactorYield, Worker
from ipf.ports.threads import run_inline
from ipf.rest.operations.subscription_status import set_status
from ipf.rest.write.commit import commit, refresh
from ipf.rest.write.unit import Unit, UnitResult
from ipf.subscriptions.matching import MatchingIndex
from ipf.subscriptions.status import FIRING, Trigger, origins
from tests.simulation.faults import FhirPort, Port, Process
from tests.simulation.transports import PASSED_TYPE, ForwardPeer, Mapper, MemoryChannel

if TYPE_CHECKING:
    from tests.simulation.world import World

log = Logger()

STOP_SECONDS = 10.0
LEASE_SECONDS = 15.0
RECOVERY_SECONDS = 5.0
FORWARD_SECONDS = 1.0


class _Metrics:
    """Nobody reads the metrics of the stages."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kw: None


class Replica:
    """A process and its stages.  `host`: where it runs; a later process of the host ends its leases."""

    def __init__(self, world: World, process: Process, host: str) -> None:
        self.process = process
        self.host = host
        self.is_listening = False
        self._world = world
        self._clock = process.clock
        self._stack = AsyncExitStack()
        self._wakes: dict[str, list[Callable[[], None]]] = {}
        self._inbox = Port(world.inbox, process, "inbox")
        self._fhir = FhirPort(world.fhir, process, "fhir")
        self._deliveries = Port(world.deliveries, process, "deliveries")
        self._matcher = MatchingIndex(partial(deferLater, self._clock, 0.0), has_grants=False)

    # -- the notifier

    def notify(self, name: str) -> None:
        """See `ports.Notifier.notify`."""
        self._world.notify(name)

    def subscribe(self, name: str, wake: Callable[[], None]) -> None:
        """See `ports.Notifier.subscribe`."""
        self._wakes.setdefault(name, []).append(wake)

    def wake(self, name: str) -> None:
        """A notification arrives."""
        for wake in self._wakes.get(name, ()):
            wake()

    # -- start and stop

    async def start(self) -> None:
        """Begin as the service does: recover, then every stage."""
        try:
            await self._recover_dead()
            await self._recover_stale()
        except StoreUnreachable:
            self.process.crash()  # the service does not start without its database
            return
        run_periodically(RECOVERY_SECONDS, self._recover_stale, "stale recovery", self._clock, self._stack)
        self._start_receive()
        self._start_convert()
        self._start_deliver()
        self._start_forward()
        self._start_poll()
        self._start_jobs()
        self.is_listening = True

    async def stop(self) -> None:
        """End as the service does: no new message, then every stage."""
        self.is_listening = False
        await self._stack.aclose()
        self._world.rules.note(self.process.name, "has stopped")
        self.process.crash()

    async def _recover_dead(self) -> None:
        for store in (self._deliveries, Port(self._world.feeds, self.process, "feeds")):
            for worker in await store.holders():
                if self._is_dead(worker):
                    await store.release(worker)
        for worker in await self._inbox.holders():
            if self._is_dead(worker):
                await self._inbox.recover_worker(worker, self._world.backoff)

    def _is_dead(self, worker: str) -> bool:
        process = self._world.processes[worker]
        return worker.partition(":")[0] == self.host and not process.alive

    async def _recover_stale(self) -> None:
        await self._inbox.recover_stale(self._world.stale_seconds, self._world.backoff)

    # -- the stages

    def _worker(self, step: Any, channel: str | None, name: str, concurrency: int = 1) -> Worker:
        worker = Worker(
            step, self, channel, self._world.poll_seconds, self._clock, name=name, concurrency=concurrency
        )  # fmt: skip
        worker.start()
        self._stack.push_async_callback(worker.stop, STOP_SECONDS)
        return worker

    def _start_receive(self) -> None:
        group = GroupCommit(self._inbox, self._clock, batch_rows=3, committed=partial(self.notify, "inbox"))  # type: ignore[arg-type]
        receiver = Receiver(
            self._inbox,  # type: ignore[arg-type]
            group,
            self._clock,
            now=self._clock.now,
            new_correlation_id=self._world.new_id,
        )
        self.listener = ListenerReceiver(receiver, MllpListener("mllp"))

    def _start_convert(self) -> None:
        world, clock = self._world, self._clock
        converter = Converter(
            self._inbox,  # type: ignore[arg-type]
            Mapper(world, self.process),
            self._submit,
            worker=self.process.name,
            backoff=world.backoff,
            passthrough_types=[PASSED_TYPE],
            clock=clock.now,
            notifier=self,
            metrics=_Metrics(),
            pause=ReactorYield(clock),
            wait=lambda: deferLater(clock, 0.25),
            claim_size=world.claim_size,
            policy=BatchPolicy(max_messages=3, concurrency=2),
        )
        self._worker(converter.step, "inbox", "convert", 2)
        self._stack.callback(converter.stop)

        async def renew() -> None:
            try:
                await converter.renew()
            except Problem:
                pass

        run_periodically(world.stale_seconds / 3, renew, "lease renewal", clock, self._stack, now=False)

    async def _submit(self, units: Sequence[Unit]) -> list[UnitResult | Problem]:
        return await commit(units, self._fhir, self._matcher, self._clock.now)  # type: ignore[arg-type]

    def _status_setter(self, when: frozenset[str]) -> SetStatus:
        async def set_one(
            tenant: str, subscription_id: str, status: str, error: str | None, version_id: str | None
        ) -> None:
            await set_status(
                tenant, subscription_id, status, error,
                self._fhir, self._matcher, self._clock.now, only_from=when,  # type: ignore[arg-type]
                version_id=version_id, correlation_id=self._world.new_id(),
            )  # fmt: skip
            self.notify("delivery")

        return set_one

    def _start_deliver(self) -> None:
        world, clock = self._world, self._clock
        channels = {"rest-hook": MemoryChannel(world, self.process)}
        compose = Composer(self._fhir, self._matcher, clock.now, "https://ipf.test")  # type: ignore[arg-type]

        async def unserved() -> list[tuple[str, str, str, str]]:
            await refresh(self._fhir, self._matcher)  # type: ignore[arg-type]
            return []

        activate = Activate(
            self._deliveries,  # type: ignore[arg-type]
            self._status_setter(origins(Trigger.ACTIVATED)),
            channels,
            compose,
            clock.now,
            self._status_setter(FIRING),
            unserved,
        )
        self._worker(activate.step, "subscription", "activate")
        deliver = Deliver(
            self._deliveries,  # type: ignore[arg-type]
            channels,
            compose,
            self._status_setter(origins(Trigger.EXHAUSTED)),
            self,
            clock,
            clock.now,
            worker=self.process.name,
            backoff=world.delivery_backoff,
            poll_seconds=world.poll_seconds,
            lease_seconds=LEASE_SECONDS,
            in_flight=world.in_flight,
            chance=world.chance,
        )
        deliver.start()
        self._stack.push_async_callback(deliver.stop, STOP_SECONDS)

    def _start_forward(self) -> None:
        world, clock = self._world, self._clock
        forwarder = Forwarder(
            world.destination,
            Port(world.forwards, self.process, "forwards"),  # type: ignore[arg-type]
            ForwardPeer(world, self.process, world.destination.name),
            f"{self.process.name}:{world.destination.name}",
            clock.pause,
            clock.seconds,
            _Metrics(),
        )
        running: list[Deferred[None]] = []

        async def tick() -> None:
            if not running or running[0].called:
                running[:] = [Deferred.fromCoroutine(_unless_unreachable(forwarder.run()))]

        async def stop() -> None:
            forwarder.stopping = True
            for one in running:
                await one

        self._stack.push_async_callback(stop)
        run_periodically(FORWARD_SECONDS, tick, "forwarding", clock, self._stack)

    def _start_poll(self) -> None:
        world, clock = self._world, self._clock
        feeds: Any = Port(world.feeds, self.process, "feeds")
        parts = PollParts(
            feeds, self._inbox, self.process.name, clock.now, clock.pause, world.new_id, run_inline,  # type: ignore[arg-type]
            partial(self.notify, "inbox"), _Metrics(),
        )  # fmt: skip
        polling = Polling(Poller(parts, lambda source: world), lambda: (world.polled,), feeds, clock.seconds)
        polling._has_begun = True  # leases of processes that were killed end in `_recover_dead`
        polling.start(clock, self._stack)

    def _start_jobs(self) -> None:
        admin: Any = Port(self._world.admin, self.process, "admin")
        self._worker(Jobs(admin, self, self._clock.pause).step, None, "jobs")


async def _unless_unreachable(work: Any) -> None:
    try:
        await work
    except StoreUnreachable:
        pass
    except Exception:
        log.failure("forwarding failed")
