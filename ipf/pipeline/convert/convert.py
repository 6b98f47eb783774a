"""The convert stage: a stored message becomes FHIR resources.

Input: due rows of the inbox.  `claim` commits them as TRANSFORMING first.
Output: one FHIR transaction per message, with a receipt key, and the settled row: DELIVERED, FAILED with the time of
the next attempt, or DEAD_LETTER.
Crash: before the FHIR commit nothing has happened, and stale recovery releases the row; after it, the receipt makes a
repeated conversion a no-op.

Messages of one ordering key (a patient) stay in order: a batch has at most one message of each key, and when it fails,
later messages of the key are released untried.  A batch is mapped and then stored in one database transaction, in which
each message succeeds or fails individually.

Sources: interface specification "Ingested message" (states), "Log events"; decisions section 4.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from time import perf_counter
from typing import Protocol

from constantly import NamedConstant
from twisted.internet.defer import CancelledError, DeferredLock
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure as Failed

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.pipeline.convert.batches import SHARED_PROCESS, BatchPolicy, even_size, next_batch
from ipf.pipeline.convert.failures import FHIR_STAGE, MAPPING_STAGE, Failure
from ipf.pipeline.convert.isolation import settled, submitted
from ipf.pipeline.convert.log_lines import map_fields, message_fields, report_end, report_warning
from ipf.pipeline.convert.unread_counts import UnreadCounter
from ipf.ports import (
    Backoff,
    Claimed,
    Clock,
    Inbox,
    Mapped,
    Mapper,
    Notifier,
    PermanentErrors,
    Settlement,
    Status,
    UnreadField,
)
from ipf.ports.identity import IdentityConflict, IdentityFinding
from ipf.ports.messages.inbox import PASSTHROUGH_SETTING
from ipf.rest.interactions.bundle_entries import entries_in
from ipf.rest.write.unit import Submit, Unit
from ipf.telemetry.logs import event_line

log = Logger(namespace="ipf.convert")


class ConversionMetrics(Protocol):
    """Metrics of the stage.  `outcome` is success or failure; durations are in seconds."""

    def transformed(self, outcome: str, seconds: float) -> None:
        """A mapping call has ended."""

    def posted(self, outcome: str, seconds: float) -> None:
        """A FHIR transaction has ended; `seconds`: the message's share of its batch."""

    def settled(self, message: Claimed, status: Status, seconds: float) -> None:
        """A row reached `status`, `seconds` after its receipt."""

    def dead_lettered(self, message: Claimed, reason: str) -> None:
        """A row became a dead letter.  `reason`: the category of the failure, or stale."""

    def match_unclear(self) -> None:
        """It was not clear which resource a stored message mentions: a practitioner, an order of a result."""

    def failed_permanently(self, reason: str) -> None:
        """An attempt ended with an error that no retry mends.  `reason`: its category."""


@dataclass(slots=True)
class MappedMessage:
    """A mapped message, to be stored."""

    message: Claimed
    mapped: Mapped
    unit: Unit
    transform_ms: float


