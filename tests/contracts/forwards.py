"""The contract of `ports.messages.forwards.ForwardStore`."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.ports import Inbox, Received
from ipf.ports.messages.forwards import Candidate, Forwarded, ForwardStatus, ForwardStore
from ipf.ports.messages.sources import FHIR_REST
from tests.contracts.clock import CLOCK
from tests.contracts.inbox import received

NAME, WORKER = "lab", "host:1:lab"
PENDING, SENT, DEAD = ForwardStatus.PENDING, ForwardStatus.SENT, ForwardStatus.DEAD_LETTER


def every(message: Candidate) -> bool:
    """All messages."""
    return True


class ForwardsContract(TestCase):
    """Tests for a subclass that sets `self.forwards` and `self.inbox`, on `CLOCK`."""

    forwards: ForwardStore
    inbox: Inbox

    async def settled(self) -> None:
        """Wait until the horizon is at the last message."""
        raise NotImplementedError

    async def begun(self, name: str = NAME) -> int:
        fence = await self.forwards.begin(name, f"host:1:{name}", 60, None)
        assert fence is not None
        return fence

    async def filled(self, *ids: str, fence: int | None = None) -> int:
        """A destination with these messages."""
        fence = fence or await self.begun()
        await self.inbox.store([received(id) for id in ids])
        await self.settled()
        self.assertEqual(await self.forwards.fill(NAME, fence, every, 100), len(ids))
        return fence

    async def sources(self, status: ForwardStatus | None = None) -> list[str]:
        return [one.source_id for one in (await self.forwards.messages(NAME, status, 100, 0))[1]]

    async def test_a_new_destination_begins_with_what_comes(self) -> None:
        await self.inbox.store([received("old")])
        await self.filled("a", "b")
        self.assertEqual(await self.sources(), ["a", "b"])

    async def test_a_new_destination_from_a_time_on(self) -> None:
        first, second = received("a"), received("b")
        await self.inbox.store([first, second])
        fence = await self.forwards.begin(NAME, WORKER, 60, first.received_at)
        assert fence is not None
        await self.settled()
        await self.forwards.fill(NAME, fence, every, 100)
        self.assertEqual(await self.sources(), ["a", "b"])

    async def test_only_what_matches_and_each_once(self) -> None:
        fence = await self.begun()
        json = Received("c" * 8 + "-0000-4000-8000-000000000000", received().received_at, "LAB", "j", "x", b"{}",
                        source_protocol=FHIR_REST)  # fmt: skip
        await self.inbox.store(
            [received("a"), received("b", system="ADT"), received("c", message_type="ORU_R01"), json]
        )
        await self.settled()

        def wanted(message: Candidate) -> bool:
            return message.source_system == "LAB" and message.message_type == "ADT_A01" and message.raw == b"MSH|"

        for _ in range(3):
            await self.forwards.fill(NAME, fence, wanted, 2)
        self.assertEqual(await self.sources(), ["a"])

    async def test_a_filter_may_see_the_whole_message(self) -> None:
        fence = await self.begun()
        long = Received("c" * 8 + "-0000-4000-8000-000000000000", received().received_at, "LAB", "l", "ADT_A01",
                        b"MSH|" + b"x" * 9000, charset="cp1252")  # fmt: skip
        await self.inbox.store([long])
        await self.settled()
        seen: list[tuple[int, str]] = []

        def noted(message: Candidate) -> bool:
            seen.append((len(message.raw), message.charset))
            return False

        await self.forwards.fill(NAME, fence, noted, 2, whole=True)
        self.assertEqual(seen, [(9004, "cp1252")])

    async def test_in_order_and_with_its_end(self) -> None:
        fence = await self.filled("a", "b", "c")
        ends = (Forwarded(0, SENT, "AA", "ok"), Forwarded(0, DEAD, "AR", "no"), Forwarded(0, PENDING, "", "gone", 30))
        for end, attempts in zip(ends, (0, 0, 0), strict=True):
            pending = await self.forwards.next(NAME)
            assert pending is not None
            self.assertEqual((pending.raw, pending.attempts), (b"MSH|", attempts))
            made = Forwarded(pending.message_id, end.status, end.code, end.text, end.retry_seconds)
            self.assertTrue(await self.forwards.settle(NAME, fence, made, 60))
            self.assertEqual(await self.forwards.settle(NAME, fence, made, 60), end.status is PENDING)
        waiting = await self.forwards.next(NAME)
        assert waiting is not None
        self.assertTrue(20 < waiting.wait_seconds <= 30)
        self.assertEqual(waiting.attempts, 2)
        _, rows = await self.forwards.messages(NAME, None, 10, 0)
        self.assertEqual([(row.source_id, row.status, row.code, row.text) for row in rows],
                         [("a", SENT, "AA", "ok"), ("b", DEAD, "AR", "no"), ("c", PENDING, "", "gone")])  # fmt: skip
        (shown,) = await self.forwards.destinations()
        self.assertEqual((shown.pending, shown.dead, shown.sent, shown.last_error, shown.head_attempts),
                         (1, 1, 1, "gone", 2))  # fmt: skip

    async def test_one_process_has_a_destination(self) -> None:
        fence = await self.filled("a")
        self.assertIsNone(await self.forwards.begin(NAME, "host:2:lab", 60, None))
        CLOCK.advance(61)
        self.assertEqual(await self.forwards.holders(), [])
        other = await self.forwards.begin(NAME, "host:2:lab", 60, None)
        assert other is not None
        pending = await self.forwards.next(NAME)
        assert pending is not None
        end = Forwarded(pending.message_id, SENT)
        self.assertFalse(await self.forwards.settle(NAME, fence, end, 60))
        self.assertFalse(await self.forwards.renew(NAME, fence, 60))
        self.assertIsNone(await self.forwards.fill(NAME, fence, every, 10))
        self.assertTrue(await self.forwards.settle(NAME, other, end, 60))
        self.assertEqual(await self.forwards.holders(), ["host:2:lab"])
        await self.forwards.release("host:2:lab")
        self.assertIsNotNone(await self.forwards.begin(NAME, WORKER, 60, None))

    async def test_a_worker_that_lost_the_database_begins_again_at_once(self) -> None:
        first = await self.filled("a")
        again = await self.forwards.begin(NAME, WORKER, 60, None)
        assert again is not None
        self.assertNotEqual(first, again)
        self.assertFalse(await self.forwards.renew(NAME, first, 60))
        self.assertTrue(await self.forwards.renew(NAME, again, 60))

    async def test_a_destination_that_is_not_paused_keeps_its_lease_when_it_is_resumed(self) -> None:
        fence = await self.filled("a")
        await self.forwards.pause(NAME, paused=False)
        self.assertTrue(await self.forwards.renew(NAME, fence, 60))

    async def test_dead_letters_are_sent_again_in_order(self) -> None:
        fence = await self.filled("a", "b", "c")
        for _ in range(2):
            pending = await self.forwards.next(NAME)
            assert pending is not None
            await self.forwards.settle(NAME, fence, Forwarded(pending.message_id, DEAD, "AR"), 60)
        _, rows = await self.forwards.messages(NAME, DEAD, 10, 0)
        self.assertEqual(await self.forwards.retry(NAME, rows[1].message_id), 1)
        self.assertEqual(await self.sources(PENDING), ["b", "c"])
        self.assertEqual(await self.forwards.retry(NAME, None), 1)
        self.assertEqual(await self.sources(PENDING), ["a", "b", "c"])
        self.assertEqual((await self.forwards.messages(NAME, PENDING, 1, 1))[1][0].source_id, "b")

    async def test_an_operator_gives_up_and_pauses(self) -> None:
        fence = await self.filled("a", "b")
        pending = await self.forwards.next(NAME)
        assert pending is not None
        await self.forwards.skip(NAME, pending.message_id)
        self.assertEqual((await self.sources(DEAD), await self.sources(PENDING)), (["a"], ["b"]))
        await self.forwards.pause(NAME, paused=True)
        self.assertIsNone(await self.forwards.fill(NAME, fence, every, 10))
        self.assertIsNone(await self.forwards.begin(NAME, WORKER, 60, None))
        await self.forwards.pause(NAME, paused=False)
        fence = await self.begun()
        pending = await self.forwards.next(NAME)
        assert pending is not None
        await self.forwards.settle(NAME, fence, Forwarded(pending.message_id, PENDING, "", "gone", 300), 60)
        await self.forwards.pause(NAME, paused=False)
        waiting = await self.forwards.next(NAME)
        assert waiting is not None
        self.assertLessEqual(waiting.wait_seconds, 0)

    async def test_what_there_is_not(self) -> None:
        await self.filled("a")
        for work in (self.forwards.skip(NAME, 10**9), self.forwards.skip("none", 1),
                     self.forwards.pause("none", paused=True)):  # fmt: skip
            problem = await self.assertFailure(Deferred.fromCoroutine(work), Problem)
            self.assertEqual(problem.category, Category.NOT_FOUND)
        self.assertEqual(await self.forwards.messages("none", None, 10, 0), (0, []))
