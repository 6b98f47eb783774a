"""One message that fails at any step, in a way that nobody foresaw: the others of its batch go their way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.pipeline.convert.convert import Converter
from ipf.pipeline.convert.isolation import UNWRITABLE
from ipf.ports import Claimed, Mapped, Settlement, Status, UnmappedCode
from ipf.rest.write.unit import Unit, UnitResult
from tests.pipeline.convert.test_convert import BACKOFF, NOW, RecordingMetrics, ScriptedInbox, ScriptedMapper, message

BAD = 2
PATIENT = "Hansen"


class Inbox(ScriptedInbox):
    """Refuses settlements of the bad message, those with codes alone or (`refuses_all`) every one."""

    refuses_codes = refuses_all = False

    async def settle(self, ends: Sequence[Settlement]) -> list[bool]:
        for end in ends:
            if end.id == BAD and (self.refuses_all or (self.refuses_codes and end.unmapped)):
                raise Problem(Category.INTERNAL, "the row is refused")
        return await super().settle(ends)


class OneBadMessageTests(TestCase):
    def setUp(self) -> None:
        self.metrics = RecordingMetrics()
        self.inbox = Inbox([message(number, kind="ADT_A04" if number == 5 else "ADT_A01") for number in range(1, 6)])
        self.mapper = ScriptedMapper()
        self.options: dict[str, Any] = {}
        self.bad_unit = False

    async def submit(self, units: Sequence[Unit]) -> list[UnitResult | Problem]:
        if self.bad_unit and any(one.correlation_id == message(BAD).correlation_id for one in units):
            raise KeyError(PATIENT)
        return [UnitResult() for _ in units]

    async def nothing(self) -> None: ...

    async def converted(self, logged: int = 1) -> dict[int, Settlement]:
        """The settlements by id; so many failures were logged."""
        inbox: Any = self.inbox
        stage = Converter(
            inbox, self.mapper, self.submit, worker="w", backoff=BACKOFF, passthrough_types=["ADT_A04"],
            clock=lambda: NOW, notifier=self.metrics, metrics=self.metrics, pause=self.nothing, wait=self.nothing,
            **self.options,
        )  # fmt: skip
        self.assertTrue(await stage.step())
        self.assertEqual(len(self.flushLoggedErrors()), logged)
        found = {end.id: end for end in self.inbox.settled}
        others = {id: end.status for id, end in found.items() if id != BAD}
        self.assertEqual(others, dict.fromkeys((1, 3, 4, 5), Status.DELIVERED))
        self.assertNotIn(PATIENT, str(self.inbox.settled))
        return found

    async def test_the_mapper_fails(self) -> None:
        self.mapper.failing = {BAD: RecursionError(PATIENT)}
        self.assertRegex(
            str((await self.converted())[BAD].error),
            r"^mapping .* failed: unexpected RecursionError\. It is tried again",
        )

    async def test_the_profile_fails(self) -> None:
        async def is_mapped(one: Claimed) -> bool:
            raise KeyError(PATIENT) if one.id == BAD else AssertionError

        self.inbox.batches = [[message(BAD, kind="ADT_A04"), message(1), message(3), message(4), message(5)]]
        self.options = {"is_mapped": is_mapped}
        self.assertRegex(
            str((await self.converted())[BAD].error), r"^mapping .* failed: unexpected KeyError\. It is tried again"
        )

    async def test_validation_fails(self) -> None:
        async def validate(one: Claimed, mapped: Mapped) -> Problem | None:
            if one.id == BAD:
                raise KeyError(PATIENT)
            return None

        self.options = {"validate": validate}
        self.assertRegex(
            str((await self.converted())[BAD].error), r"^storing .* failed: unexpected KeyError\. It is tried again"
        )

    async def test_the_store_of_resources_fails(self) -> None:
        self.bad_unit = True
        self.assertRegex(
            str((await self.converted())[BAD].error), r"^storing .* failed: unexpected KeyError\. It is tried again"
        )

    async def test_its_end_cannot_be_written(self) -> None:
        """Without its codes it can."""
        self.inbox.refuses_codes = True
        self.mapper.unmapped = {BAD: (UnmappedCode("urn:x", "1"),)}
        bad = (await self.converted())[BAD]
        self.assertEqual((bad.status, bad.unmapped), (Status.DELIVERED, ()))

    async def test_the_end_of_a_failure_cannot_be_written(self) -> None:
        self.inbox.refuses_codes = True
        self.mapper.unmapped = {BAD: (UnmappedCode("urn:x", "1"),)}
        self.bad_unit = True
        self.inbox.batches[0][1].attempt_count = BACKOFF.max_attempts - 1
        bad = (await self.converted(logged=2))[BAD]
        self.assertEqual((bad.status, bad.error), (Status.DEAD_LETTER, f"{UNWRITABLE}the row is refused"))

    async def test_no_end_can_be_written(self) -> None:
        """Stale recovery counts it."""
        self.inbox.refuses_all = True
        self.assertNotIn(BAD, await self.converted(logged=2))

    async def test_its_report_fails(self) -> None:
        """Unread fields, metrics and log lines, after it is settled."""
        settled = self.metrics.settled

        def failing(one: Claimed, status: Status, seconds: float) -> None:
            if one.id == BAD:
                raise ValueError(PATIENT)
            settled(one, status, seconds)

        self.metrics.settled = failing  # type: ignore[method-assign]
        self.assertEqual((await self.converted())[BAD].status, Status.DELIVERED)
        self.assertEqual([id for id, _ in self.metrics.states], [5, 1, 3, 4])
