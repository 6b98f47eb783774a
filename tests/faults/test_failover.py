"""Two PostgreSQL servers fail over in every way under load: nothing acknowledged is lost, and the service follows.

Each sequence of `SEQUENCES` runs twice: with the primary first and with the primary second in `IPF_DB_URL`
(`IPF_FHIR_DB_URL` names them the other way round).  `p` is the server that is primary when a round begins, `s` its
standby.  A round ends when both replicate again.

Measured: how often another client, which opens a fresh connection each time (`writable.py`), commits a row before the
service's next `AA`.  The count starts when all faults of the round are in effect (an old primary that is still writable
is a split brain, which the service cannot see), a server can write, and, if the primary hangs, the service has noticed
(first `AE`).  What delays the service on a busy machine delays that client too, so the count does not depend on time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.scenario import Scenario
from tests.faults.writable import TABLE, Writable
from tests.replication import Pair, Server, why_not
from tests.waiting import until

GROUP = "failover"

SEED = 15
FAILOVERS = (
    ("refuse p", "promote s"),
    ("demote p", "promote s"),
    ("promote s", "kill p"),
    ("read-only p", "promote s"),
    ("promote s", "read-only p"),
    ("hang p", "promote s"),
    ("promote s", "hang p"),
)
"""The standby is the primary afterwards."""
OUTAGES = (
    ("refuse p", "start p"),
    ("hang p", "resume p"),
    ("read-only p", "refuse s", "read-write p"),
    ("refuse s", "refuse p", "start p"),
    ("hang s", "read-only p", "read-write p"),
    ("refuse p", "hang s", "start p"),
)
"""The primary stays the primary.  These never promote the standby: it is away, so it may miss what is acknowledged."""
SEQUENCES = FAILOVERS + OUTAGES
_MENDS = ("promote", "start", "resume", "read-write")
COMMITS = 60
"""Another client commits less often before the service's `AA`: two seconds on a quiet machine."""
INBOX_SECONDS = "3600"
"""Senders of a primary that hangs wait so long for an answer, unless the service notices that it hangs."""


class Round(NamedTuple):
    """What one round measured, in seconds.  `commits`: of another client, from the start of the count to `AA`."""

    steps: tuple[str, ...]
    primary_first: bool
    writable: float
    detected: float | None
    behind: float
    commits: int

    def __str__(self) -> str:
        order = "first " if self.primary_first else "second"
        found = f"{self.detected:.2f}" if self.detected is not None else "-"
        return (
            f"{', '.join(self.steps):40} primary {order}  writable after {self.writable:5.2f} s  hang seen {found:>5} s"
            f"  AA {self.behind:5.2f} s later, after {self.commits} commits"
        )


