"""A run: the whole service in one thread, drawn from a seed.

The stages are the real ones (`replica.py`), on the stores in memory.  Senders, subscribers, a receiver of forwarded
messages and a polled server are in memory too (`transports.py`).  For a while a seed makes calls late or lost,
processes crash, stall, stop and start, subscribers fail, and operators act (`operators.py`).  Then all faults end, and
everything must come to rest.  After each step the rules hold (`rules.py`).
"""

from __future__ import annotations

import hashlib
from random import Random
from typing import Any

from twisted.internet.defer import Deferred

from ipf.ports import Backoff
from ipf.ports.messages.feeds import Reply
from ipf.ports.messages.forwards import Destination
from ipf.ports.messages.sources import FHIR_REST, Feed, PolledSource
from tests.fakes import MemoryDeliveryQueue, MemoryFhirStore, MemoryInbox
from tests.fakes.feeds import MemoryFeeds
from tests.fakes.forwards import MemoryForwards
from tests.fakes.message_admin import MemoryMessageAdmin
from tests.pipeline.poll.simulated import Source, outage, status
from tests.simulation.clock import START, SeededClock
from tests.simulation.faults import Faults, Process
from tests.simulation.operators import Operators
from tests.simulation.replica import Replica
from tests.simulation.rules import Broken, Rules
from tests.simulation.transports import KINDS, Sender, Subscriber, message

REST_SECONDS = 1500.0
"""After the faults, everything is at rest within this time: longer than each lease and the longest back-off."""
MOST_STEPS = 200_000


