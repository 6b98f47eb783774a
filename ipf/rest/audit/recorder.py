"""Audit records of FHIR requests, websocket bindings and converted messages.

Source: interface specification "FHIR AuditEvent resources".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ipf.errors import Problem
from ipf.ports import Answer, AuditBinding, BindingAttempt, Clock, Request
from ipf.ports.audit.records import ADMIN, FHIR, MOST_ENTITIES, Audit, AuditSink, millisecond_of
from ipf.ports.audit_exchange import Exchange, ExchangeSink
from ipf.ports.threads import LARGE, RunInThread, run_inline
from ipf.rest.audit.break_glass_audit import break_glass_records
from ipf.rest.write.transaction_audit import written_versions
from ipf.rest.write.unit import Submit, Unit, UnitResult
from ipf.security.audit import records as audit_records
from ipf.security.audit.draft import ConversionDraft, Count, RequestDraft
from ipf.security.audit.rules import AuditRules, ContextCache, NewIdSuffix, clean, context_of, is_plain, record

if TYPE_CHECKING:  # a converter process has no router
    from ipf.rest.http.exchange import Observe

log = Logger()

_SMALL = 32 * 1024  # bytes of a body that may be held until its record is made
_ID = re.compile(r"[A-Za-z0-9.-]{1,64}")


def observer(
    rules: AuditRules,
    trail: AuditSink,
    milliseconds: Callable[[], int],
    new_id_suffix: NewIdSuffix,
    run_in_thread: RunInThread = run_inline,
    later: ExchangeSink | None = None,
) -> Observe:
    """Records requests by the rules.  A failure here is logged and never fails the request.

    `milliseconds`: now, since 1970.  `run_in_thread`: runs the search for patients in large Bundles.  `later`: takes
    exchanges with small bodies, whose records are made in batches; None = every record is made at once.
    """

    unrecorded = rules.unrecorded()

    def note_all(made: list[Audit]) -> None:
        for one in made:
            trail(one)

    async def note_in_thread(make: Callable[[], list[Audit]], correlation_id: str) -> None:
        try:
            note_all(await run_in_thread(make))
        except Exception:
            log.failure("event=audit_not_written", correlation_id=correlation_id)

    def note(request: Request, answer: Answer, began: float) -> None:
        if later is not None and len(answer.body) <= _SMALL and len(request.body) <= _SMALL:
            later((request, answer, perf_counter() - began, milliseconds()))
            return
        context = ContextCache(rules).of(request, answer.status)
        if context is None:
            return
        seconds, ended = perf_counter() - began, milliseconds()
        make = partial(audit_records.records_of, request, answer, seconds, ended, new_id_suffix, context)
        if len(answer.about) >= LARGE:
            Deferred.fromCoroutine(note_in_thread(make, request.correlation_id))
        else:
            note_all(make())

    def observe(request: Request, answer: Answer, began: float) -> None:
        _note_break_glass(request, answer, began, rules, trail, milliseconds, new_id_suffix)
        path = request.path
        if len(path) in unrecorded and request.method == "GET" and answer.status < 400 and is_plain(path):
            return
        try:
            shown, failures = _left(request, answer, milliseconds())
            note_all(failures)
            if shown is not None:
                note(request, shown, began)
        except Exception:
            log.failure("event=audit_not_written", correlation_id=request.correlation_id)

    return observe


def _note_break_glass(
    request: Request,
    answer: Answer,
    began: float,
    rules: AuditRules,
    trail: AuditSink,
    milliseconds: Callable[[], int],
    new_id_suffix: NewIdSuffix,
) -> None:
    """The records of a request that lifts labels and Consents, whatever the rules record."""
    if not request.caller.break_glass:
        return
    try:
        seconds, ended = perf_counter() - began, milliseconds()
        for one in break_glass_records(rules, request, answer, seconds, ended, new_id_suffix):
            trail(one)
    except Exception:
        log.failure("event=audit_not_written", correlation_id=request.correlation_id)


def _left(request: Request, answer: Answer, ended: int) -> tuple[Answer | None, list[Audit]]:
    """What no committed record has, None for nothing; and the records of failed entries of a batch."""
    draft = request.draft
    if not isinstance(draft, RequestDraft):
        return answer, []
    return draft.left(answer), draft.failure_records(ended)


def records_of(rules: AuditRules, new_id_suffix: NewIdSuffix, exchanges: Sequence[Exchange]) -> list[Audit]:
    """The records of these exchanges; `ports.audit.records.MakeRecords` once the first two arguments are given."""
    made: list[Audit] = []
    contexts = ContextCache(rules)
    for request, answer, seconds, ended in exchanges:
        try:
            context = contexts.of(request, answer.status)
            if context is not None:
                made += audit_records.records_of(request, answer, seconds, ended, new_id_suffix, context)
        except Exception:
            log.failure("event=audit_not_written", correlation_id=request.correlation_id)
    return made


def binding_recorder(rules: AuditRules, trail: AuditSink, clock: Clock, new_id_suffix: NewIdSuffix) -> AuditBinding:
    """Records every attempt of a client to bind itself to Subscriptions over a websocket, also when reads are not
    recorded.  The entities are the Subscriptions that were bound or refused."""

    def note(one: BindingAttempt) -> None:
        try:
            session = one.session
            surface = ADMIN if rules.has_no_tenant(session.caller) else FHIR
            context = context_of(session.tenant, session.caller, surface, "operation", "E", one.status, one.address)
            known = [id for id in one.subscriptions[:MOST_ENTITIES] if _ID.fullmatch(id)]
            entities = tuple([f"Subscription/{id}" for id in known])
            trail(record(context, new_id_suffix(), one.began, clock(), one.correlation_id, clean(one.what), entities))
        except Exception:
            log.failure("event=audit_not_written", correlation_id=one.correlation_id)

    return note


def audited(
    submit: Submit,
    trail: AuditSink,
    clock: Clock,
    new_id_suffix: NewIdSuffix,
    count: Count = lambda outcome, count: None,
) -> Submit:
    """`submit` for converted messages; each message that is stored or refused is recorded as a transaction.

    A message that is stored is recorded in the transaction that stores it; `trail` takes what could not be written
    there, and the messages that are refused.
    """

    async def store(units: Sequence[Unit]) -> list[UnitResult | Problem]:
        drafts = []
        for unit in units:
            drafts.append(ConversionDraft(
                unit.tenant, unit.caller, unit.correlation_id, unit.origin, perf_counter(), new_id_suffix, count
            ))  # fmt: skip
            unit.draft = drafts[-1]
        results = await submit(units)
        ended = millisecond_of(clock())
        for draft, result in zip(drafts, results, strict=True):
            try:
                _note(draft, result, ended)
            except Exception:
                log.failure("event=audit_not_written", correlation_id=draft.correlation_id)
        return results

    def _note(draft: ConversionDraft, result: UnitResult | Problem, ended: int) -> None:
        if isinstance(result, Problem):
            made = draft.records(result.rendering.http_status, (), ended)
        elif result.already_done or draft.is_stored:
            return  # recorded when it was done
        else:
            made = draft.records(200, written_versions(result), ended)
        for one in made:
            trail(one)

    return store