class FailoverTests(TestCase):
    timeout = LIMIT

    if why_not():
        skip = why_not()

    def test_rounds(self) -> None:
        """All sequences in both host orders under load; then each promise holds, and nothing is stuck."""
        run(self._rounds())

    async def _rounds(self) -> None:
        async with _Servers() as pair, _scenario(pair) as scenario:
            clock = Writable()
            clock.start(*(server.dsn("postgres") for server in pair.servers))
            try:
                scenario.feed.start()
                measured = [await _Failure(pair, scenario, clock).round(steps) for steps in _schedule(SEED)]
            finally:
                await asyncio.to_thread(clock.stop)
            report = "\n".join([f"seed {SEED}", *map(str, measured)])
            print("\n" + report)
            await scenario.feed.stop()
            await scenario.settled()
            self.assertEqual(scenario.broken_promises(), [], report)
            self.assertEqual({(one.steps, one.primary_first) for one in measured}, set(_all_rounds()))
            self.assertEqual([str(one) for one in measured if one.commits >= COMMITS], [], report)
            self.assertIsNone(scenario.service.ended())

    def test_no_server_can_write(self) -> None:
        """The first host only reads, the second one refuses: at the start, while running, and while it ends.

        A start ends with status 1 and names both; a running service answers `AE`, and SIGTERM ends it with status 0,
        as it does when both refuse or the only one hangs.
        """
        run(self._no_server_can_write())

    async def _no_server_can_write(self) -> None:
        async with _Servers() as pair:
            reads, refuses = pair.servers
            await asyncio.to_thread(pair.forget_standby)
            await asyncio.to_thread(refuses.stop, "immediate")
            await asyncio.to_thread(reads.read_only, True)
            await self._does_not_start(pair)
            await asyncio.to_thread(reads.read_only, False)
            async with _scenario(pair) as scenario:
                await self._goes_on(scenario, reads)
                await asyncio.to_thread(reads.read_only, True)
                await self._stops(scenario, "the first host only reads, the second refuses")
                for break_it, mend_it in ((reads.stop, reads.start), (reads.hang, reads.resume)):
                    await asyncio.to_thread(reads.read_only, False)
                    scenario.service.start()
                    await scenario.ready()
                    await asyncio.to_thread(break_it)
                    await self._stops(scenario, break_it.__name__)
                    await asyncio.to_thread(mend_it)
                scenario.service.start()
                await scenario.settled()
                self.assertEqual(scenario.broken_promises(), [])

    async def _does_not_start(self, pair: Pair) -> None:
        scenario = _scenario(pair)
        scenario.service.start()
        try:
            await until(lambda: scenario.service.ended() is not None, "the service ends")
            status = scenario.service.ended()
            text = scenario.service.log_tail()
            self.assertEqual(status, 1, text)
            for server in pair.servers:
                self.assertIn(server.address, text)
        finally:
            await scenario.__aexit__()

    async def _goes_on(self, scenario: Scenario, reads: Server) -> None:
        feed = scenario.feed
        feed.start()
        await feed.until(50)
        await asyncio.to_thread(reads.read_only, True)
        await feed.refused(50)
        await until(lambda: asyncio.to_thread(scenario.is_down), "the health is DOWN")
        await asyncio.to_thread(reads.read_only, False)
        await feed.more(50)
        await feed.stop()

    async def _stops(self, scenario: Scenario, when: str) -> None:
        began = time.monotonic()
        self.assertEqual(await asyncio.to_thread(scenario.service.stop), 0, when)
        print(f"SIGTERM, {when}: ended after {time.monotonic() - began:.1f} s")


def _all_rounds() -> Iterator[tuple[tuple[str, ...], bool]]:
    return ((steps, first) for steps in SEQUENCES for first in (True, False))


def _schedule(seed: int) -> list[tuple[str, ...]]:
    """Every failover and every outage on either primary, in a random order that the failovers permit."""
    chance = random.Random(seed)
    turns: list[list[tuple[str, ...]]] = []
    sides = [chance.sample(FAILOVERS, len(FAILOVERS)) for _ in range(2)]
    for turn in zip(*sides, strict=True):
        turns += [[steps] for steps in turn]
    for side in range(2):
        for steps in OUTAGES:
            chance.choice(turns[side::2]).insert(0, steps)
    return [steps for turn in turns for steps in turn]


