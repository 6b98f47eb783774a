"""What goes wrong between a process and a store, drawn from the seed.

Each call of a port may be late, fail before it has an effect, or lose its answer after its effect.  When a process
crashes, a call that is on its way may still reach the store.  Everything else of the process is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from twisted.internet.defer import Deferred

from ipf.errors import StoreUnreachable
from tests.simulation.clock import ProcessClock, SeededClock


@dataclass
class Faults:
    """How often what goes wrong, as shares of calls.  `longest`: seconds that a late call takes in one direction."""

    random: Random
    late: float = 0.0
    longest: float = 0.0
    refused: float = 0.0
    lost: float = 0.0
    lost_notifications: float = 0.0
    outage_until: float = 0.0

    @classmethod
    def drawn(cls, random: Random) -> Faults:
        """The habits of one run: from a good day to a very bad one."""
        late = random.choice((0.0, 0.1, 0.5, 1.0))
        longest = random.choice((0.01, 0.2, 3.0, 20.0))
        refused, lost = (random.choice((0.0, 0.0, 0.02, 0.1, 0.3)) for _ in range(2))
        return cls(random, late, longest, refused, lost, random.choice((0.0, 0.2, 1.0)))

    def stop(self) -> None:
        """From now on nothing goes wrong."""
        self.late = self.refused = self.lost = self.lost_notifications = self.outage_until = 0.0

    def delay(self) -> float:
        """Seconds that one direction of a call takes."""
        return self.random.random() * self.longest if self.late and self.random.random() < self.late else 0.0

    def happens(self, share: float) -> bool:
        """Whether something happens that does so in this share of cases."""
        return share > 0 and self.random.random() < share


class Process:
    """One process of the service: alive until it crashes or stops.  `rules` see each call and each effect.

    `trouble`: when it last stalled, or a call of it failed or was late.
    """

    def __init__(self, name: str, clock: SeededClock, faults: Faults, rules: Any) -> None:
        self.name = name
        self.clock = ProcessClock(clock)
        self.trouble = -1000.0
        self.transactions: set[Any] = set()
        self._world_clock = clock
        self._faults = faults
        self._rules = rules
        self._on_the_way: dict[Any, Any] = {}
        self._abandoned: list[Any] = []

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.clock.alive

    def stall(self, seconds: float) -> None:
        """Run nothing for so long."""
        self.clock.stalled_until = max(self.clock.stalled_until, self.clock.seconds() + seconds)
        self.trouble = self.clock.stalled_until

    def crash(self) -> None:
        """Lose everything that is not committed.  Some calls on their way still reach the store."""
        self.clock.alive = False
        for call in list(self._on_the_way):
            if not self._faults.happens(0.5):
                self._on_the_way.pop(call)
                if call.active():
                    call.cancel()
        arriving = list(self._on_the_way.values())
        for transaction in self.transactions:
            if transaction not in arriving:
                transaction.end()

    async def call(self, port: str, name: str, real: Callable[..., Any], target: Any, args: Any, kw: Any) -> Any:
        """Call a store, with what may go wrong on the way there and back."""
        faults = self._faults
        self._rules.called(self, port, name, args)
        before = faults.delay()
        is_refused = faults.happens(faults.refused) or faults.outage_until > self.clock.seconds()
        if before:
            await self._travel(before, target)
        if is_refused:
            self.trouble = max(self.trouble, self.clock.seconds())
            await self._back()
            raise StoreUnreachable()
        result = await real(*args, **kw)
        self._rules.committed(self, port, name, args, result)
        await self._back()
        if faults.happens(faults.lost):
            self.trouble = max(self.trouble, self.clock.seconds())
            self._rules.note(self.name, port, name, "answer lost")
            raise StoreUnreachable()
        self._rules.answered(self, port, name, args, result)
        return result

    async def _travel(self, seconds: float, target: Any) -> None:
        arrived: Deferred[None] = Deferred(lambda _: call.cancel() if call.active() else None)
        call = self._world_clock.callLater(seconds, arrived.callback, None)
        self._abandoned.append(arrived)
        self._on_the_way[call] = target
        try:
            await arrived
        finally:
            self._on_the_way.pop(call, None)

    async def _back(self) -> None:
        """The way back; a process that is dead meanwhile never sees the answer."""
        after = self._faults.delay()
        if after > 1:
            self.trouble = max(self.trouble, self.clock.seconds() + after)
        if not self.alive or self.clock.is_stalled or after:
            waiting = self.clock.pause(after)
            self._abandoned.append(waiting)
            await waiting


class Port:
    """A store as a process sees it: each coroutine function goes through `Process.call`."""

    def __init__(self, target: Any, process: Process, name: str) -> None:
        self._target = target
        self._process = process
        self._name = name

    def __getattr__(self, name: str) -> Any:
        target, process, port = self._target, self._process, self._name
        real = getattr(target, name)
        if not hasattr(real, "__code__") or not real.__code__.co_flags & 0x80:  # CO_COROUTINE
            return real

        async def call(*args: Any, **kw: Any) -> Any:
            return await process.call(port, name, real, target, args, kw)

        self.__dict__[name] = call
        return call


class FhirPort(Port):
    """The FHIR store as a process sees it: its transactions end when the process does."""

    def transaction(self) -> _Transaction:
        """See `FhirStore.transaction`."""
        return _Transaction(self._target, self._process)


class _Transaction:
    def __init__(self, store: Any, process: Process) -> None:
        self._manager = store.transaction()
        self._process = process

    async def __aenter__(self) -> Port:
        self._real = await self._manager.__aenter__()
        self._process.transactions.add(self._real)
        return Port(self._real, self._process, "transaction")

    async def __aexit__(self, *raised: Any) -> Any:
        self._process.transactions.discard(self._real)
        return await self._manager.__aexit__(*raised)
