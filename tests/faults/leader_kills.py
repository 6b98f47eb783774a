"""`bin/test-ha`: kill -9 of the leader of a Patroni cluster, several times, under load on the service.

A failover ends with the first `AA` of a message that was sent after the kill.  Then the acknowledged messages are
looked up on the new leader, and the killed node is started again.  The next kill waits until the cluster is complete.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from typing import NamedTuple

from tests.faults.patroni import Cluster, Node, missing
from tests.faults.scenario import Scenario
from tests.faults.writable import TABLE, Writable
from tests.waiting import until

FAILOVERS = 3


class Failover(NamedTuple):
    """What one kill cost, in seconds from it; `limit` bounds `accepted - writable` (see `test_failover.py`)."""

    killed: str
    leader: str
    writable: float
    accepted: float
    limit: float
    acknowledged: int
    lost: int

    @property
    def behind(self) -> float:
        """Seconds from the moment a server can write to the first acknowledgement."""
        return max(0.0, self.accepted - self.writable)

    @property
    def failed(self) -> bool:
        """Whether a message is lost, or the service was late."""
        return self.lost > 0 or self.behind > self.limit

    def __str__(self) -> str:
        return (
            f"{self.killed:>7} {self.leader:>11} {self.accepted:>13.2f} {self.writable:>18.2f} {self.behind:>17.2f}"
            f" {self.limit:>6.2f} {self.acknowledged:>13} {self.lost:>5}"
        )


HEADINGS = " killed  new leader  s without AA  of which Patroni  s writable to AA  limit  acknowledged  lost"


async def failovers(count: int) -> bool:
    """Kill the leader so many times; whether every promise held."""
    cluster = Cluster()
    clock = Writable()
    try:
        await asyncio.to_thread(cluster.start)
        await asyncio.to_thread(cluster.leader().sql, TABLE, "ipf")
        clock.start(*(node.dsn("ipf") for node in cluster.nodes))
        async with _scenario(cluster) as scenario:
            scenario.feed.start()
            print(HEADINGS, flush=True)
            held = True
            for _ in range(count):
                one = await _failover(cluster, scenario, clock)
                print(one, flush=True)
                held = held and not one.failed
            await scenario.feed.stop()
            await scenario.settled()
            broken = await asyncio.to_thread(scenario.broken_promises)
            print(
                "\n".join(broken) or f"all {len(scenario.feed.accepted)} acknowledged messages are delivered, once each"
            )
            return held and not broken
    finally:
        await asyncio.to_thread(clock.stop)
        await asyncio.to_thread(cluster.close)


def _scenario(cluster: Cluster) -> Scenario:
    scenario = Scenario(IPF_DB_URL=cluster.url("ipf"), IPF_FHIR_DB_URL=cluster.url("fhir"))
    scenario.psql = lambda query, database: cluster.leader().sql(query, database)
    return scenario


async def _failover(cluster: Cluster, scenario: Scenario, clock: Writable) -> Failover:
    feed = scenario.feed
    await feed.more(200)
    leader: Node = await asyncio.to_thread(cluster.leader)
    first = len(feed.answers)
    began = time.monotonic()
    await asyncio.to_thread(leader.kill)
    killed = time.monotonic()
    with feed.repeating():
        writable = await until(lambda: clock.since(killed), "a server can write")
        times = await until(
            lambda: [one.ended for one in feed.answers[first:] if one.code == "AA" and one.began >= killed], "AA"
        )
    limit = 1.0 + 10 * clock.slowest(writable, max(writable, times[0]))
    promised = list(feed.accepted)
    new = await asyncio.to_thread(cluster.leader)
    rows = await asyncio.to_thread(scenario.sql, "ipf", "SELECT DISTINCT source_id FROM ingested_messages")
    lost = set(promised) - {row[0] for row in rows}
    await asyncio.to_thread(leader.start)
    await asyncio.to_thread(cluster.wait_complete)
    return Failover(leader.name, new.name, writable - began, times[0] - began, limit, len(promised), len(lost))


def main(arguments: list[str]) -> int:
    """Exit status 0 when nothing was lost or late."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # all programs are ended then too
    if reason := missing():
        print(reason, file=sys.stderr)
        return 1
    return 0 if asyncio.run(failovers(int(arguments[0]) if arguments else FAILOVERS)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
