"""The convert stage on in-memory ports: outcomes of messages, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem, StoreUnreachable, WriteConflict
from ipf.pipeline.convert.batches import even_size, next_batch
from ipf.pipeline.convert.convert import Converter, receipt_key
from ipf.pipeline.convert.log_lines import message_fields
from ipf.pipeline.convert.unread_counts import UnreadCounter
from ipf.ports import Backoff, Claimed, Mapped, PermanentErrors, Settlement, Status, UnmappedCode, UnreadField
from ipf.ports.identity import ConflictKind, IdentityConflict, IdentityFinding, IdentityKey
from ipf.rest.write.unit import Unit, UnitResult

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BACKOFF = Backoff(base_ms=1000, factor=2.0, max_ms=300_000, max_attempts=5)


def message(number: int, *, key: int | None = None, kind: str = "ADT_A01", attempts: int = 0) -> Claimed:
    """A claimed message with the fence 100 + `number`."""
    return Claimed(
        id=number,
        fence=100 + number,
        correlation_id=f"00000000-0000-7000-8000-{number:012d}",
        received_at=NOW - timedelta(seconds=1),
        source_system="LAB",
        source_id=f"C{number}",
        message_type=kind,
        raw=b"MSH|",
        charset="utf-8",
        attempt_count=attempts,
        ordering_key=key,
    )


class ScriptedInbox:
    """Returns the given claims and records the settlements."""

    def __init__(self, *batches: Sequence[Claimed]) -> None:
        self.batches = list(batches)
        self.settled: list[Settlement] = []
        self.lost: set[int] = set()
        self.away = 0
        self.unanswered = 0
        self.given_back: list[list[int]] = []

    async def release_except(self, worker: str, held: Sequence[int]) -> int:
        self.given_back.append(list(held))
        return 1

    async def claim(self, worker: str, limit: int) -> list[Claimed]:
        if self.unanswered:
            self.unanswered -= 1
            raise StoreUnreachable
        return list(self.batches.pop(0)) if self.batches else []

    async def settle(self, ends: Sequence[Settlement]) -> list[bool]:
        if self.away:
            self.away -= 1
            raise StoreUnreachable
        self.settled += ends
        return [end.id not in self.lost for end in ends]


class ScriptedMapper:
    """Maps every message to an empty transaction, except the ids in `failing`."""

    def __init__(self, failing: dict[int, Exception] | None = None) -> None:
        self.failing = failing or {}
        self.seen: list[int] = []
        self.unmapped: dict[int, tuple[UnmappedCode, ...]] = {}
        self.unread: tuple[UnreadField, ...] = ()

    def has_map(self, message_type: str) -> bool:
        return True

    async def transform(self, message: Claimed) -> Mapped:
        self.seen.append(message.id)
        if message.id in self.failing:
            raise self.failing[message.id]
        bundle = {"resourceType": "Bundle", "type": "transaction", "entry": []}
        return Mapped(bundle, "urn:ipf:map:ADT_A01", self.unmapped.get(message.id, ()), unread=lambda: self.unread)


class RecordingMetrics:
    """Notifier and metrics in one; records notifications and outcomes."""

    def __init__(self) -> None:
        self.rings: list[str] = []
        self.states: list[tuple[int, Status]] = []
        self.reasons: list[str] = []
        self.permanent: list[str] = []
        self.unclear = 0

    def notify(self, name: str) -> None:
        self.rings.append(name)

    def subscribe(self, name: str, wake: object) -> None:
        raise AssertionError("a stage only rings")

    def transformed(self, outcome: str, seconds: float) -> None: ...
    def posted(self, outcome: str, seconds: float) -> None: ...

    def settled(self, message: Claimed, status: Status, seconds: float) -> None:
        self.states.append((message.id, status))

    def dead_lettered(self, message: Claimed, reason: str) -> None:
        self.reasons.append(reason)

    def match_unclear(self) -> None:
        self.unclear += 1

    def failed_permanently(self, reason: str) -> None:
        self.permanent.append(reason)


class ConvertTests(TestCase):
    def setUp(self) -> None:
        self.submitted: list[list[Unit]] = []
        self.answers: dict[str, UnitResult | Problem] = {}
        self.metrics = RecordingMetrics()
        self.waits = 0
        self.held_up: Deferred[None] | None = None

    async def submit(self, units: Sequence[Unit]) -> list[UnitResult | Problem]:
        self.submitted.append(list(units))
        if self.held_up is not None:
            await self.held_up
        return [self.answers.get(unit.correlation_id, UnitResult()) for unit in units]

    async def nothing(self) -> None:
        self.waits += 1

    def converter(self, inbox: ScriptedInbox, mapper: ScriptedMapper | None = None, **options: object) -> Converter:
        return Converter(
            inbox,  # type: ignore[arg-type]
            mapper or ScriptedMapper(),
            self.submit,
            worker="w",
            backoff=BACKOFF,
            passthrough_types=["ADT_A04"],
            clock=lambda: NOW,
            notifier=self.metrics,
            metrics=self.metrics,
            pause=self.nothing,
            wait=self.nothing,
            **options,  # type: ignore[arg-type]
        )

    async def test_nothing_due(self) -> None:
        self.assertFalse(await self.converter(ScriptedInbox()).step())

    async def test_delivered_with_receipt(self) -> None:
        inbox = ScriptedInbox([message(1)])
        self.assertTrue(await self.converter(inbox).step())
        self.assertEqual([(end.id, end.fence, end.status) for end in inbox.settled], [(1, 101, Status.DELIVERED)])
        self.assertEqual(inbox.settled[0].map_url, "urn:ipf:map:ADT_A01")
        self.assertEqual(self.submitted[0][0].receipt, receipt_key(message(1)))
        self.assertEqual(self.metrics.rings, ["delivery"])

    async def test_unmapped_codes_are_settled_with_their_message(self) -> None:
        """Also when the FHIR store refuses the message, since the code may be the reason."""
        codes = (UnmappedCode("urn:t", "W"),)
        self.answers[message(2).correlation_id] = Problem(Category.INVALID, "no")
        inbox, mapper = ScriptedInbox([message(1), message(2, attempts=4), message(3)]), ScriptedMapper()
        mapper.unmapped = {1: codes, 2: codes}
        await self.converter(inbox, mapper).step()
        self.assertEqual({end.id: end.unmapped for end in inbox.settled}, {1: codes, 2: codes, 3: ()})

    async def test_unread_fields_are_counted_when_a_message_is_settled(self) -> None:
        """Not of a failed attempt, nor of one whose lease is lost; of a further conversion with its message."""
        self.answers[message(2).correlation_id] = Problem(Category.INVALID, "no")
        again = replace(message(4), original_id=1)
        inbox, mapper = ScriptedInbox([message(1), message(2), message(3), again]), ScriptedMapper()
        inbox.lost, mapper.unread = {3}, (UnreadField("unread", "PV1-40"), UnreadField("declared", "PID-1", "set ID"))
        counted: list[tuple[int, int | None, object]] = []
        counter = UnreadCounter(None, None)  # type: ignore[arg-type]  # nothing is stored here
        counter.add = lambda one, found: counted.append((one.id, one.original_id, found))  # type: ignore[method-assign]
        await self.converter(inbox, mapper, unread=counter).step()
        self.assertEqual(counted, [(1, None, mapper.unread), (4, 1, mapper.unread)])

    async def test_replay_has_its_own_receipt(self) -> None:
        """Its log lines name the original message."""
        again = replace(message(9), original_id=1, correlation_id=message(1).correlation_id)
        self.assertNotEqual(receipt_key(again), receipt_key(message(1)))
        self.assertNotEqual(receipt_key(again), receipt_key(replace(again, id=10)))
        self.assertEqual(message_fields(again), {"message_id": 1, "conversion_id": 9})

    async def test_passthrough_is_delivered_without_a_map(self) -> None:
        inbox, mapper = ScriptedInbox([message(1, kind="ADT_A04")]), ScriptedMapper()
        await self.converter(inbox, mapper).step()
        self.assertEqual((mapper.seen, self.submitted), ([], []))
        self.assertEqual((inbox.settled[0].status, inbox.settled[0].error), (Status.DELIVERED, None))

    async def test_vendor_profile_maps_a_passthrough_message(self) -> None:
        """The decision is per message, not per type."""

        async def is_mapped(one: Claimed) -> bool:
            return one.id == 2

        inbox = ScriptedInbox([message(1, kind="ADT_A04"), message(2, kind="ADT_A04"), message(3)])
        mapper, options = ScriptedMapper(), {"is_mapped": is_mapped}
        await self.converter(inbox, mapper, **options).step()  # type: ignore[arg-type]
        self.assertEqual(mapper.seen, [2, 3])
        self.assertEqual([end.status for end in inbox.settled], [Status.DELIVERED] * 3)

    async def test_failure_waits_for_the_backoff(self) -> None:
        for attempts, seconds in [(0, 1), (1, 2), (2, 4), (3, 8)]:
            inbox = ScriptedInbox([message(1, attempts=attempts)])
            await self.converter(inbox, ScriptedMapper({1: Problem(Category.UNMAPPED, "no map")})).step()
            end = inbox.settled[0]
            self.assertEqual((end.status, end.attempt_count), (Status.FAILED, attempts + 1))
            self.assertEqual(end.next_attempt_at, NOW + timedelta(seconds=seconds))
            self.assertIn(f"mapping ADT_A01 of {message(1).source_system} failed: no map. No attempt", end.error or "")
            self.assertTrue(end.permanent)

    async def test_last_failure_makes_a_dead_letter(self) -> None:
        inbox = ScriptedInbox([message(1, attempts=4)])
        self.answers[message(1).correlation_id] = Problem(Category.AMBIGUOUS, "two matches")
        await self.converter(inbox).step()
        end = inbox.settled[0]
        self.assertEqual((end.status, end.attempt_count, end.next_attempt_at), (Status.DEAD_LETTER, 5, None))
        self.assertIn(f"storing ADT_A01 of {message(1).source_system} failed: two matches. No attempt", end.error or "")
        self.assertTrue(end.permanent)
        self.assertEqual(self.metrics.reasons, ["AMBIGUOUS"])

    async def test_permanent_errors(self) -> None:
        """No retry mends a missing map, an unreadable message or a conflict; one may mend what is away."""
        finding = IdentityFinding(ConflictKind.AMBIGUOUS, "Patient", (IdentityKey("urn:s", "MR", "1"),), ("Patient/a",))
        for problem, is_permanent in (
            (Problem(Category.UNMAPPED, "no StructureMap"), True),
            (Problem(Category.MAPPING, "rule 7"), True),
            (Problem(Category.MALFORMED, "MSH-1"), True),
            (Problem(Category.INVALID, "not valid"), True),
            (IdentityConflict(finding, "two match"), True),
            (Problem(Category.UPSTREAM, "no response"), False),
            (Problem(Category.PRECONDITION, "nothing matches yet"), False),
            (Problem(Category.INTERNAL, "unexpected KeyError"), False),
            (StoreUnreachable(), False),
            (WriteConflict(), False),
        ):
            inbox, self.metrics = ScriptedInbox([message(1)]), RecordingMetrics()
            await self.converter(inbox, ScriptedMapper({1: problem})).step()
            (end,) = inbox.settled
            self.assertEqual((end.status, end.permanent), (Status.FAILED, is_permanent), str(problem))
            self.assertEqual("is tried again" in (end.error or ""), not is_permanent)
            self.assertEqual(self.metrics.permanent, [problem.category.name] if is_permanent else [])
            self.assertEqual(end.conflict, finding if isinstance(problem, IdentityConflict) else None)

    async def test_permanent_errors_end_at_the_first_attempt(self) -> None:
        """With IPF_PERMANENT_ERRORS=dead_letter; other errors keep their attempts."""
        inbox = ScriptedInbox([message(1), message(2)])
        mapper = ScriptedMapper({1: Problem(Category.UNMAPPED, "no"), 2: Problem(Category.UPSTREAM, "away")})
        await self.converter(inbox, mapper, permanent=PermanentErrors(dead_letter=True)).step()
        ends = {end.id: (end.status, end.attempt_count, end.next_attempt_at) for end in inbox.settled}
        self.assertEqual(ends[1], (Status.DEAD_LETTER, 1, None))
        self.assertEqual(ends[2], (Status.FAILED, 1, NOW + timedelta(seconds=1)))
        self.assertEqual((self.metrics.reasons, self.metrics.permanent), (["UNMAPPED"], ["UNMAPPED"]))

    async def test_later_messages_pass_a_permanent_error(self) -> None:
        """With IPF_PERMANENT_ERRORS_HOLD=false; an error that a retry mends holds them as before."""
        inbox = ScriptedInbox([message(1, key=7), message(2, key=7), message(3, key=8), message(4, key=8)])
        mapper = ScriptedMapper({1: Problem(Category.MAPPING, "bad"), 3: Problem(Category.UPSTREAM, "away")})
        await self.converter(inbox, mapper, permanent=PermanentErrors(hold=False)).step()
        ends = {end.id: end.status for end in inbox.settled}
        expected = {1: Status.FAILED, 2: Status.DELIVERED, 3: Status.FAILED, 4: Status.RECEIVED}
        self.assertEqual(ends, expected)
        again = ScriptedInbox([replace(message(1, attempts=1), permanent=True), message(5)])
        await self.converter(again, permanent=PermanentErrors(hold=False)).step()
        self.assertEqual({end.id: end.was_passed for end in again.settled}, {1: True, 5: False})

    async def test_failure_does_not_affect_other_messages(self) -> None:
        inbox = ScriptedInbox([message(1), message(2), message(3)])
        self.answers[message(2).correlation_id] = Problem(Category.INVALID, "bad")
        await self.converter(inbox).step()
        self.assertEqual(
            {end.id: end.status for end in inbox.settled},
            {1: Status.DELIVERED, 2: Status.FAILED, 3: Status.DELIVERED},
        )
        self.assertEqual(len(self.submitted), 1)

    async def test_unexpected_exception_is_a_failed_attempt(self) -> None:
        inbox = ScriptedInbox([message(1), message(2)])
        await self.converter(inbox, ScriptedMapper({1: KeyError("PID")})).step()
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)
        self.assertEqual({end.id: end.status for end in inbox.settled}, {1: Status.FAILED, 2: Status.DELIVERED})

    async def test_messages_of_one_patient_are_in_separate_batches(self) -> None:
        inbox = ScriptedInbox([message(1, key=7), message(2, key=7), message(3, key=8)])
        await self.converter(inbox).step()
        waves = [[unit.correlation_id[-1] for unit in batch] for batch in self.submitted]
        self.assertEqual(waves, [["1", "3"], ["2"]])

    async def test_later_messages_of_a_failed_patient_are_released_untried(self) -> None:
        inbox, mapper = (
            ScriptedInbox([message(1, key=7), message(2, key=7), message(3, key=8), message(4, key=8)]),
            ScriptedMapper({1: Problem(Category.MAPPING, "bad")}),
        )
        await self.converter(inbox, mapper).step()
        self.assertEqual(mapper.seen, [1, 3, 4])
        ends = {end.id: (end.status, end.attempt_count) for end in inbox.settled}
        self.assertEqual(ends[1], (Status.FAILED, 1))
        self.assertEqual(ends[2], (Status.RECEIVED, 0))
        self.assertEqual((ends[3][0], ends[4][0]), (Status.DELIVERED, Status.DELIVERED))

    async def test_an_unclear_match_is_counted_and_logged(self) -> None:
        """The message is stored; the line has its number and no data of a patient."""
        lines: list[str] = []

        def note(event: LogEvent) -> None:
            lines.append(formatEvent(event))

        globalLogPublisher.addObserver(note)
        self.addCleanup(globalLogPublisher.removeObserver, note)
        text = "Bundle.entry[3]: 2 resources of type Practitioner match; the newest is used"
        self.answers[message(1).correlation_id] = UnitResult(warnings=(("Practitioner", text),))
        inbox = ScriptedInbox([message(1)])
        await self.converter(inbox).step()
        self.assertEqual([end.status for end in inbox.settled], [Status.DELIVERED])
        self.assertEqual(self.metrics.unclear, 1)
        (line,) = [one for one in lines if "event=match_unclear" in one]
        self.assertIn(text, line)

    async def test_stop_releases_messages_not_started(self) -> None:
        inbox = ScriptedInbox([message(1), message(2)])
        converter = self.converter(inbox)
        converter.stop()
        await converter.step()
        self.assertEqual({end.status for end in inbox.settled}, {Status.RECEIVED})

    async def test_settling_waits_for_an_unreachable_store(self) -> None:
        inbox = ScriptedInbox([message(1)])
        inbox.away = 3
        await self.converter(inbox).step()
        self.assertEqual(inbox.settled[0].status, Status.DELIVERED)
        self.assertEqual(self.waits, 3 + 1)  # three times for the store, once for the reactor after the mapping

    async def test_lost_claim_is_released_before_the_next(self) -> None:
        """Messages of other batches stay claimed."""
        inbox = ScriptedInbox([message(1)], [message(2)])
        converter = self.converter(inbox)
        answered: Deferred[None] = Deferred()
        self.held_up = answered
        first = Deferred.fromCoroutine(converter.step())
        inbox.unanswered = 1
        await self.assertFailure(Deferred.fromCoroutine(converter.step()), StoreUnreachable)
        second = Deferred.fromCoroutine(converter.step())
        self.assertEqual(inbox.given_back, [[1]])
        answered.callback(None)
        await first
        await second
        await converter.step()
        self.assertEqual((len(inbox.given_back), [end.id for end in inbox.settled]), (1, [1, 2]))

    async def test_lost_lease_is_not_counted(self) -> None:
        inbox = ScriptedInbox([message(1)])
        inbox.lost = {1}
        await self.converter(inbox).step()
        self.assertEqual(self.metrics.states, [])


class BatchTests(TestCase):
    def test_table(self) -> None:
        one, two, three, free = message(1, key=7), message(2, key=7), message(3, key=8), message(4)
        for waiting, size, batch, rest in [
            ([], 4, [], []),
            ([one, two, three], 4, [1, 3], [2]),
            ([one, two, three], 1, [1], [2, 3]),
            ([free, free, free], 2, [4, 4], [4]),
        ]:
            found = next_batch(waiting, size)
            self.assertEqual(([m.id for m in found[0]], [m.id for m in found[1]]), (batch, rest))

    def test_long_messages_share_no_batch(self) -> None:
        """The first message is taken whatever its length; the others keep their order."""
        short = replace(message(1), raw=b"x" * 30_000)
        long = replace(message(2, key=7), raw=b"x" * 90_000)
        behind = message(3, key=7)
        for waiting, ids, left in [
            ([short, short, short, short], [1, 1, 1], [1]),
            ([long, short, behind], [2], [1, 3]),
            ([short, long, behind], [1], [2, 3]),
            ([replace(long, raw=b"x" * 900_000), short], [2], [1]),
            ([message(4, key=7), long, replace(short, id=5)], [4, 5], [2]),  # what waits for its key takes no room
        ]:
            batch, rest = next_batch(waiting, 50)
            self.assertEqual(([one.id for one in batch], [one.id for one in rest]), (ids, left))

    def test_batches_have_even_sizes(self) -> None:
        table = {(50, 16): 13, (48, 16): 16, (17, 16): 9, (16, 16): 16, (1, 16): 1, (0, 16): 0, (3, 1): 1}
        self.assertEqual({asked: even_size(*asked) for asked in table}, table)