class Converter:
    """Claims, maps, stores and settles messages.  All workers of a process share one instance."""

    def __init__(
        self,
        inbox: Inbox,
        mapper: Mapper,
        submit: Submit,
        *,
        worker: str,
        backoff: Backoff,
        permanent: PermanentErrors = PermanentErrors(),  # noqa: B008  # frozen
        passthrough_types: Iterable[str],
        clock: Clock,
        notifier: Notifier,
        metrics: ConversionMetrics,
        pause: Callable[[], Awaitable[object]],
        wait: Callable[[], Awaitable[object]],
        claim_size: int = 50,
        policy: BatchPolicy = SHARED_PROCESS,
        dlq_level: NamedConstant = LogLevel.warn,
        is_mapped: Callable[[Claimed], Awaitable[bool]] | None = None,
        validate: Callable[[Claimed, Mapped], Awaitable[Problem | None]] | None = None,
        unread: UnreadCounter | None = None,
    ) -> None:
        """`is_mapped`: whether a vendor profile maps a message of `passthrough_types`.  `validate`: the Problem of a
        message whose resources must not be stored; None: every message may be stored.  `unread`: counts the fields
        that conversions did not take over."""
        self._inbox = inbox
        self._mapper = mapper
        self._submit = submit
        self._worker = worker
        self._backoff = backoff
        self._permanent = permanent
        self._passthrough = frozenset(passthrough_types)
        self._clock = clock
        self._notifier = notifier
        self._metrics = metrics
        self._yield_to_reactor = pause
        self._wait_for_store = wait
        self._claim_size = claim_size
        self._max_batch_size = policy.max_messages
        self._dlq_level = dlq_level
        self._is_mapped = is_mapped
        self._validate = validate
        self._claimed: dict[tuple[int, int], Claimed] = {}  # by id and fence: another runner may claim it again
        self._unread_counter = unread
        self._unread: dict[int, Callable[[], Sequence[UnreadField]]] = {}
        self._failures: dict[int, Failure] = {}
        self._stopping = False
        self._claim_lock = DeferredLock()
        self._claim_in_doubt = False

    async def step(self) -> bool:
        """Claim messages and settle every one of them; False when nothing was due."""
        claims = await self._claim()
        waiting = list(claims)
        size = even_size(len(claims), self._max_batch_size)
        try:
            while waiting and not self._stopping:
                batch, waiting = next_batch(waiting, size)
                failed_keys = await self._convert_batch(batch)
                waiting = await self._release(waiting, failed_keys)
            await self._release(waiting, None)
        except CancelledError:  # the stop exceeded its time limit: what is not settled is no failed attempt
            await self._release([claim for claim in claims if (claim.id, claim.fence) in self._claimed], None)
            raise
        finally:
            for claim in claims:
                self._claimed.pop((claim.id, claim.fence), None)
        return bool(claims)

    async def _claim(self) -> Sequence[Claimed]:
        """Claim due messages.  When the result of the previous claim was lost, release its rows first.

        Claims run one at a time, because a lost claim cannot be told from one in progress.
        """
        await self._claim_lock.acquire()
        try:
            if self._claim_in_doubt:
                lost = await self._inbox.release_except(self._worker, [id for id, _ in self._claimed])
                if lost:
                    log.warn("{count} messages are released: the result of their claim was lost", count=lost)
            self._claim_in_doubt = True
            claims = await self._inbox.claim(self._worker, self._claim_size)
            self._claim_in_doubt = False
            self._claimed.update(((claim.id, claim.fence), claim) for claim in claims)
            return claims
        finally:
            self._claim_lock.release()

    def stop(self) -> None:
        """Release claimed messages that are not started; `step` then ends early."""
        self._stopping = True

    async def renew(self) -> None:
        """Renew the claims; called at every third of the stale timeout."""
        if self._claimed:
            await self._inbox.renew(list(self._claimed.values()))

    async def _convert_batch(self, batch: Sequence[Claimed]) -> set[int | None]:
        """Convert and settle a batch; the ordering keys of failed messages that hold back later ones."""
        settlements: list[Settlement] = []
        mapped_messages: list[MappedMessage] = []
        failures: list[tuple[Claimed, Failure]] = []
        for message in batch:
            outcome = await self._taken(message)
            if isinstance(outcome, MappedMessage):
                mapped_messages.append(outcome)
            elif isinstance(outcome, Settlement):
                settlements.append(outcome)
                continue
            else:
                failures.append((message, outcome))
            await self._yield_to_reactor()
        settlements += await self._store(mapped_messages, failures)
        settlements += [self._failure_settlement(message, failure) for message, failure in failures]
        await self._settle(batch, settlements)
        return {message.ordering_key for message, failure in failures if self._holds(failure)}

    async def _taken(self, message: Claimed) -> MappedMessage | Settlement | Failure:
        """The message mapped, or passed through; or its failure, whatever it is."""
        try:
            is_passed = message.message_type in self._passthrough
            if is_passed and not (self._is_mapped and await self._is_mapped(message)):
                return self._pass_through(message)
        except Exception as error:
            self._raise_if_stopped(error)
            return Failure(MAPPING_STAGE, problem_of(error, message.correlation_id))
        return await self._map(message)

    def _holds(self, failure: Failure) -> bool:
        return self._permanent.hold or not failure.problem.is_permanent

    def _raise_if_stopped(self, error: Exception) -> None:
        if self._stopping and isinstance(error, CancelledError):
            raise error

    def _pass_through(self, message: Claimed) -> Settlement:
        log.info(
            event_line(
                "passthrough",
                message_id=message.id,
                message_type=message.message_type,
                source_id=message.source_id,
                source_system=message.source_system,
                setting=PASSTHROUGH_SETTING,
            ),
            correlation_id=message.correlation_id,
        )
        return Settlement(message.id, message.fence, Status.DELIVERED, message.attempt_count)

    async def _map(self, message: Claimed) -> MappedMessage | Failure:
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
            self._raise_if_stopped(error)
            self._metrics.transformed("failure", perf_counter() - began)
            return Failure(MAPPING_STAGE, problem_of(error, message.correlation_id))
        seconds = perf_counter() - began
        self._metrics.transformed("success", seconds)
        ran = message_fields(message) | map_fields(mapped.canonical)
        line = event_line("transformed", **ran, duration_ms=round(seconds * 1000, 2))
        log.info(line, correlation_id=message.correlation_id)
        return await self._validated(MappedMessage(message, mapped, unit, seconds * 1000))

    async def _validated(self, mapped: MappedMessage) -> MappedMessage | Failure:
        """The message, or its failure when its resources must not be stored."""
        if self._validate is None:
            return mapped
        try:
            problem = await self._validate(mapped.message, mapped.mapped)
        except Exception as error:
            self._raise_if_stopped(error)
            problem = problem_of(error, mapped.message.correlation_id)
        return mapped if problem is None else Failure(FHIR_STAGE, problem, mapped.mapped.unmapped)

    async def _store(
        self, mapped_messages: Sequence[MappedMessage], failures: list[tuple[Claimed, Failure]]
    ) -> list[Settlement]:
        if not mapped_messages:
            return []
        began = perf_counter()
        results = await submitted(self._submit, [one.unit for one in mapped_messages], self._problem_of)
        share = (perf_counter() - began) / len(mapped_messages)
        settlements = []
        for mapped_message, result in zip(mapped_messages, results, strict=True):
            if isinstance(result, Problem):
                self._metrics.posted("failure", share)
                failures.append((mapped_message.message, Failure(FHIR_STAGE, result, mapped_message.mapped.unmapped)))
            else:
                self._metrics.posted("success", share)
                settlements.append(self._success_settlement(mapped_message, result.differences))
                for _, text in result.warnings:
                    self._metrics.match_unclear()
                    report_warning(mapped_message.message, text)
        if settlements:
            self._notifier.notify("delivery")
        return settlements

    def _problem_of(self, error: Exception, correlation_id: str) -> Problem:
        self._raise_if_stopped(error)
        return problem_of(error, correlation_id)

    def _success_settlement(self, mapped_message: MappedMessage, differences: Sequence[IdentityFinding]) -> Settlement:
        message = mapped_message.message
        self._unread[message.id] = mapped_message.mapped.unread
        return Settlement(
            message.id,
            message.fence,
            Status.DELIVERED,
            message.attempt_count,
            map_url=mapped_message.mapped.canonical,
            transform_ms=mapped_message.transform_ms,
            unmapped=mapped_message.mapped.unmapped,
            was_passed=message.permanent and not self._permanent.hold,
            conflict=next(iter(differences), None),
        )

    def _failure_settlement(self, message: Claimed, failure: Failure) -> Settlement:
        """FAILED with the time of the next attempt, or DEAD_LETTER after the last one."""
        problem, count = failure.problem, message.attempt_count + 1
        self._failures[message.id] = failure
        is_last = count >= self._backoff.max_attempts or (problem.is_permanent and self._permanent.dead_letter)
        settlement = Settlement(
            message.id,
            message.fence,
            Status.DEAD_LETTER,
            count,
            failure.text(message, is_last=is_last),
            permanent=problem.is_permanent,
            conflict=problem.finding if isinstance(problem, IdentityConflict) else None,
        )
        if is_last:
            return replace(settlement, unmapped=failure.unmapped)
        due = self._clock() + timedelta(milliseconds=self._backoff.delay_ms(count))
        return replace(settlement, status=Status.FAILED, next_attempt_at=due)

    async def _release(self, waiting: Sequence[Claimed], failed_keys: set[int | None] | None) -> list[Claimed]:
        """Release untried messages with a failed ordering key (None: all); the remaining messages."""
        failed = (failed_keys or set()) - {None}
        released = [message for message in waiting if failed_keys is None or message.ordering_key in failed]
        if released:
            settlements = [
                Settlement(claim.id, claim.fence, Status.RECEIVED, claim.attempt_count) for claim in released
            ]
            await self._settle(released, settlements)
        released_ids = {message.id for message in released}
        return [message for message in waiting if message.id not in released_ids]

    async def _settle(self, batch: Sequence[Claimed], settlements: Sequence[Settlement]) -> None:
        """Write the settlements, waiting for the store when necessary; a lost lease is logged."""
        kept = await self._settled(settlements)
        by_id = {message.id: message for message in batch}
        for settlement, is_kept in zip(settlements, kept, strict=True):
            self._claimed.pop((settlement.id, settlement.fence), None)
            message = by_id[settlement.id]
            try:
                self._report(message, settlement, is_kept)
            except Exception:  # it is settled: the others are reported, and the next batch is taken
                log.failure("a message was not reported", correlation_id=message.correlation_id)

    async def _settled(self, settlements: Sequence[Settlement]) -> list[bool]:
        while True:
            try:
                return await settled(self._inbox.settle, settlements)
            except StoreUnreachable:
                if self._stopping:
                    raise
                await self._wait_for_store()

    def _report(self, message: Claimed, settlement: Settlement, is_kept: bool) -> None:
        failure, unread = self._failures.pop(message.id, None), self._unread.pop(message.id, None)
        if not is_kept:
            log.warn(event_line("lease_lost", message_id=message.id), correlation_id=message.correlation_id)
            return
        if settlement.status is Status.RECEIVED:
            return
        age = (self._clock() - message.received_at).total_seconds()
        self._metrics.settled(message, settlement.status, age)
        reason = "" if failure is None else failure.problem.category.name
        if settlement.permanent:
            self._metrics.failed_permanently(reason)
        if settlement.status is Status.DEAD_LETTER:
            self._metrics.dead_lettered(message, reason)
        if unread is not None and self._unread_counter is not None:
            self._unread_counter.add(message, unread())
        report_end(message, settlement, self._backoff, self._dlq_level, "" if failure is None else failure.stage)


def receipt_key(message: Claimed) -> str:
    """Key of this conversion in the FHIR database; unique also when a new inbox repeats the row ids."""
    key = f"message/{message.correlation_id}"
    return key if message.original_id is None else f"{key}/conversion/{message.id}"


def problem_of(error: Exception, correlation_id: str) -> Problem:
    """The error as a Problem.  Any other exception is logged with its traceback and counts as a failed attempt.

    A message that triggers a bug therefore becomes a dead letter after its last attempt instead of repeating for ever.
    """
    if isinstance(error, Problem):
        return error
    failed = Failed(error)
    log.failure("a conversion failed unexpectedly", failed, correlation_id=correlation_id)
    return Problem(Category.INTERNAL, f"unexpected {type(error).__name__}")
