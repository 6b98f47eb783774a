"""One destination: order, acknowledgements, attempts, dead letters, and what ends a run."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from itertools import pairwise
from typing import Any
from uuid import uuid4

from twisted.trial.unittest import TestCase

from ipf.hl7.answers import AckAnswer
from ipf.pipeline.forward.forward import Forwarder
from ipf.ports import Received
from ipf.ports.messages.forwards import Destination, ForwardStatus, NotSent
from tests.fakes import MemoryInbox
from tests.fakes.forwards import MemoryForwards
from tests.pipeline.poll.simulated import at

LAB = Destination("lab", "127.0.0.1", 1)
PENDING, SENT, DEAD = ForwardStatus.PENDING, ForwardStatus.SENT, ForwardStatus.DEAD_LETTER


class Peer:
    """A connection.  `answers`: codes of the next messages (AA when there are none left); None: nobody answers."""

    def __init__(self) -> None:
        self.answers: list[str | None] = []
        self.sent: list[str] = []

    async def send(self, message: bytes, control_id: str) -> AckAnswer:
        self.sent.append(control_id)
        code = self.answers.pop(0) if self.answers else "AA"
        if code is None:
            raise NotSent("no answer within 30 s")
        return AckAnswer(code, control_id, f"text {code}")

    async def close(self) -> None:
        """Nothing is open."""


class ForwardTests(TestCase):
    def setUp(self) -> None:
        self.seconds = 0.0
        self.inbox = MemoryInbox(self.now)
        self.store = MemoryForwards(self.inbox, self.now)
        self.peer = Peer()
        self.outcomes: list[str] = []
        self.forwarder = self.opened(LAB)

    def now(self) -> Any:
        return at(self.seconds)

    def opened(self, destination: Destination) -> Forwarder:
        return Forwarder(destination, self.store, self.peer, "host:1:lab", self.pause, lambda: self.seconds, self)

    def forwarded(self, destination: str, outcome: str) -> None:
        self.outcomes.append(outcome)

    async def pause(self, seconds: float) -> None:
        """Time passes; after `until` the service stops."""
        self.seconds += seconds
        if self.seconds >= self.until:
            self.forwarder.stopping = True

    def run_for(self, seconds: float) -> Awaitable[None]:
        self.until = self.seconds + seconds
        self.forwarder.stopping = False
        return self.forwarder.run()

    async def receive(self, *ids: str) -> None:
        for id in ids:
            raw = f"MSH|^~\\&|LAB|H|IPF|H|2026||ORU^R01|{id}|P|2.5\r".encode()
            await self.inbox.store([Received(str(uuid4()), self.now(), "LAB", id, "ORU_R01", raw)])

    async def states(self) -> list[tuple[str, str]]:
        return [(one.source_id, one.status.value) for one in (await self.store.messages("lab", None, 100, 0))[1]]

    async def test_in_order(self) -> None:
        await self.run_for(1)
        await self.receive("a", "b", "c")
        await self.run_for(1)
        self.assertEqual(self.peer.sent, ["a", "b", "c"])
        self.assertEqual({status for _, status in await self.states()}, {SENT})
        self.assertEqual(self.outcomes, ["sent"] * 3)

    async def test_a_failure_holds_back_the_rest(self) -> None:
        """1, 2, 4 ... seconds apart, at most 5 minutes; AE and silence alike."""
        await self.run_for(1)
        await self.receive("a", "b")
        self.peer.answers = ["AE", None, "CE"]
        begun, moments = self.seconds, []
        send = self.peer.send

        async def noted(message: bytes, control_id: str) -> AckAnswer:
            moments.append(self.seconds - begun)
            return await send(message, control_id)

        self.peer.send = noted  # type: ignore[method-assign]
        await self.run_for(30)
        self.assertEqual(self.peer.sent, ["a", "a", "a", "a", "b"])
        self.assertEqual([round(one) for one in moments], [0, 1, 3, 7, 7])
        self.peer.answers = [None] * 60
        await self.receive("c")
        await self.run_for(6000)
        gaps = [round(after - before) for before, after in pairwise(moments[5:])]
        self.assertEqual((gaps[:4], max(gaps)), ([1, 2, 4, 8], 300))

    async def test_a_refusal_holds_back_nothing(self) -> None:
        await self.run_for(1)
        await self.receive("a", "b")
        self.peer.answers = ["AR"]
        await self.run_for(1)
        self.assertEqual(await self.states(), [("a", DEAD), ("b", SENT)])
        (row, _) = (await self.store.messages("lab", None, 10, 0))[1]
        self.assertEqual((row.code, row.text), ("AR", "text AR"))
        await self.store.retry("lab", None)
        await self.run_for(1)
        self.assertEqual(await self.states(), [("a", SENT), ("b", SENT)])

    async def test_the_last_attempt(self) -> None:
        self.forwarder = self.opened(replace(LAB, max_attempts=2))
        await self.run_for(1)
        await self.receive("a", "b")
        self.peer.answers = ["AE", None]
        await self.run_for(10)
        self.assertEqual(await self.states(), [("a", DEAD), ("b", SENT)])

    async def test_what_cannot_be_changed_is_a_dead_letter(self) -> None:
        self.forwarder = self.opened(replace(LAB, changes=(("MSH-5", "\ud800"),)))
        await self.run_for(1)
        await self.receive("a")
        await self.run_for(1)
        self.assertEqual((await self.states(), self.peer.sent), ([("a", DEAD)], []))

    async def test_a_condition(self) -> None:
        """Only what it is true for; what it cannot be evaluated on is a dead letter, and is not left out silently."""
        where = "iif(MSH.MSH_10 = 'b', ('x' | 'y').single(), MSH.MSH_10 = 'a')"
        self.forwarder = self.opened(replace(LAB, where=where))
        await self.run_for(1)
        await self.receive("a", "b", "c")
        await self.run_for(1)
        self.assertEqual((await self.states(), self.peer.sent), ([("a", SENT), ("b", DEAD)], ["a"]))

    async def test_another_process_goes_on(self) -> None:
        """The lease was lost while an acknowledgement was awaited: the message is sent again by the other one."""
        await self.run_for(1)
        await self.receive("a", "b")
        send = self.peer.send

        async def lost(message: bytes, control_id: str) -> AckAnswer:
            self.seconds += 1000
            self.assertIsNotNone(await self.store.begin("lab", "host:2:lab", 60, None))
            self.peer.send = send  # type: ignore[method-assign]
            return await send(message, control_id)

        self.peer.send = lost  # type: ignore[method-assign]
        await self.run_for(5000)
        self.assertEqual((self.peer.sent, await self.states()), (["a"], [("a", PENDING), ("b", PENDING)]))
        self.seconds += 1000
        await self.run_for(1)
        self.assertEqual(self.peer.sent, ["a", "a", "b"])

    async def test_a_long_rest_keeps_the_lease(self) -> None:
        running = self.run_for(1000)
        await running
        self.assertEqual(await self.store.holders(), [], "released at the end")
        await self.receive("a")
        await self.run_for(1)
        self.assertEqual(self.peer.sent, ["a"])
