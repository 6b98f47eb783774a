"""The convert stage: a stored message becomes FHIR resources.

What arrives: rows of the inbox that are due.  `claim` commits them as TRANSFORMING before anything else happens.
What leaves: one FHIR transaction a message, with a receipt key, and the row settled: DELIVERED, or FAILED with the time
of the next attempt, or DEAD_LETTER.
What survives a crash: everything.  Before the FHIR commit nothing happened, and stale recovery gives the row back;
after it the receipt makes the repeated conversion change nothing.

Messages of one ordering key (a patient) never overtake each other: of each key at most one message is in a *wave*, and
when it fails the later ones of the key are handed back untried.  A wave is mapped and then stored in one database
transaction, in which every message still succeeds or fails for itself.

Sources: interface specification "Ingested message" (states), "Log events"; decisions section 4.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from time import perf_counter
from typing import Protocol

from constantly import NamedConstant
from twisted.internet.defer import DeferredLock
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure as Failed

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.pipeline.convert.batches import BESIDE_SENDERS, BatchPolicy, even, next_wave
from ipf.pipeline.convert.log_lines import report_end, row_of
from ipf.ports import (
    Backoff,
    Claimed,
    Clock,
    Inbox,
    Mapped,
    Mapper,
    Notifier,
    Settlement,
    Status,
    UnmappedCode,
)
from ipf.rest.interactions.bundle_entries import entries_in
from ipf.rest.write.unit import Unit, UnitResult
from ipf.telemetry.logs import event_line

log = Logger(namespace="ipf.convert")

MAPPING_STAGE = "matchbox"  # the specification's names of the two stages, whoever plays the part
FHIR_STAGE = "hapi"


class Submit(Protocol):
    """Stores FHIR transactions: one result or Problem a unit, in order."""

    async def __call__(self, units: Sequence[Unit]) -> list[UnitResult | Problem]:
        """StoreUnreachable when nothing is known to be stored."""


class ConversionMetrics(Protocol):
    """Where the stage counts.  `outcome` is success or failure; durations are seconds."""

    def transformed(self, outcome: str, seconds: float) -> None:
        """One mapping call."""

    def posted(self, outcome: str, seconds: float) -> None:
        """One FHIR transaction (a message's share of its wave)."""

    def settled(self, message: Claimed, status: Status, seconds: float) -> None:
        """A row reached a state, so long after its receipt."""

    def dead_lettered(self, reason: str) -> None:
        """`reason`: the name of the failure's category, or stale."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed, and in which stage; and the codes that no table had, when it was mapped at all."""

    stage: str
    problem: Problem
    unmapped: tuple[UnmappedCode, ...] = ()

    @property
    def text(self) -> str:
        """What goes into `last_error`: the stage's name, then the reason."""
        return f"{self.stage}: {self.problem}"


@dataclass(slots=True)
class Attempt:
    """A mapped message on its way into the FHIR store."""

    message: Claimed
    mapped: Mapped
    unit: Unit
    transform_ms: float


class Converter:
    """Claims, maps, stores, settles.  One instance serves any number of workers of one process."""

    def __init__(
        self,
        inbox: Inbox,
        mapper: Mapper,
        submit: Submit,
        *,
        worker: str,
        backoff: Backoff,
        passthrough_types: Iterable[str],
        clock: Clock,
        notifier: Notifier,
        meter: ConversionMetrics,
        pause: Callable[[], Awaitable[object]],
        wait: Callable[[], Awaitable[object]],
        batch_size: int = 50,
        pace: BatchPolicy = BESIDE_SENDERS,
        dlq_level: NamedConstant = LogLevel.warn,
        is_mapped: Callable[[Claimed], Awaitable[bool]] | None = None,
    ) -> None:
        """`is_mapped`: whether a vendor profile takes a message of `passthrough_types` out of that branch."""
        self._inbox = inbox
        self._mapper = mapper
        self._submit = submit
        self._worker = worker
        self._backoff = backoff
        self._passthrough = frozenset(passthrough_types)
        self._clock = clock
        self._notifier = notifier
        self._meter = meter
        self._pause = pause
        self._wait = wait
        self._batch_size = batch_size
        self._wave_size = pace.wave
        self._dlq_level = dlq_level
        self._is_mapped = is_mapped
        self._held: dict[int, Claimed] = {}
        self._reasons: dict[int, str] = {}
        self._stopping = False
        self._gate = DeferredLock()
        self._is_doubtful = False

    async def step(self) -> bool:
        """Claim one batch and bring every message of it to an end; False when nothing was due."""
        claims = await self._claim()
        waiting = list(claims)
        size = even(len(claims), self._wave_size)
        try:
            while waiting and not self._stopping:
                wave, waiting = next_wave(waiting, size)
                failed_keys = await self._convert_wave(wave)
                waiting = await self._hand_back(waiting, failed_keys)
            await self._hand_back(waiting, None)
        finally:
            for claim in claims:
                self._held.pop(claim.id, None)
        return bool(claims)

    async def _claim(self) -> Sequence[Claimed]:
        """The next batch.  First, what a claim took whose answer never came goes back, and does not wait to be stale.

        One at a time, since nothing else tells a claim that was lost from one that is under way.
        """
        await self._gate.acquire()
        try:
            if self._is_doubtful:
                lost = await self._inbox.give_back(self._worker, list(self._held))
                if lost:
                    log.warn("{count} messages are claimed again: the answer to their claim was lost", count=lost)
            self._is_doubtful = True
            claims = await self._inbox.claim(self._worker, self._batch_size)
            self._is_doubtful = False
            self._held.update((claim.id, claim) for claim in claims)
            return claims
        finally:
            self._gate.release()

    def stop(self) -> None:
        """Hand back what is claimed and not begun; `step` then ends early."""
        self._stopping = True

    async def renew(self) -> None:
        """Put off staleness of what is held; called every third of the stale time."""
        if self._held:
            await self._inbox.renew(list(self._held.values()))

    async def _convert_wave(self, wave: Sequence[Claimed]) -> set[int | None]:
        """Convert and settle; the ordering keys of the messages that failed."""
        ends: list[Settlement] = []
        attempts: list[Attempt] = []
        failures: list[tuple[Claimed, Failure]] = []
        for message in wave:
            if message.message_type in self._passthrough and not (self._is_mapped and await self._is_mapped(message)):
                ends.append(self._pass_through(message))
                continue
            outcome = await self._map(message)
            if isinstance(outcome, Attempt):
                attempts.append(outcome)
            else:
                failures.append((message, outcome))
            await self._pause()
        ends += await self._store(attempts, failures)
        ends += [self._failed(message, failure) for message, failure in failures]
        await self._settle(wave, ends)
        return {message.ordering_key for message, _ in failures}

    def _pass_through(self, message: Claimed) -> Settlement:
        log.info(
            event_line(
                "passthrough",
                message_id=message.id,
                message_type=message.message_type,
                source_id=message.source_id,
                source_system=message.source_system,
            ),
            correlation_id=message.correlation_id,
        )
        return Settlement(message.id, message.fence, Status.DELIVERED, message.attempt_count)

    async def _map(self, message: Claimed) -> Attempt | Failure:
        began = perf_counter()
        try:
            mapped = await self._mapper.transform(message)
            unit = Unit(
                message.tenant,
                entries_in(mapped),
                message.correlation_id,
                receipt_key(message),
                references=mapped.references,
                origin=mapped.origin,
            )
        except Exception as error:
            self._meter.transformed("failure", perf_counter() - began)
            return Failure(MAPPING_STAGE, as_problem(error, message.correlation_id))
        seconds = perf_counter() - began
        self._meter.transformed("success", seconds)
        line = event_line(
            "transformed", **row_of(message), map_url=mapped.map_url, duration_ms=round(seconds * 1000, 2)
        )
        log.info(line, correlation_id=message.correlation_id)
        return Attempt(message, mapped, unit, seconds * 1000)

    async def _store(self, attempts: Sequence[Attempt], failures: list[tuple[Claimed, Failure]]) -> list[Settlement]:
        if not attempts:
            return []
        began = perf_counter()
        try:
            results = await self._submit([attempt.unit for attempt in attempts])
        except Exception as error:
            results = [as_problem(error, attempts[0].message.correlation_id)] * len(attempts)
        share = (perf_counter() - began) / len(attempts)
        ends = []
        for attempt, result in zip(attempts, results, strict=True):
            if isinstance(result, Problem):
                self._meter.posted("failure", share)
                failures.append((attempt.message, Failure(FHIR_STAGE, result, attempt.mapped.unmapped)))
            else:
                self._meter.posted("success", share)
                ends.append(self._stored(attempt))
        if ends:
            self._notifier.notify("delivery")
        return ends

    def _stored(self, attempt: Attempt) -> Settlement:
        message = attempt.message
        return Settlement(
            message.id,
            message.fence,
            Status.DELIVERED,
            message.attempt_count,
            map_url=attempt.mapped.map_url,
            transform_ms=attempt.transform_ms,
            unmapped=attempt.mapped.unmapped,
        )

    def _failed(self, message: Claimed, failure: Failure) -> Settlement:
        """One attempt more: FAILED with the time of the next, or DEAD_LETTER when the budget is used up."""
        count = message.attempt_count + 1
        self._reasons[message.id] = failure.problem.category.name
        if count >= self._backoff.max_attempts:
            end = Settlement(message.id, message.fence, Status.DEAD_LETTER, count, failure.text)
            return replace(end, unmapped=failure.unmapped)
        due = self._clock() + timedelta(milliseconds=self._backoff.delay_ms(count))
        return Settlement(message.id, message.fence, Status.FAILED, count, failure.text, due)

    async def _hand_back(self, waiting: Sequence[Claimed], failed_keys: set[int | None] | None) -> list[Claimed]:
        """Give back untried what must wait for a failed one of its key (None: all); the rest is returned."""
        held = (failed_keys or set()) - {None}
        back = [message for message in waiting if failed_keys is None or message.ordering_key in held]
        if back:
            ends = [Settlement(m.id, m.fence, Status.RECEIVED, m.attempt_count) for m in back]
            await self._settle(back, ends)
        gone = {message.id for message in back}
        return [message for message in waiting if message.id not in gone]

    async def _settle(self, wave: Sequence[Claimed], ends: Sequence[Settlement]) -> None:
        """Write the ends, however long the store is away; what was lost meanwhile is another's, and only said."""
        kept = await self._settled(ends)
        by_id = {message.id: message for message in wave}
        for end, held in zip(ends, kept, strict=True):
            self._held.pop(end.id, None)
            self._report(by_id[end.id], end, held)

    async def _settled(self, ends: Sequence[Settlement]) -> list[bool]:
        while True:
            try:
                return await self._inbox.settle(ends)
            except StoreUnreachable:
                if self._stopping:
                    raise
                await self._wait()

    def _report(self, message: Claimed, end: Settlement, held: bool) -> None:
        reason = self._reasons.pop(message.id, "")
        if not held:
            log.warn(event_line("lease_lost", message_id=message.id), correlation_id=message.correlation_id)
            return
        if end.status is Status.RECEIVED:
            return
        age = (self._clock() - message.received_at).total_seconds()
        self._meter.settled(message, end.status, age)
        if end.status is Status.DEAD_LETTER:
            self._meter.dead_lettered(reason)
        report_end(message, end, self._backoff, self._dlq_level)


def receipt_key(message: Claimed) -> str:
    """Names this conversion in the FHIR database, also if the inbox is ever created anew with the same row numbers."""
    key = f"message/{message.correlation_id}"
    return key if message.original_id is None else f"{key}/conversion/{message.id}"


def as_problem(error: Exception, correlation_id: str) -> Problem:
    """A Problem as it is; anything else is a fault of ours: logged with its trace, and a failed attempt like others.

    So a message that trips over a fault dead-letters after its budget, instead of coming back for ever.
    """
    if isinstance(error, Problem):
        return error
    failed = Failed(error)
    log.failure("a conversion failed unexpectedly", failed, correlation_id=correlation_id)
    return Problem(Category.INTERNAL, f"unexpected {type(error).__name__}")