class _Failure:
    """One round on a pair under load."""

    def __init__(self, pair: Pair, scenario: Scenario, clock: Writable) -> None:
        self._pair = pair
        self._feed = scenario.feed
        self._clock = clock
        self._p, self._s = pair.primary, pair.standby
        self._hung: float | None = None
        self._first = len(self._feed.answers)

    async def round(self, steps: tuple[str, ...]) -> Round:
        """Carry out the steps, wait for `AA`, and mend the pair."""
        await self._feed.more(20)
        with self._feed.repeating():
            measured = await self._broken(steps)
        await asyncio.to_thread(self._mend, steps)
        print(measured, flush=True)
        return measured

    async def _broken(self, steps: tuple[str, ...]) -> Round:
        chance = random.Random(repr(steps))
        began = in_effect = time.monotonic()
        for step in steps:
            await asyncio.to_thread(self._step, step)
            if not step.startswith(_MENDS):
                in_effect = time.monotonic()
            if step == "hang p":
                self._hung = time.monotonic()
                if step != steps[-1]:
                    await self._answer("AE", self._hung)
            await self._tried(self._clock.tries + chance.randint(1, 15))
        try:
            return await self._measure(steps, began, in_effect)
        except AssertionError as late:
            since = Counter(one.code for one in self._feed.answers if one.began >= in_effect)
            can_write = self._clock.since(in_effect) is not None
            text = f"{steps}, {self._p.name} was primary: a server can write: {can_write}; answers since: {since}"
            raise TimeoutError(text) from late

    async def _measure(self, steps: tuple[str, ...], began: float, in_effect: float) -> Round:
        writable = await until(lambda: self._clock.since(in_effect), "a server can write")
        accepted = await self._answer("AA", in_effect)
        hung = self._hung or accepted
        answers = self._feed.answers[self._first :]
        refused = [one.ended for one in answers if hung <= one.ended <= accepted and one.code != "AA"]
        detected = refused[0] if refused else None
        start = max(writable, detected or 0.0)
        seen = None if detected is None or self._hung is None else detected - self._hung
        first = self._p is self._pair.servers[0]
        return Round(
            steps, first, writable - began, seen, max(0.0, accepted - start), self._clock.commits(start, accepted)
        )

    async def _answer(self, code: str, since: float) -> float:
        """When the first message that was sent after `since` (an `AE`: answered) had this answer."""

        def found() -> float | None:
            for one in self._feed.answers[self._first :]:
                if one.code == code and since <= (one.began if code == "AA" else one.ended):
                    return one.ended
            return None

        return await until(found, code)

    async def _tried(self, count: int) -> None:
        await until(lambda: self._clock.tries >= count, "another client tries the servers")

    def _step(self, step: str) -> None:
        action, _, which = step.partition(" ")
        server = self._p if which == "p" else self._s
        actions: dict[str, Callable[[], None]] = {
            "refuse": lambda: server.stop("immediate"),
            "kill": lambda: server.stop("kill"),
            "hang": server.hang,
            "resume": server.resume,
            "read-only": lambda: server.read_only(True),
            "read-write": lambda: server.read_only(False),
            "start": server.start,
            "promote": self._pair.switch,
            "demote": lambda: self._demote(server),
        }
        actions[action]()
        if which == "s" and action in ("refuse", "hang"):
            self._pair.forget_standby()

    def _demote(self, server: Server) -> None:
        """In order: it stops when its standby has everything, and answers as a standby."""
        server.stop("fast")
        server.start(self._s)

    def _mend(self, steps: tuple[str, ...]) -> None:
        if steps in FAILOVERS and "demote p" not in steps:
            self._pair.demote()
        elif "refuse s" in steps:
            self._s.start(self._p)
        elif "hang s" in steps:
            self._s.resume()
        self._pair.wait_synchronous()


class _Servers:
    """`async with`: a pair that replicates, removed at the end."""

    def __init__(self) -> None:
        self._pair = Pair()

    async def __aenter__(self) -> Pair:
        try:
            await asyncio.to_thread(self._pair.start)
            await asyncio.to_thread(self._pair.primary.sql, TABLE)
        except BaseException:
            await self.__aexit__()
            raise
        return self._pair

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self._pair.close)


def _scenario(pair: Pair) -> Scenario:
    """A service on the pair, whose promises are looked up on the primary."""
    urls = {"IPF_DB_URL": pair.url("ipf"), "IPF_FHIR_DB_URL": pair.url("fhir", first=1)}
    scenario = Scenario(IPF_INBOX_TIMEOUT_SECONDS=INBOX_SECONDS, **urls)
    scenario.psql = lambda query, database: pair.primary.sql(query, database)
    return scenario
