"""The contract of `ports.IdentityConflicts`, and of what `ports.Inbox.settle` writes to the review queue."""

from __future__ import annotations

from dataclasses import replace

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.ports import Claimed, Inbox, Settlement, Status, UnmappedCodes
from ipf.ports.identity import (
    AnswerKind,
    ConflictFilter,
    ConflictKind,
    ConflictRow,
    ConflictStatus,
    IdentityConflicts,
    IdentityFinding,
    IdentityKey,
    Released,
)
from tests.contracts.inbox import ended, failed, operation_of, received

FIRST = IdentityKey("urn:it's \\", "MR", "4|711")
FINDING = IdentityFinding(
    ConflictKind.AMBIGUOUS, "Patient", (FIRST, IdentityKey("urn:ssn", "SS", "")), ("Patient/a", "Patient/b"), None,
    "Bundle.entry[2]",
)  # fmt: skip


def conflicting(claim: Claimed, finding: IdentityFinding = FINDING, status: Status = Status.FAILED) -> Settlement:
    """A failed attempt that is due again in ten minutes, with this finding."""
    return replace(failed(claim, 600, status), permanent=True, conflict=finding)


class ConflictsContract(TestCase):
    """Tests for a subclass that sets `inbox`, `codes` and `conflicts` in `setUp`."""

    inbox: Inbox
    codes: UnmappedCodes
    conflicts: IdentityConflicts

    async def claims(self, *names: str, key: int | None = 5, **other: str) -> list[Claimed]:
        """Store messages of one patient and claim all that are due."""
        await self.inbox.store([received(name, key=key, **other) for name in names])
        return await self.inbox.claim("w", 50)

    async def rows(self, **wanted: object) -> list[ConflictRow]:
        """All rows of a filter; the total agrees."""
        total, rows = await self.conflicts.conflicts(ConflictFilter(**wanted), 50, 0)  # type: ignore[arg-type]
        self.assertEqual(total, len(rows))
        return list(rows)

    async def again(self) -> list[tuple[str, int | None]]:
        """Names of the messages that are due now, and the message that each converts again."""
        return [(claim.source_id, claim.original_id) for claim in await self.inbox.claim("w", 50)]

    async def converted(self) -> list[tuple[str, int | None]]:
        """The same for all messages that come due when each is delivered."""
        done: list[tuple[str, int | None]] = []
        while claims := await self.inbox.claim("w", 50):
            await self.inbox.settle([ended(claim) for claim in claims])
            done += [(claim.source_id, claim.original_id) for claim in claims]
        return done

    # -- what settle writes

    async def test_a_finding_with_its_message(self) -> None:
        """Every field comes back, texts with quotes and separators of other syntaxes included."""
        (claim,) = await self.claims("1", message_type="ORU_R01")
        self.assertEqual(await self.inbox.settle([conflicting(claim)]), [True])
        (row,) = await self.rows()
        self.assertEqual(row.finding, FINDING)
        self.assertEqual(
            (
                row.message_id,
                row.correlation_id,
                row.source_system,
                row.source_id,
                row.message_type,
                row.message_status,
            ),
            (claim.id, claim.correlation_id, "LAB", "1", "ORU_R01", "FAILED"),
        )
        self.assertEqual((row.status, row.conversion_id, row.tenant), (ConflictStatus.OPEN, None, "default"))
        self.assertEqual((row.answer, row.target, row.answered_by, row.answered_at), (None, None, None, None))
        self.assertEqual(await self.conflicts.conflict(row.id), row)
        self.assertIsNone(await self.conflicts.conflict(row.id + 1))
        self.assertEqual(await self.conflicts.open_count(), 1)

    async def test_a_finding_without_place_and_keys(self) -> None:
        (claim,) = await self.claims("1")
        bare = IdentityFinding(ConflictKind.SUBJECT, "Encounter", (), (), "Patient/a")
        await self.inbox.settle([conflicting(claim, bare)])
        (row,) = await self.rows()
        self.assertEqual(row.finding, bare)

    async def test_one_open_row_of_a_message(self) -> None:
        """A further attempt refreshes it, at another place replaces it; delivery closes what is left."""
        (claim,) = await self.claims("1")
        await self.inbox.settle([replace(conflicting(claim), next_attempt_at=None)])
        (first,) = await self.rows()
        (claim,) = await self.inbox.claim("w", 1)
        changed = replace(FINDING, candidates=("Patient/c", "Patient/d"))
        await self.inbox.settle([replace(conflicting(claim, changed), next_attempt_at=None)])
        (row,) = await self.rows()
        self.assertEqual((row.id, row.finding, row.status), (first.id, changed, ConflictStatus.OPEN))
        self.assertGreaterEqual(row.detected_at, first.detected_at)
        (claim,) = await self.inbox.claim("w", 1)
        other = replace(FINDING, place="Bundle.entry[7]")
        await self.inbox.settle([replace(conflicting(claim, other), next_attempt_at=None)])
        self.assertEqual([(one.finding, one.status) for one in await self.rows()],
                         [(other, ConflictStatus.OPEN), (changed, ConflictStatus.CLOSED)])  # fmt: skip
        (claim,) = await self.inbox.claim("w", 1)
        await self.inbox.settle([ended(claim)])
        self.assertEqual({one.status for one in await self.rows()}, {ConflictStatus.CLOSED})
        self.assertEqual(await self.conflicts.open_count(), 0)

    async def test_a_match_that_was_made(self) -> None:
        """Its row is closed from the start, and does not replace the answered conflict of the same entry."""
        (claim,) = await self.claims("1")
        await self.inbox.settle([conflicting(claim)])
        (before,) = await self.rows()
        await self.conflicts.answer(before.id, AnswerKind.TAKE, "Patient/a", "admin token")
        (claim,) = await self.inbox.claim("w", 1)
        made = replace(FINDING, kind=ConflictKind.DIFFERENCE)
        await self.inbox.settle([replace(ended(claim), conflict=made)])
        found = {one.finding.kind: one for one in await self.rows()}
        self.assertEqual({one.status for one in found.values()}, {ConflictStatus.CLOSED})
        self.assertEqual((found[FINDING.kind].answer, found[FINDING.kind].finding), (AnswerKind.TAKE, FINDING))
        self.assertEqual((found[made.kind].answer, found[made.kind].finding), (None, made))
        self.assertEqual(await self.conflicts.open_count(), 0)

    async def test_a_lost_lease_writes_nothing(self) -> None:
        (claim,) = await self.claims("1")
        self.assertEqual(await self.inbox.settle([conflicting(replace(claim, fence=claim.fence + 1))]), [False])
        self.assertEqual(await self.rows(), [])

    async def test_deleted_with_its_message(self) -> None:
        (claim,) = await self.claims("1")
        await self.inbox.settle([conflicting(claim, status=Status.DEAD_LETTER)])
        await self.inbox.delete(claim.id)
        self.assertEqual((await self.rows(), await self.conflicts.open_count()), ([], 0))

    # -- the list

    async def test_filters(self) -> None:
        """They combine; a list shows one tenant, or all."""
        one, two = await self.claims("1", "2", key=None)
        await self.inbox.store([received("3", system="RIS"), received("4", tenant="north")])
        three, four = await self.inbox.claim("w", 50)
        await self.inbox.settle([
            conflicting(one), conflicting(two, replace(FINDING, resource_type="Encounter")), conflicting(three),
            conflicting(four),
        ])  # fmt: skip
        for wanted, found in (
            ({}, {"1", "2", "3"}),
            ({"source_system": "RIS"}, {"3"}),
            ({"resource_type": "Encounter"}, {"2"}),
            ({"resource_type": "Encounter", "source_system": "RIS"}, set()),
            ({"message_id": one.id, "status": ConflictStatus.OPEN}, {"1"}),
            ({"status": ConflictStatus.CLOSED}, set()),
            ({"tenant": "north"}, {"4"}),
            ({"tenant": "*"}, {"1", "2", "3", "4"}),
        ):
            self.assertEqual({row.source_id for row in await self.rows(**wanted)}, found, wanted)
        total, page = await self.conflicts.conflicts(ConflictFilter(tenant="*"), 1, 3)
        self.assertEqual((total, [row.source_id for row in page]), (4, ["1"]))

    # -- answers

    async def test_an_answer_releases_in_order(self) -> None:
        """All messages that it decides, whatever state they failed in; what waits behind them follows."""
        first, second, third, fourth = await self.claims("1", "2", "3", "4")
        await self.inbox.settle([
            conflicting(first), conflicting(second, status=Status.DEAD_LETTER), ended(third, Status.RECEIVED),
            ended(fourth, Status.RECEIVED),
        ])  # fmt: skip
        await self.inbox.store([received("other", key=6)])
        (other,) = await self.inbox.claim("w", 50)
        await self.inbox.settle([conflicting(other, replace(FINDING, keys=(IdentityKey("urn:x", "MR", "1"),)))])
        self.assertEqual(await self.again(), [])
        number = next(row.id for row in await self.rows() if row.message_id == second.id)
        released = await self.conflicts.answer(number, AnswerKind.TAKE, "Patient/a", "admin token")
        self.assertEqual(released, Released(retried=2, converted_again=0))
        rows = {row.source_id: row for row in await self.rows()}
        statuses = {name: row.status for name, row in rows.items()}
        self.assertEqual((statuses["1"], statuses["2"]), (ConflictStatus.ANSWERED,) * 2)
        self.assertIs(statuses["other"], ConflictStatus.OPEN)
        shown = (rows["1"].answer, rows["1"].target, rows["1"].answered_by)
        self.assertEqual(shown, (AnswerKind.TAKE, "Patient/a", "admin token"))
        self.assertIsNotNone(rows["1"].answered_at)
        row = await self.inbox.get(second.id)
        assert row is not None
        self.assertEqual(
            (row.status, row.attempt_count, row.last_error, row.permanent), (Status.RECEIVED, 0, None, False)
        )
        self.assertEqual([name for name, _ in await self.converted()], ["1", "2", "3", "4"])

    async def test_what_was_converted_meanwhile_is_converted_again(self) -> None:
        """Behind a dead letter, in order of the messages: the newest data is written last."""
        first, second, third, fourth = await self.claims("1", "2", "3", "4")
        await self.inbox.settle([
            conflicting(first, status=Status.DEAD_LETTER), ended(second), conflicting(third, status=Status.DEAD_LETTER),
        ])  # fmt: skip
        (row, _) = await self.rows()
        released = await self.conflicts.answer(row.id, AnswerKind.APART, "Patient/new", "admin")
        self.assertEqual(released, Released(retried=2, converted_again=3))
        self.assertEqual(await self.converted(), [("1", None), ("3", None)])
        await self.inbox.settle([ended(fourth)])
        expected = [("2", second.id), ("3", third.id), ("4", fourth.id)]
        self.assertEqual(await self.converted(), expected)

    async def test_a_conversion_again_conflicts_too(self) -> None:
        """Its row names message and conversion; the answer releases it."""
        first, second = await self.claims("1", "2")
        await self.inbox.settle([conflicting(first, status=Status.DEAD_LETTER), ended(second)])
        (row,) = await self.rows()
        await self.conflicts.answer(row.id, AnswerKind.TAKE, "Patient/a", "admin")
        once, again = await self.inbox.claim("w", 50)
        self.assertEqual((once.id, again.original_id), (first.id, second.id))
        await self.inbox.settle([ended(once), conflicting(again)])
        (conflict,) = await self.rows(status=ConflictStatus.OPEN)
        self.assertEqual((conflict.message_id, conflict.conversion_id), (second.id, again.id))
        _, (conversion,) = await self.codes.conversions("default", second.id, None, 50, 0)
        shown = (conversion.permanent, conversion.reason, conversion.last_error)
        self.assertEqual(shown, (True, f"identity-conflict/{row.id}", "no map"))
        await self.conflicts.answer(conflict.id, AnswerKind.TAKE, "Patient/b", "admin")
        self.assertEqual(await self.again(), [("2", second.id)])

    async def test_a_merge_decides_every_conflict_of_its_candidates(self) -> None:
        """Whatever key found them; another answer decides its own key only."""
        one, two = await self.claims("1", "2", key=None)
        by_other_key = replace(FINDING, keys=(IdentityKey("urn:x", "MR", "1"),))
        await self.inbox.settle([conflicting(one), conflicting(two, by_other_key)])
        number = next(row.id for row in await self.rows() if row.message_id == one.id)
        await self.conflicts.answer(number, AnswerKind.TAKE, "Patient/a", "admin")
        self.assertEqual(await self.conflicts.open_count(), 1)
        await self.conflicts.answer(number, AnswerKind.MERGE, "Patient/a", "admin")
        self.assertEqual(await self.conflicts.open_count(), 0)

    async def test_an_answer_that_does_not_help(self) -> None:
        """The next attempt opens the row again."""
        (claim,) = await self.claims("1")
        await self.inbox.settle([conflicting(claim)])
        (row,) = await self.rows()
        await self.conflicts.answer(row.id, AnswerKind.TAKE, "Patient/a", "admin")
        (claim,) = await self.inbox.claim("w", 50)
        await self.inbox.settle([conflicting(claim)])
        (again,) = await self.rows()
        self.assertEqual((again.id, again.status, again.answer), (row.id, ConflictStatus.OPEN, None))

    async def test_refusals(self) -> None:
        """An unknown row; one whose message is delivered."""
        (claim,) = await self.claims("1")
        await self.inbox.settle([replace(conflicting(claim), next_attempt_at=None)])
        (row,) = await self.rows()
        (claim,) = await self.inbox.claim("w", 50)
        await self.inbox.settle([ended(claim)])
        for number, category in ((row.id, Category.CONFLICT), (99, Category.NOT_FOUND)):
            answering = operation_of(self.conflicts.answer, number, AnswerKind.TAKE, "Patient/a", "admin")
            self.assertIs((await self.assertFailure(answering, Problem)).category, category)