class World:
    """The state of a run.  The stores are what survives a crash."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.clock = SeededClock(Random(f"order {seed}"))
        self.faults = Faults.drawn(Random(f"faults {seed}"))
        self.inbox = MemoryInbox(self.clock.now)
        self.fhir = MemoryFhirStore()
        self.deliveries = MemoryDeliveryQueue(self.fhir, self.clock.now)
        self.forwards = MemoryForwards(self.inbox, self.clock.now)
        self.feeds = MemoryFeeds(self.inbox, self.clock.now)
        self.admin = MemoryMessageAdmin(self.inbox)
        self.processes: dict[str, Process] = {}
        self.replicas: list[Replica] = []
        self.rules = Rules(self)
        self._ids = 0
        self._draw_settings()
        self._draw_far_ends()
        self.is_quiet = False
        self.operators = Operators(self)

    # -- what a seed draws

    def _draw_settings(self) -> None:
        draw = self.random
        self.backoff = Backoff(1000, draw.choice((2.0, 3.0)), draw.choice((5000, 300_000)), draw.choice((2, 3, 5)))
        self.delivery_backoff = Backoff(1000, 2.0, 60_000, draw.choice((3, 5, 8)))
        self.stale_seconds = draw.choice((15.0, 60.0))
        self.poll_seconds = draw.choice((1.0, 5.0))
        self.claim_size = draw.choice((2, 5, 50))
        self.in_flight = draw.choice((1, 1, 1, 4))
        self.hosts = [f"host{number}" for number in range(draw.choice((1, 1, 2, 3)))]
        self.fault_seconds = draw.choice((10.0, 30.0, 90.0))
        self.pace = self.fault_seconds / draw.choice((8, 40))
        self._chances = draw.choice((0.0, 1.0))
        self._slow_maps = draw.choice((0.0, 0.0, 0.1, 0.5))
        self._slowest_map = draw.choice((0.5, 5.0, 100.0))
        self._flaky = draw.choice((0.3, 0.7))
        self._forward_trouble = draw.choice((0.0, 0.2, 0.6))
        self._source_trouble = draw.choice((0.0, 0.3))
        self.source_wait = 7.0

    def _draw_far_ends(self) -> None:
        draw = self.random
        self.senders = [self._sender(f"S{number}", draw) for number in range(draw.choice((1, 2, 3)))]
        types = [draw.choice(("Patient", "Observation")) for _ in range(draw.choice((1, 2, 3)))]
        self.subscribers = {
            f"sub{number}": Subscriber(f"sub{number}", resource_type, Random(f"{self.seed} sub {number}"))
            for number, resource_type in enumerate(types)
        }
        self.destination = Destination("lab", "lab.test", 1, since=START)
        feed = Feed("results", "Observation?_lastUpdated=gt{{lastRun}}")
        self.polled = PolledSource(
            "ehr", "lab", FHIR_REST, "https://ehr.test/fhir", "EHR", (feed,), interval=5.0, overlap=5.0
        )  # fmt: skip
        self.source = Source(self.clock.now, page_size=2)

    def _sender(self, name: str, draw: Random) -> Sender:
        kinds = draw.choice((KINDS, KINDS, ("good",)))
        sent = []
        for number in range(draw.randrange(1, 9)):
            patient = draw.choice(("P1", "P1", "P2", ""))
            sent.append(message(name, f"{name}-{number}", patient, draw.choice(kinds), "1"))
            if draw.random() < 0.2:
                sent.append(sent[-1])  # a repeat
            elif draw.random() < 0.1:
                sent.append(message(name, f"{name}-{number}", patient, "good", "other content"))
        return Sender(self, name, Random(f"{self.seed} {name}"), sent)

    # -- what the parts ask

    def new_id(self) -> str:
        """A correlation id."""
        self._ids += 1
        return f"{self._ids:08d}-0000-7000-8000-000000000000"

    def chance(self) -> float:
        """What spreads the waits of deliveries."""
        return self.random.random() * self._chances

    def listening(self) -> list[Replica]:
        """The processes that take messages."""
        return [one for one in self.replicas if one.process.alive and one.is_listening]

    def notify(self, name: str) -> None:
        """Wake each process, unless the notification is lost on the way."""
        for replica in self.listening():
            if not self.faults.happens(self.faults.lost_notifications):
                replica.process.clock.callLater(self.faults.delay() / 10, replica.wake, name)

    def mapping_seconds(self) -> float:
        """How long the mapper takes."""
        is_slow = not self.is_quiet and self.random.random() < self._slow_maps
        return self.random.random() * self._slowest_map if is_slow else 0.0

    def is_flaky(self) -> bool:
        """Whether the mapping service fails now."""
        return not self.is_quiet and self.random.random() < self._flaky

    def forward_answer(self) -> str | None:
        """The acknowledgement of the next forwarded message."""
        if self.is_quiet or self.random.random() >= self._forward_trouble:
            return "AA"
        return self.random.choice(("AE", "AE", "AR", None))

    async def get(self, url: str) -> Reply:
        """See `Fetch.get`: the polled server."""
        if not self.is_quiet and self.random.random() < self._source_trouble:
            fault = self.random.choice((outage, status(500), status(429, retry_after="7"), status(429)))
            reply = fault(url)
            if reply is not None:
                return reply
        return await self.source.get(url)

    # -- processes

    def start_process(self, host: str) -> None:
        """Start a process on a host."""
        name = f"{host}:{len(self.processes)}"
        self.rules.note(name, "starts")
        self.processes[name] = Process(name, self.clock, self.faults, self.rules)
        replica = Replica(self, self.processes[name], host)
        self.replicas = [one for one in self.replicas if one.host != host] + [replica]
        Deferred.fromCoroutine(replica.start()).addErrback(self._failed)

    def stop_process(self, replica: Replica) -> None:
        """Stop a process as an operator does."""
        self.rules.note(replica.process.name, "stops")
        Deferred.fromCoroutine(replica.stop()).addErrback(self._failed)

    def crash_process(self, replica: Replica) -> None:
        """Kill a process."""
        self.rules.note(replica.process.name, "crashes")
        replica.process.crash()
        for sender in self.senders:
            sender.lost(replica.process)

    def _failed(self, failure: Any) -> None:
        self.rules.hold(False, f"unexpected: {failure.getTraceback()}")

    # -- the run

    def run(self, steps: int = MOST_STEPS) -> None:
        """Run to the end.  Broken: a rule does not hold."""
        for host in self.hosts:
            self.start_process(host)
        for sender in self.senders:
            sender.send()
        self.operators.begin()
        self.clock.callLater(self.fault_seconds, self._end_faults)
        checked = 0.0
        for _ in range(steps):
            self.clock.run_next()
            if self.rules.broken:
                raise Broken(self.rules.broken[0])
            if self.is_quiet and self.clock.rightNow > checked + 1.0:
                checked = self.clock.rightNow
                missing = self.missing()
                if not missing:
                    return
                if checked > self.fault_seconds + REST_SECONDS:
                    raise Broken(f"not at rest: {missing}")
        if steps == MOST_STEPS:
            raise Broken(f"no end after {steps} steps")

    def _end_faults(self) -> None:
        self.rules.note("faults end")
        self.is_quiet = True
        self.faults.stop()
        self.operators.restore()

    def missing(self) -> list[str]:
        """What has not come to rest."""
        found = [f"{one.name} has {len(one.left)} messages" for one in self.senders if one.left]
        rules = self.rules
        for part in (rules.inbox, rules.delivery, rules.forwards, rules.feeds):
            found += part.missing()  # type: ignore[attr-defined]
        return found

    @property
    def digest(self) -> str:
        """Of the trace."""
        return hashlib.sha256(repr(self.rules.trace).encode()).hexdigest()[:16]
