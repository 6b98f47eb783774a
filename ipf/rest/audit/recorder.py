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
from ipf.ports.audit_exchange import MOST_WEIGHT, Exchange, ExchangeSink, weight_of
from ipf.ports.threads import LARGE, RunInThread, run_inline, yield_to_reactor
from ipf.rest.audit.break_glass_audit import break_glass_records
from ipf.rest.write.transaction_audit import written_versions
from ipf.rest.write.unit import Submit, Unit, UnitResult
from ipf.security.audit import records as audit_records
from ipf.security.audit.draft import ConversionDraft, Count, RequestDraft
from ipf.security.audit.rules import AuditRules, ContextCache, NewIdSuffix, clean, context_of, is_plain, record
from ipf.security.audit.target import asked_of

if TYPE_CHECKING:  # a converter process has no router
    from ipf.rest.http.exchange import Observe

log = Logger()

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

    `milliseconds`: now, since 1970.  `run_in_thread`: makes the records of large exchanges.  `later`: takes small
    exchanges, whose records are made in batches; None = their records are made at once.  What strangers cause is made
    at once as well: it is small, whatever they send.
    """

    unrecorded = rules.unrecorded()

    async def note_in_thread(exchange: Exchange) -> None:
        try:
            made = await run_in_thread(partial(records_of, rules, new_id_suffix, (exchange,)))
            for first in range(0, len(made), LARGE):
                note_all(made[first : first + LARGE])
                await yield_to_reactor(run_in_thread)
        except Exception:
            log.failure("event=audit_not_written", correlation_id=exchange[0].correlation_id)

    def note_all(made: Sequence[Audit]) -> None:
        for one in made:
            trail(one)

    def observe(request: Request, answer: Answer, began: float) -> None:
        path, caller = request.path, request.caller
        is_passed_over = len(path) in unrecorded and request.method == "GET" and answer.status < 400 and is_plain(path)
        if is_passed_over and not caller.break_glass:
            return
        try:
            exchange = request, answer, perf_counter() - began, milliseconds()
            is_small = weight_of(exchange) <= MOST_WEIGHT and len(answer.about) < LARGE
            if is_small and later is not None:
                later(exchange)
            elif is_small or (answer.status >= 400 and caller.is_unknown):
                note_all(records_of(rules, new_id_suffix, (exchange,)))
            else:
                Deferred.fromCoroutine(note_in_thread(exchange))
        except Exception:
            log.failure("event=audit_not_written", correlation_id=request.correlation_id)

    return observe


def records_of(rules: AuditRules, new_id_suffix: NewIdSuffix, exchanges: Sequence[Exchange]) -> list[Audit]:
    """The records of these exchanges; `ports.audit.records.MakeRecords` once the first two arguments are given."""
    made: list[Audit] = []
    contexts = ContextCache(rules)
    for exchange in exchanges:
        try:
            made += _records_of(rules, new_id_suffix, contexts, exchange)
        except Exception:
            log.failure("event=audit_not_written", correlation_id=exchange[0].correlation_id)
    return made


def _records_of(
    rules: AuditRules, new_id_suffix: NewIdSuffix, contexts: ContextCache, exchange: Exchange
) -> list[Audit]:
    """The records that no transaction has committed; those of a request that lifts labels and Consents always."""
    request, answer, seconds, ended = exchange
    draft = request.draft if isinstance(request.draft, RequestDraft) else None
    asked = None if draft is None else draft.asked
    made: list[Audit] = []
    if request.caller.break_glass:
        asked = asked or asked_of(request)
        made += break_glass_records(rules, request, answer, seconds, ended, new_id_suffix, asked)
    shown = answer if draft is None else draft.left(answer)
    if draft is not None:
        made += draft.failure_records(ended)
    context = None if shown is None else contexts.of(request, shown.status)
    if shown is not None and context is not None:
        made += audit_records.records_of(request, shown, seconds, ended, new_id_suffix, context, asked)
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
