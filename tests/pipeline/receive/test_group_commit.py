"""Group commit of received messages: batches, order, size limits, failures of the store."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ipf.errors import StoreUnreachable
from ipf.pipeline.receive.group_commit import GroupCommit
from ipf.ports import Inbox, Outcome, Received
from tests.pipeline.plain_inbox import PlainInbox


def received(number: int, size: int = 10) -> Received:
    return Received("c", datetime(2024, 1, 1, tzinfo=UTC), "REG", str(number), "ADT_A01", b"x" * size)


class GroupCommitTests(TestCase):
    def setUp(self) -> None:
        self.inbox = PlainInbox()
        self.clock = Clock()
        self.results: dict[str, Any] = {}
        self.rings = 0

    def commit(self, **bounds: Any) -> GroupCommit:
        inbox: Any = self.inbox
        typed: Inbox = inbox  # as much of it as group commit calls
        return GroupCommit(typed, self.clock, committed=self.notify, **bounds)

    def notify(self) -> None:
        self.rings += 1

    def submit(self, commit: GroupCommit, *numbers: int, source: object = None, size: int = 10) -> None:
        for number in numbers:
            commit.submit(
                received(number, size),
                source if source is not None else object(),
                lambda result, key=str(number): self.results.__setitem__(key, result),
            )

    def turn(self) -> None:
        """End the reactor turn."""
        self.clock.advance(0)

    def submit_in_turns(self, commit: GroupCommit, *turns: Iterable[int]) -> None:
        for numbers in turns:
            self.submit(commit, *numbers)
            self.turn()

    def test_single_message_is_stored_at_the_end_of_the_turn(self) -> None:
        self.submit(self.commit(), 1)
        self.assertEqual((self.inbox.batches, self.results), ([], {}))
        self.turn()
        self.assertEqual((self.inbox.batches, self.results, self.rings), ([1], {"1": Outcome.STORED}, 1))

    def test_messages_during_a_commit_share_the_next(self) -> None:
        self.inbox.hold = True
        commit = self.commit(writers=1)
        self.submit_in_turns(commit, [0], range(1, 10))
        self.assertEqual((self.inbox.batches, commit.backlog), ([1], 9))
        self.inbox.release()
        self.assertEqual((self.inbox.batches, commit.backlog), ([1, 9], 0))
        self.inbox.release()
        self.assertEqual(len(self.results), 10)
        self.assertEqual([one.source_id for one in self.inbox.order], [str(n) for n in range(10)])
        self.assertEqual(self.rings, 2)

    def test_two_writers(self) -> None:
        self.inbox.hold = True
        commit = self.commit(writers=2)
        self.submit_in_turns(commit, [1], [2], [3, 4])
        self.assertEqual(self.inbox.batches, [1, 1])
        self.inbox.release(1)
        self.assertEqual((self.inbox.batches, sorted(self.results)), ([1, 1, 2], ["2"]))

    def test_batches_are_bounded(self) -> None:
        self.inbox.hold = True
        commit = self.commit(writers=1, batch_rows=3, batch_bytes=100)
        self.submit_in_turns(commit, [0], range(1, 8))
        self.submit(commit, 8, 9, 10, size=60)
        self.submit(commit, 11, size=5000)
        for _ in range(10):
            if self.inbox.held:
                self.inbox.release()
        self.assertEqual(self.inbox.batches, [1, 3, 3, 2, 1, 1, 1])
        self.assertEqual(len(self.results), 12)

    def test_one_connection_is_never_in_two_batches(self) -> None:
        self.inbox.hold = True
        commit = self.commit(writers=2)
        self.submit(commit, 1, source="pipelining")
        self.turn()
        self.submit(commit, 2, 3, source="pipelining")
        self.submit(commit, 4, source="other")
        self.turn()
        self.assertEqual(self.inbox.batches, [1, 1])  # 1, and 4 beside it; 2 and 3 wait for 1
        self.inbox.release(1)
        self.assertEqual((self.inbox.batches, sorted(self.results)), ([1, 1], ["4"]))
        self.inbox.release()
        self.inbox.release()
        self.assertEqual([one.source_id for one in self.inbox.order], ["4", "1", "2", "3"])

    def test_unreachable_fails_all_at_once(self) -> None:
        self.inbox.hold = True
        commit = self.commit(writers=1)
        self.submit_in_turns(commit, [1], [2, 3])
        self.inbox.fail = StoreUnreachable()
        self.inbox.release()
        self.inbox.release()
        self.assertTrue(all(isinstance(one, StoreUnreachable) for one in self.results.values()))
        self.assertEqual((len(self.results), self.inbox.batches, self.rings), (3, [1, 2], 0))
        self.inbox.fail, self.inbox.hold = None, False
        self.submit_in_turns(commit, [4])
        self.assertEqual(self.results["4"], Outcome.STORED)

    def test_one_bad_row_does_not_block_others(self) -> None:
        self.inbox.hold = True
        self.inbox.poison = {"3"}
        commit = self.commit(writers=1)
        self.submit_in_turns(commit, [1], [2, 3, 4])
        self.inbox.hold = False
        self.inbox.release()
        self.assertEqual(self.inbox.batches, [1, 3, 1, 1, 1])
        self.assertEqual([self.results[key] for key in "124"], [Outcome.STORED] * 3)
        self.assertIsInstance(self.results["3"], ValueError)

    def test_hanging_store_times_out(self) -> None:
        self.inbox.hold = True
        commit = self.commit(writers=1, timeout=10)
        self.submit_in_turns(commit, [1], [2])
        self.clock.advance(6)
        self.submit(commit, 3)
        self.clock.advance(5)
        self.assertEqual(sorted(self.results), ["1", "2"])
        self.assertIsInstance(self.results["1"], StoreUnreachable)
        self.assertEqual(commit.backlog, 1)  # what was given up no longer waits
        self.inbox.release()  # the commit came through after all: answered once, stored, rung for
        self.inbox.release()
        self.assertIsInstance(self.results["1"], StoreUnreachable)
        self.assertEqual((self.results["3"], self.rings), (Outcome.STORED, 2))
        self.clock.advance(20)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_full_by_rows_and_by_bytes_then_resumed(self) -> None:
        for bounds, size in (({"waiting_rows": 4}, 10), ({"waiting_bytes": 400}, 100)):
            self.setUp()
            self.inbox.hold = True
            commit = self.commit(writers=1, batch_rows=1, **bounds)
            resumed: list[int] = []
            self.submit(commit, 1, size=size)
            self.turn()
            self.submit(commit, 2, 3, 4, size=size)
            self.assertFalse(commit.full)
            self.submit(commit, 5, size=size)
            self.assertTrue(commit.full)
            commit.when_room(lambda: resumed.append(commit.backlog))  # noqa: B023  # called within the loop
            self.inbox.release()
            self.assertEqual((commit.full, resumed), (False, []))
            self.inbox.release()
            self.assertEqual(resumed, [2])

    def test_drained(self) -> None:
        self.inbox.hold = True
        commit = self.commit(writers=1)
        self.submit_in_turns(commit, [1], [2])
        done = Deferred.fromCoroutine(commit.drained())
        self.inbox.release()
        self.assertNoResult(done)
        self.inbox.release()
        self.successResultOf(done)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_failing_callback_does_not_affect_others(self) -> None:
        self.inbox.hold = True
        commit = self.commit(writers=1)
        self.submit_in_turns(commit, [1])
        commit.submit(received(2), "s", lambda result: 1 / 0 and None)
        self.submit(commit, 3)
        self.inbox.release()
        self.inbox.release()
        self.assertEqual(self.results, {"1": Outcome.STORED, "3": Outcome.STORED})
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_messages_of_one_turn_share_a_batch(self) -> None:
        commit = self.commit()
        self.submit(commit, *range(5))
        self.submit(commit, 5, 6, source="pipelining")
        self.assertEqual((self.inbox.batches, len(self.clock.getDelayedCalls())), ([], 2))  # one launch, one patience
        self.turn()
        self.assertEqual((self.inbox.batches, len(self.results), self.rings), ([7], 7, 1))
        self.submit_in_turns(commit, [7, 8])
        self.assertEqual(self.inbox.batches, [7, 2])

    def test_message_submitted_by_a_callback_is_stored(self) -> None:
        self.inbox.hold = True
        commit = self.commit()
        commit.submit(received(1), "s", lambda result: self.submit(commit, 2))
        self.turn()
        self.inbox.release()
        self.assertEqual(self.inbox.batches, [1])
        self.turn()
        self.inbox.release()
        self.assertEqual((self.inbox.batches, self.results), ([1, 1], {"2": Outcome.STORED}))

    def test_single_sender_does_not_wait_for_the_end_of_the_turn(self) -> None:
        """Only after a batch of one message; other messages wait for the end of their turn."""
        commit = self.commit()
        self.submit(commit, 1)
        self.assertEqual(self.inbox.batches, [])
        self.turn()
        self.submit(commit, 2)
        self.assertEqual(self.inbox.batches, [1, 1])
        self.inbox.hold = True
        self.submit(commit, 3)
        self.submit(commit, 4, 5)
        self.inbox.release()
        self.assertEqual(self.inbox.batches, [1, 1, 1, 2])
        self.inbox.release()
        self.submit(commit, 6)
        self.assertEqual(self.inbox.batches, [1, 1, 1, 2])

    def test_small_batch_does_not_start_while_a_large_one_is_in_flight(self) -> None:
        self.inbox.hold = True
        commit = self.commit(writers=2)
        self.submit_in_turns(commit, range(5), range(5, 9))
        self.assertEqual((self.inbox.batches, commit.backlog), ([5], 4))
        self.submit_in_turns(commit, [9])
        self.assertEqual((self.inbox.batches, commit.backlog), ([5, 5], 0))
        self.submit_in_turns(commit, [10, 11])
        self.inbox.release()  # five are still in flight
        self.assertEqual((self.inbox.batches, commit.backlog), ([5, 5], 2))
        self.inbox.release()
        self.assertEqual((self.inbox.batches, commit.backlog), ([5, 5, 2], 0))

    def test_size_of_a_batch_in_flight_counts_messages_not_connections(self) -> None:
        self.inbox.hold = True
        commit = self.commit(writers=2)
        self.submit(commit, *range(5), source="pipelining")
        self.turn()
        self.submit_in_turns(commit, range(5, 9))
        self.assertEqual((self.inbox.batches, commit.backlog), ([5], 4))
        self.submit_in_turns(commit, [9])
        self.assertEqual((self.inbox.batches, commit.backlog), ([5, 5], 0))

    def test_three_writers(self) -> None:
        self.inbox.hold = True
        commit = self.commit(writers=3)
        self.submit_in_turns(commit, range(4), range(4, 10))
        self.assertEqual(self.inbox.batches, [4, 6])
        self.submit_in_turns(commit, range(10, 13))
        self.assertEqual((self.inbox.batches, commit.backlog), ([4, 6], 3))
        self.submit_in_turns(commit, [13])  # as many as the smallest in flight
        self.assertEqual((self.inbox.batches, commit.backlog), ([4, 6, 4], 0))
        self.submit_in_turns(commit, range(14, 24))
        self.assertEqual((self.inbox.batches, commit.backlog), ([4, 6, 4], 10))  # no fourth beside them
        self.inbox.release(1)
        self.assertEqual((self.inbox.batches, commit.backlog), ([4, 6, 4, 10], 0))
        self.inbox.hold = False
        while self.inbox.held:
            self.inbox.release()
        self.assertEqual([self.results[str(number)] for number in range(24)], [Outcome.STORED] * 24)

    def test_messages_behind_a_hanging_batch_time_out(self) -> None:
        self.inbox.hold = True
        commit = self.commit(writers=2, timeout=10)
        self.submit_in_turns(commit, range(5), [5, 6])
        self.clock.advance(10)
        self.assertEqual([type(self.results[str(number)]) for number in range(7)], [StoreUnreachable] * 7)
        self.assertEqual((self.inbox.batches, commit.backlog), ([5], 0))
        self.submit_in_turns(commit, [7])
        self.inbox.hold = False
        self.inbox.release()
        self.assertEqual((self.inbox.batches, self.results["7"]), ([5, 1], Outcome.STORED))

    def test_messages_behind_a_slow_batch_start_another(self) -> None:
        self.inbox.hold = True
        commit = self.commit(writers=2)
        self.submit_in_turns(commit, range(5), [5])
        self.assertEqual((self.inbox.batches, commit.backlog), ([5], 1))
        self.clock.advance(0.6)
        self.submit_in_turns(commit, [6])
        self.assertEqual((self.inbox.batches, commit.backlog), ([5, 2], 0))

    def test_drained_waits_for_messages_of_this_turn(self) -> None:
        commit = self.commit()
        self.submit(commit, 1)
        done = Deferred.fromCoroutine(commit.drained())
        self.assertNoResult(done)
        self.turn()
        self.successResultOf(done)
        self.assertEqual((self.results, self.clock.getDelayedCalls()), ({"1": Outcome.STORED}, []))
