"""The contract of `ports.Inbox`."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.ports import (
    Backoff,
    Claimed,
    Inbox,
    MessageFilter,
    Outcome,
    Received,
    Rejected,
    Settlement,
    Status,
    WrongState,
)
from ipf.ports.messages.sources import MLLP
from tests.contracts.clock import CLOCK

BACKOFF = Backoff(base_ms=50, factor=2.0, max_ms=1000, max_attempts=2)
_numbers = itertools.count(1)


def received(source_id: str | None = None, *, key: int | None = None, raw: bytes = b"MSH|", **other: str) -> Received:
    """A message, with a control id of its own unless given."""
    return Received(
        str(uuid4()), CLOCK(), other.get("system", "LAB"), source_id or f"ID{next(_numbers)}",
        other.get("message_type", "ADT_A01"), raw, ordering_key=key, tenant=other.get("tenant", "default"),
    )  # fmt: skip


def ended(claim: Claimed, status: Status = Status.DELIVERED) -> Settlement:
    """The end of a claim."""
    return Settlement(claim.id, claim.fence, status)


def failed(claim: Claimed, seconds: float, status: Status = Status.FAILED) -> Settlement:
    """A failed attempt, due again after so many seconds."""
    due = CLOCK() + timedelta(seconds=seconds)
    return Settlement(claim.id, claim.fence, status, claim.attempt_count + 1, "no map", due)


class InboxContract(TestCase):
    """Tests for a subclass that sets `self.inbox`, on `CLOCK`, in `setUp`."""

    inbox: Inbox

    def passing(self) -> Inbox:
        """The same inbox, with `PermanentErrors.hold` False."""
        raise NotImplementedError

    async def _ids(self, limit: int = 50, worker: str = "w") -> list[str]:
        return [claim.source_id for claim in await self.inbox.claim(worker, limit)]

    # -- storing

    async def test_repeats_make_no_row(self) -> None:
        """The key is system and id within a tenant; other content under a key is a conflict; also in one batch."""
        first = received("A", raw=b"one")
        batch = [first, first, received("A", raw=b"two"), received("B"), received("A", system="OTHER")]
        outcomes = await self.inbox.store(batch)
        expected = ["stored", "duplicate", "conflicting_duplicate", "stored", "stored"]
        self.assertEqual([outcome.value for outcome in outcomes], expected)
        again = await self.inbox.store([received("A", raw=b"one"), received("C"), received("A", raw=b"three")])
        self.assertEqual(again, [Outcome.DUPLICATE, Outcome.STORED, Outcome.CONFLICTING_DUPLICATE])
        self.assertEqual(await self.inbox.store([received("A", tenant="north")]), [Outcome.STORED])
        self.assertEqual((await self.inbox.counts())[Status.RECEIVED], 5)
        self.assertEqual(await self.inbox.store([]), [])

    async def test_bytes_come_back_as_they_were(self) -> None:
        """Any byte, any size; quotes and backslashes in names."""
        payloads = [bytes(range(256)) * 3, "Müller's \\ \r".encode(), b"\xfc latin-1", b"", b"x" * 300_000, b"\x1e"]
        batch = [received(f"it's \\{n}", raw=raw) for n, raw in enumerate(payloads)]
        await self.inbox.store(batch)
        claims = await self.inbox.claim("w", 50)
        self.assertEqual([claim.raw for claim in claims], payloads)
        self.assertEqual([claim.source_id for claim in claims], [message.source_id for message in batch])
        row = await self.inbox.get(claims[0].id)
        assert row is not None
        expected = (payloads[0], "utf-8", batch[0].raw_content_type)
        self.assertEqual((row.raw, row.charset, row.raw_content_type), expected)

    async def test_alone_is_as_in_a_batch(self) -> None:
        """A message stored alone makes the same row as one in a batch; repeats are recognized either way."""
        kinds = [(bytes(range(256)), None), ("Müller's \\ \r".encode(), 2**63 - 1), (b"", 0), (b"x" * 300_000, 7)]
        batch = [received(f"it's \\ \x1e{n}", key=key, raw=raw) for n, (raw, key) in enumerate(kinds)]
        alone = [replace(message, tenant="north") for message in batch]
        self.assertEqual(await self.inbox.store(batch), [Outcome.STORED] * 4)
        for message in alone:
            self.assertEqual(await self.inbox.store([message]), [Outcome.STORED])
            self.assertEqual(await self.inbox.store([message]), [Outcome.DUPLICATE])
            self.assertEqual(await self.inbox.store([replace(message, raw=b"?")]), [Outcome.CONFLICTING_DUPLICATE])
        claims = await self.inbox.claim("w", 50)
        self.assertEqual([claim.tenant for claim in claims], ["default"] * 4 + ["north"] * 4)
        for batched, single, message in zip(claims[:4], claims[4:], batch, strict=True):
            self.assertEqual(replace(batched, id=single.id, fence=single.fence, tenant="north"), single)
            row, other = await self.inbox.get(batched.id), await self.inbox.get(single.id)
            assert row is not None and other is not None
            self.assertEqual((row.tenant, other.tenant), ("default", "north"))
            same = replace(row, id=other.id, last_attempt_at=other.last_attempt_at, tenant=other.tenant)
            self.assertEqual(same, other)
            self.assertEqual((other.raw, other.source_id), (message.raw, message.source_id))

    async def test_rejects_are_kept(self) -> None:
        """A frame that is no message is stored as a reject, not as a row."""
        await self.inbox.reject(Rejected(CLOCK(), str(uuid4()), "lab", "10.0.0.1", "no MSH", b"\x00\xff", 2))
        self.assertEqual(sum((await self.inbox.counts()).values()), 0)

    async def test_unfinished_leaves_out_what_is_delivered(self) -> None:
        """Four states, with the numbers of `counts`."""
        await self.inbox.store([received("a"), received("b"), received("c")])
        first, second = await self.inbox.claim("w", 2)
        await self.inbox.settle([Settlement(first.id, first.fence, Status.DELIVERED)])
        found = await self.inbox.unfinished()
        self.assertEqual(found.pop(Status.RECEIVED), 1)
        self.assertEqual(found.pop(Status.TRANSFORMING), 1)
        self.assertEqual(found, {Status.FAILED: 0, Status.DEAD_LETTER: 0})
        self.assertGreater(second.fence, 0)

    # -- claiming

    async def test_claims_are_disjoint_and_oldest_first(self) -> None:
        """Two workers at once never hold the same row."""
        await self.inbox.store([received(f"{n}") for n in range(10)])
        first, second = await self._ids(4, "a"), await self._ids(50, "b")
        self.assertEqual(first + second, [f"{n}" for n in range(10)])
        self.assertEqual(await self._ids(), [])

    async def test_order_of_a_key(self) -> None:
        """A message waits for earlier open ones of its key that are not in the same claim; other keys do not wait."""
        names = (("1a", 1), ("1b", 1), ("2a", 2), ("1c", 1))
        await self.inbox.store([received(name, key=key) for name, key in names])
        (first,) = await self.inbox.claim("w", 1)
        others = await self.inbox.claim("w", 50)
        self.assertEqual([claim.source_id for claim in others], ["2a"])
        await self.inbox.settle([failed(first, 600)])
        self.assertEqual(await self._ids(), [])
        CLOCK.advance(601)
        (again,) = await self.inbox.claim("w", 1)
        self.assertEqual((again.source_id, again.attempt_count), ("1a", 1))
        await self.inbox.settle([ended(again)])
        self.assertEqual(await self._ids(), ["1b", "1c"])

    async def test_dead_letters_hold_nobody(self) -> None:
        """The message after a dead letter is claimed at once."""
        await self.inbox.store([received("1", key=5), received("2", key=5)])
        (first,) = await self.inbox.claim("w", 1)
        self.assertEqual(await self._ids(), [])
        await self.inbox.settle([failed(first, 0, Status.DEAD_LETTER)])
        self.assertEqual(await self._ids(), ["2"])

    async def test_permanent_errors_hold_or_pass(self) -> None:
        """With `hold` False only a message that a retry may mend holds later ones of its key."""
        self.inbox = self.passing()
        await self.inbox.store([received(f"{number}", key=5) for number in range(1, 6)])
        (first,) = await self.inbox.claim("w", 1)
        self.assertFalse(first.permanent)
        self.assertEqual(await self._ids(), [])
        await self.inbox.settle([replace(failed(first, 600), permanent=True)])
        (second,) = await self.inbox.claim("w", 1)
        self.assertEqual(second.source_id, "2")
        await self.inbox.settle([failed(second, 300)])
        self.assertEqual(await self._ids(), [])
        CLOCK.advance(301)
        self.assertEqual(await self._ids(1), ["2"])
        self.assertEqual(await self._ids(), [])
        CLOCK.advance(300)
        (again,) = await self.inbox.claim("w", 50)
        self.assertEqual((again.source_id, again.permanent, again.attempt_count), ("1", True, 1))

    async def test_what_passed_is_converted_again(self) -> None:
        """In order, once the message that was passed is delivered; what waits still follows it in any case."""
        self.inbox = self.passing()
        await self.inbox.store([received(f"{number}", key=5) for number in range(1, 5)])
        await self.inbox.store([received("other", key=6)])
        first, second, third, fourth, _ = await self.inbox.claim("w", 50)
        await self.inbox.settle([
            replace(failed(first, 0), permanent=True), ended(second), failed(third, 0, Status.DEAD_LETTER),
            failed(fourth, 600),
        ])  # fmt: skip
        (again,) = await self.inbox.claim("w", 50)
        self.assertEqual(await self.inbox.settle([replace(ended(replace(again, fence=0)), was_passed=True)]), [False])
        self.assertEqual(await self.inbox.settle([replace(ended(again), was_passed=True)]), [True])
        CLOCK.advance(601)
        claims = await self.inbox.claim("w", 50)
        found = [(claim.source_id, claim.original_id) for claim in claims]
        self.assertEqual(found, [("4", None), ("2", second.id), ("4", fourth.id)])

    async def test_permanent_errors_hold_by_default(self) -> None:
        """Nothing passes, and messages behind are claimed when the first is delivered after all."""
        await self.inbox.store([received("1", key=5), received("2", key=5)])
        (first,) = await self.inbox.claim("w", 1)
        await self.inbox.settle([replace(failed(first, 600), permanent=True)])
        self.assertEqual(await self._ids(), [])
        CLOCK.advance(601)
        (again,) = await self.inbox.claim("w", 1)
        await self.inbox.settle([ended(again)])
        self.assertEqual(await self._ids(), ["2"])

    async def test_the_mark_of_a_permanent_error(self) -> None:
        """It lasts as long as the error: until delivery, a retry by an operator, or the loss of a worker."""
        await self.inbox.store([received("1"), received("2"), received("3")])
        one, two, three = await self.inbox.claim("w", 3)
        await self.inbox.settle([
            replace(failed(one, 0), permanent=True), replace(failed(two, 600), permanent=True), failed(three, 600),
        ])  # fmt: skip
        for wanted, found in ((True, ["2", "1"]), (False, ["3"]), (None, ["3", "2", "1"])):
            page = await self.inbox.page(MessageFilter(permanent=wanted), 50, 0)
            self.assertEqual((page.total, [row.source_id for row in page.rows]), (len(found), found))
            page = await self.inbox.page(MessageFilter(permanent=wanted, status=Status.FAILED, error="no"), 50, 0)
            self.assertEqual(page.total, len(found))
        (again,) = await self.inbox.claim("w", 50)
        await self.inbox.settle([ended(again, Status.RECEIVED)])
        self.assertTrue(await self._is_permanent(one.id))
        (again,) = await self.inbox.claim("dead", 50)
        self.assertTrue(again.permanent)
        await self.inbox.recover_worker("dead", BACKOFF)
        self.assertFalse((await self.inbox.retry(two.id)).permanent)
        self.assertEqual([await self._is_permanent(each.id) for each in (one, two, three)], [False] * 3)

    async def _is_permanent(self, message_id: int) -> bool:
        row = await self.inbox.get(message_id)
        assert row is not None
        return row.permanent

    # -- settling

    async def test_lifecycle(self) -> None:
        """Fields of each state as the specification lists them."""
        await self.inbox.store([received("1")])
        (claim,) = await self.inbox.claim("w", 1)
        self.assertEqual(await self.inbox.settle([failed(claim, 0)]), [True])
        row = await self.inbox.get(claim.id)
        assert row is not None
        self.assertEqual((row.status, row.attempt_count, row.last_error), (Status.FAILED, 1, "no map"))
        self.assertIsNotNone(row.next_attempt_at)
        self.assertIsNotNone(row.last_attempt_at)
        (claim,) = await self.inbox.claim("w", 1)
        self.assertEqual(claim.attempt_count, 1)
        await self.inbox.settle([ended(claim)])
        row = await self.inbox.get(claim.id)
        assert row is not None
        self.assertEqual((row.status, row.attempt_count, row.last_error), (Status.DELIVERED, 1, None))
        self.assertIsNone(row.next_attempt_at)
        self.assertIsNotNone(row.delivered_at)

    async def test_lost_lease(self) -> None:
        """A worker that lost a row can neither settle nor renew it; a returned row counts no attempt."""
        await self.inbox.store([received("1")])
        (lost,) = await self.inbox.claim("a", 1)
        self.assertEqual(await self.inbox.settle([ended(lost, Status.RECEIVED)]), [True])
        (held,) = await self.inbox.claim("b", 1)
        self.assertEqual((held.attempt_count, held.fence > lost.fence), (0, True))
        self.assertEqual(await self.inbox.settle([ended(lost)]), [False])
        await self.inbox.renew([lost])
        self.assertEqual(await self.inbox.settle([ended(held), ended(lost)]), [True, False])
        self.assertEqual(await self.inbox.settle([ended(held)]), [False])

    async def test_stale_rows_are_failed_attempts(self) -> None:
        """Renewed rows are kept; exhausted attempts end in DEAD_LETTER; the next message of the key follows."""
        first = replace(received("1", key=1), source_protocol="OTHER")
        await self.inbox.store([first, received("2", key=1), received("3")])
        claims = await self.inbox.claim("w", 50)
        self.assertEqual([claim.source_protocol for claim in claims], ["OTHER", MLLP, MLLP])
        CLOCK.advance(1000)
        await self.inbox.renew([claim for claim in claims if claim.source_id == "3"])
        recovered = await self.inbox.recover_stale(600, BACKOFF)
        self.assertEqual([(one.source_id, one.settled, one.attempt_count) for one in recovered],
                         [("1", Status.FAILED, 1), ("2", Status.FAILED, 1)])  # fmt: skip
        self.assertEqual([one.source_protocol for one in recovered], ["OTHER", MLLP])
        self.assertEqual(await self.inbox.settle([ended(claim) for claim in claims]), [False, False, True])
        CLOCK.advance(10)
        self.assertEqual(await self._ids(worker="dead"), ["1", "2"])
        self.assertIn("dead", await self.inbox.holders())
        dead = await self.inbox.recover_worker("dead", BACKOFF)
        self.assertNotIn("dead", await self.inbox.holders())
        self.assertEqual({one.settled for one in dead}, {Status.DEAD_LETTER})
        self.assertEqual(await self.inbox.recover_worker("dead", BACKOFF), [])
        row = await self.inbox.get(dead[0].id)
        assert row is not None
        self.assertIsNone(row.next_attempt_at)

    async def test_what_a_worker_does_not_hold_is_given_back_untried(self) -> None:
        """Only rows of this worker that it does not hold; the former claim is void."""
        await self.inbox.store([received("1", key=1), received("2", key=2), received("3")])
        lost, held = await self.inbox.claim("w", 2)
        await self.inbox.claim("other", 1)
        self.assertEqual(await self.inbox.release_except("w", [held.id]), 1)
        self.assertEqual(await self.inbox.release_except("w", [held.id]), 0)
        (again,) = await self.inbox.claim("w", 50)
        self.assertEqual((again.id, again.attempt_count, again.fence > lost.fence), (lost.id, 0, True))
        self.assertEqual(await self.inbox.settle([ended(lost), ended(held), ended(again)]), [False, True, True])
        self.assertEqual(await self.inbox.release_except("other", []), 1)

    # -- the operator

    async def test_pages(self) -> None:
        """Newest first, exact totals, filters combine."""
        await self.inbox.store([received(f"{n}", message_type=f"ADT_A0{n % 2}") for n in range(5)])
        await self.inbox.store([received("x", tenant="north")])
        page = await self.inbox.page(MessageFilter(), 2, 2)
        self.assertEqual((page.total, [row.source_id for row in page.rows]), (5, ["2", "1"]))
        self.assertIsNone(page.rows[0].raw)
        (claim,) = await self.inbox.claim("w", 1)
        for wanted, found in (
            (MessageFilter(status=Status.TRANSFORMING), ["0"]),
            (MessageFilter(status=Status.RECEIVED, message_type="ADT_A01"), ["3", "1"]),
            (MessageFilter(source_id="4", source_system="LAB"), ["4"]),
            (MessageFilter(correlation_id=claim.correlation_id), ["0"]),
            (MessageFilter(correlation_id="no uuid"), []),
            (MessageFilter(source_system="it's"), []),
            (MessageFilter(tenant="north"), ["x"]),
            (MessageFilter(tenant="*", source_id="x"), ["x"]),
            (MessageFilter(tenant="*", status=Status.TRANSFORMING), ["0"]),
        ):
            page = await self.inbox.page(wanted, 50, 0)
            self.assertEqual((page.total, [row.source_id for row in page.rows]), (len(found), found))

    async def test_what_stands_in_messages(self) -> None:
        """Words, patients, errors and times; they combine."""
        raws = (b"MSH|^~\\&|LAB\rPID|1||12^^^GEN~99||Hansen^Kari", b"MSH|^~\\&|LAB\rPID|1||13^^^GEN||Hansen^Per")
        await self.inbox.store([received("1", raw=raws[0]), received("2", raw=raws[1])])
        (claim,) = await self.inbox.claim("w", 1)
        await self.inbox.settle([failed(claim, 60)])
        later = CLOCK() + timedelta(hours=1)
        for wanted, found in (
            (MessageFilter(text="HANSEN"), ["2", "1"]),
            (MessageFilter(text="hansen kari"), ["1"]),
            (MessageFilter(text="hansen kari", tenant="*"), ["1"]),
            (MessageFilter(text="han* p*", status=Status.RECEIVED), ["2"]),
            (MessageFilter(text="hansen", status=Status.FAILED), ["1"]),
            (MessageFilter(patient="gen|13"), ["2"]),
            (MessageFilter(patient="99", text="per"), []),
            (MessageFilter(error="NO M"), ["1"]),
            (MessageFilter(received_from=later), []),
            (MessageFilter(received_to=later, text="per"), ["2"]),
        ):
            page = await self.inbox.page(wanted, 50, 0)
            self.assertEqual((page.total, [row.source_id for row in page.rows]), (len(found), found), wanted)

    async def test_retry_and_delete(self) -> None:
        """Only in the states of the operation matrix."""
        await self.inbox.store([received("1")])
        (claim,) = await self.inbox.claim("w", 1)
        for operation in (self.inbox.retry, self.inbox.delete):
            refused = await self.assertFailure(operation_of(operation, claim.id), WrongState)
            self.assertIs(refused.current, Status.TRANSFORMING)
            missing = await self.assertFailure(operation_of(operation, 99), Problem)
            self.assertIs(missing.category, Category.NOT_FOUND)
        await self.inbox.settle([failed(claim, 60)])
        await self.assertFailure(operation_of(self.inbox.delete, claim.id), WrongState)
        row = await self.inbox.retry(claim.id)
        self.assertEqual((row.status, row.attempt_count, row.last_error, row.next_attempt_at, row.raw),
                         (Status.RECEIVED, 0, None, None, b"MSH|"))  # fmt: skip
        (claim,) = await self.inbox.claim("w", 1)
        await self.inbox.settle([failed(claim, 0, Status.DEAD_LETTER)])
        await self.inbox.delete(claim.id)
        self.assertIsNone(await self.inbox.get(claim.id))
        self.assertEqual(await self.inbox.store([received("1")]), [Outcome.STORED])


def operation_of(operation, *arguments):  # type: ignore[no-untyped-def]  # any port method
    """The Deferred of a coroutine method."""
    return Deferred.fromCoroutine(operation(*arguments))
