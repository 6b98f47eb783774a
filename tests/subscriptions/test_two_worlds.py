"""No oracle through Subscriptions: a narrow client observes the same in two worlds that differ in what is hidden.

New scenarios in each run, from a seed that a failure names; `IPF_TWO_WORLDS_SEED=7` runs that one again.  A seed that
ever failed is added to `KEPT`.  `test_two_worlds_campaign.py` runs hundreds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.ports import Caller
from tests.fakes import MemoryDeliveryQueue
from tests.fakes.bindings import MemoryBindingTokens
from tests.fakes.grants import MemoryGrants
from tests.rest.world import World
from tests.security.two_worlds import START, Difference, Scenario, seeds, shrink
from tests.subscriptions.two_worlds import Server
from tests.subscriptions.two_worlds_steps import NotificationMaker

KEPT = (0, 21, 779726703)
"""These alone show all of `SEEN`."""
NEW = 36
SEEN = (
    "event-notification", "handshake", "heartbeat", "frame ping", "query-event", "PUT https", "insufficient_scope",
    '"valueString":"3"', 'frame {"resourceType":"Bundle"', "cannot be evaluated",
)  # fmt: skip
"""Parts of what clients observe, so that the scenarios are not empty."""


def memory_server(caller: Caller) -> Server:
    """A server in memory in which nothing happened yet."""
    world = World(now=START)
    queue = MemoryDeliveryQueue(world.store, lambda: world.now)
    return Server(world, MemoryGrants(world.store), queue, MemoryBindingTokens(lambda: world.now), caller)


async def compare(scenario: Scenario, servers: tuple[Server, Server]) -> tuple[Difference | None, str]:
    """The first difference, and everything that the client observed in world A."""
    observed = []
    for step in scenario.steps:
        seen = [
            await server.perform(step) if name in step.worlds else ""
            for name, server in zip("AB", servers, strict=True)
        ]
        if step.worlds == "AB" and seen[0] != seen[1]:
            return Difference(step, *seen), "".join(observed)
        if step.worlds != "AB" and any(seen):
            return Difference(step, *seen), "".join(observed)
        observed.append(seen[0])
    return None, "".join(observed)


def has_equal_versions(scenario: Scenario) -> bool:
    """Whether resources that become visible have equally many versions in both worlds: their numbers are shown."""
    return all(
        _count(scenario, step.url, "A") == _count(scenario, step.url, "B")
        for step in scenario.steps
        if step.worlds == "AB" and step.method in ("PUT", "DELETE")
    )


def _count(scenario: Scenario, url: str, world: str) -> int:
    return sum(step.url == url and step.worlds == world for step in scenario.steps)


class InMemory(TestCase):
    """Scenarios on the stores in memory."""

    def result_of(self, coroutine: Any) -> Any:
        """The result of a coroutine that never waits."""
        return self.successResultOf(Deferred.fromCoroutine(coroutine))

    async def differs(self, scenario: Scenario) -> bool:
        """Whether the client observes a difference; False when versions are missing in one world."""
        if not has_equal_versions(scenario):
            return False
        servers = memory_server(scenario.caller), memory_server(scenario.caller)
        return (await compare(scenario, servers))[0] is not None

    async def report(self, scenario: Scenario) -> str:
        """The smallest scenario that differs."""
        smallest = await shrink(scenario, self.differs)
        servers = memory_server(smallest.caller), memory_server(smallest.caller)
        found, _ = await compare(smallest, servers)
        return f"{smallest.text()}\n{found.text() if found is not None else 'it differs no longer'}"

    def run_all(self, chosen: Iterable[int]) -> str:
        """Answers, requests at the client's endpoints and websocket frames are equal; all that the clients observed."""
        observed = []
        for seed in chosen:
            scenario = NotificationMaker(seed).scenario()
            servers = memory_server(scenario.caller), memory_server(scenario.caller)
            found, text = self.result_of(compare(scenario, servers))
            if found is not None:
                self.fail(f"seed {seed}\n{self.result_of(self.report(scenario))}")
            observed.append(text)
        return "".join(observed)


class TwoWorldsTests(InMemory):
    def test_nothing_tells_of_what_is_hidden(self) -> None:
        self.run_all(seeds((), NEW))

    def test_scenarios_are_not_empty(self) -> None:
        """Clients observe answers, notifications and frames of every kind."""
        observed = self.run_all(KEPT)
        self.assertEqual([part for part in SEEN if part not in observed], [])
