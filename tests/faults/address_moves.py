"""`bin/test-vip`: one of two hosts of ipf fails under load, and the address of the senders leads to the other one.

First with the address of `etc/keepalived/keepalived.conf`, then with `etc/haproxy/haproxy.cfg` before both.  Each fault
hits the host that senders are connected to; then it is mended.  Senders wait 5 seconds for an answer, then they connect
again and repeat the message.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
from collections.abc import Callable, Collection
from typing import NamedTuple

from tests.faults.feed import Answer, Feed
from tests.faults.scenario import broken_messages
from tests.faults.two_hosts import MLLP_PORT, Host, Network, missing
from tests.waiting import block_until, until

ROUNDS = 3
WAYS = ("keepalived", "haproxy")
ANSWER_SECONDS = 5.0

_OPEN = "SELECT count(*) FROM ingested_messages WHERE status <> 'DELIVERED'"
Step = Callable[[Host], None]


class Fault(NamedTuple):
    """What happens to a host, and what mends it."""

    name: str
    fail: Step
    mend: Step


def _planned(host: Host) -> None:
    if host.shares_address:
        host.stop_keepalived()
        block_until(lambda: not host.has_address(), f"{host.name} keeps the address")
    host.restart_service()
    block_until(host.is_ready, f"{host.name} is not ready")
    if host.shares_address:
        host.start_keepalived()


FAULTS = (
    Fault("power lost", Host.lose_power, Host.boot),
    Fault("kill -9 of ipf", Host.kill_service, Host.start_service),
    Fault("cable pulled", Host.unplug, Host.plug),
    Fault("upgrade of ipf", _planned, lambda host: None),
)


class Outcome(NamedTuple):
    """Seconds without `AA` for all senders together and for the one that waited longest; likewise when it is mended."""

    fault: str
    host: str
    silent: float
    slowest: float
    mend_silent: float
    mend_slowest: float
    acknowledged: int
    lost: int

    def __str__(self) -> str:
        return (
            f"{self.fault:>15} {self.host:>5} {self.silent:>14.2f} {self.slowest:>15.2f} {self.mend_silent:>12.2f}"
            f" {self.mend_slowest:>15.2f} {self.acknowledged:>13} {self.lost:>5}"
        )


HEADINGS = "          fault  host  s without AA  slowest sender  when mended  slowest sender  acknowledged  lost"


def longest(answers: list[Answer], began: float, ended: float) -> float:
    """The longest time without `AA` that touches the time from `began` to `ended`."""
    times = sorted(one.ended for one in answers if one.code == "AA")
    before = max((time for time in times if time <= began), default=began)
    within = [time for time in times if began < time <= ended]
    edges = [before, *within, ended]
    return max(later - earlier for earlier, later in itertools.pairwise(edges))


class Trial:
    """A network under load."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.feed = Feed(MLLP_PORT, host=network.address, answer_seconds=ANSWER_SECONDS, behind=lambda: self._waiting)
        self._waiting = 0

    async def _look(self) -> bool:
        """Ask the database how many messages wait; False, so that it is asked again."""
        self._waiting = int((await asyncio.to_thread(self.network.sql, "ipf", _OPEN))[0][0])
        return False

    async def run(self, rounds: int) -> bool:
        """Every fault so many times; whether every promise held."""
        held = True
        looking = asyncio.create_task(until(self._look, seconds=float("inf")))
        self.feed.start()
        for number, fault in enumerate(FAULTS * rounds):
            one = await self._one(fault, number)
            print(one, flush=True)
            held = held and one.lost == 0
        await self.feed.stop()
        await until(lambda: self._waiting == 0, "all is delivered")
        looking.cancel()
        broken = await asyncio.to_thread(broken_messages, self.feed, self.network.sql)
        print("\n".join(broken) or f"all {len(self.feed.accepted)} acknowledged messages are delivered, once each")
        return held and not broken

    async def _one(self, fault: Fault, number: int) -> Outcome:
        host = await asyncio.to_thread(self.network.holder, number)
        await self.feed.until(len(self.feed.accepted) + 100)
        silent, slowest = await self._phase(fault.fail, host)
        mend_silent, mend_slowest = await self._phase(fault.mend, host)
        promised = list(self.feed.accepted)
        rows = await asyncio.to_thread(self.network.sql, "ipf", "SELECT DISTINCT source_id FROM ingested_messages")
        lost = len(set(promised) - {row[0] for row in rows})
        return Outcome(fault.name, host.name, silent, slowest, mend_silent, mend_slowest, len(promised), lost)

    async def _phase(self, step: Step, host: Host) -> tuple[float, float]:
        """Do it; the times without `AA` until every sender has had one, and both hosts are as before if it mends."""
        clock = asyncio.get_running_loop().time
        first, began = len(self.feed.answers), clock()
        await asyncio.to_thread(step, host)
        if step in {fault.mend for fault in FAULTS}:
            await asyncio.to_thread(block_until, host.is_ready, f"{host.name} is not ready")
        done = clock()
        await until(lambda: self._all_served(first, done), "every sender has an AA")
        await self.feed.until(len(self.feed.accepted) + 100)
        ended = clock()
        answers = self.feed.answers
        by_sender = [[one for one in answers if one.sender == sender] for sender in range(self.feed.senders)]
        return longest(answers, began, ended), max(longest(one, began, ended) for one in by_sender)

    def _all_served(self, first: int, since: float) -> bool:
        self.feed.check()
        answers = self.feed.answers[first:]
        return len({one.sender for one in answers if one.code == "AA" and one.began >= since}) == self.feed.senders


async def moves(rounds: int, ways: Collection[str]) -> bool:
    """These ways, one after the other."""
    held = True
    for way in ways:
        network = Network(has_address=way == "keepalived")
        print(f"{way}\n{HEADINGS}", flush=True)
        try:
            await asyncio.to_thread(network.start)
            held = await Trial(network).run(rounds) and held
        finally:
            await asyncio.to_thread(network.close)
    return held


def main(arguments: list[str]) -> int:
    """Exit status 0 when nothing was lost or stored twice."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # all programs are ended then too
    if reason := missing():
        print(reason, file=sys.stderr)
        return 1
    ways = [one for one in WAYS if one in arguments] or WAYS
    rounds = next((int(one) for one in arguments if one.isdecimal()), ROUNDS)
    return 0 if asyncio.run(moves(rounds, ways)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
