"""Audit records of FHIR requests, websocket bindings and converted messages.

Source: interface specification "FHIR AuditEvent resources".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ipf.errors import Problem
from ipf.ports import Answer, AuditBinding, BindingAttempt, Clock, Request
from ipf.ports.audit import ADMIN, FHIR, MOST_ENTITIES, Audit, AuditSink, Exchange, ExchangeSink
from ipf.ports.threads import LARGE, RunInThread, run_inline
from ipf.rest.write.unit import Outcome, Submit, Unit, UnitResult
from ipf.security.audit import (
    AuditRules,
    ContextCache,
    NewIdSuffix,
    audit_of,
    clean,
    context_of,
    is_plain,
    patients_of,
    record,
    written,
)

if TYPE_CHECKING:  # a converter process has no router
    from ipf.rest.http.exchange import Observe

log = Logger()

_SMALL = 32 * 1024  # bytes of a body that may be held until its record is made
_ID = re.compile(r"[A-Za-z0-9.-]{1,64}")
_NOT_WRITTEN = (Outcome.FOUND, Outcome.UNCHANGED)


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

    async def note_in_thread(make: Callable[[], Audit], correlation_id: str) -> None:
        try:
            trail(await run_in_thread(make))
        except Exception:
            log.failure("event=audit_not_written", correlation_id=correlation_id)

    def observe(request: Request, answer: Answer, began: float) -> None:
        path = request.path
        if len(path) in unrecorded and request.method == "GET" and answer.status < 400 and is_plain(path):
            return
        try:
            if later is not None and len(answer.body) <= _SMALL and len(request.body) <= _SMALL:
                later((request, answer, perf_counter() - began, milliseconds()))
                return
            context = ContextCache(rules).of(request, answer.status)
            if context is None:
                return
            make = partial(audit_of, request, answer, perf_counter() - began, milliseconds(), new_id_suffix(), context)
            if len(answer.about) >= LARGE:
                Deferred.fromCoroutine(note_in_thread(make, request.correlation_id))
            else:
                trail(make())
        except Exception:
            log.failure("event=audit_not_written", correlation_id=request.correlation_id)

    return observe


def records_of(rules: AuditRules, new_id_suffix: NewIdSuffix, exchanges: Sequence[Exchange]) -> list[Audit]:
    """The records of these exchanges; `ports.audit.MakeRecords` once the first two arguments are given."""
    made, contexts = [], ContextCache(rules)
    for request, answer, seconds, ended in exchanges:
        try:
            context = contexts.of(request, answer.status)
            if context is not None:
                made.append(audit_of(request, answer, seconds, ended, new_id_suffix(), context))
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


def audited(submit: Submit, trail: AuditSink, clock: Clock, new_id_suffix: NewIdSuffix) -> Submit:
    """`submit` for converted messages; each message that is stored or refused is recorded as a transaction."""

    async def store(units: Sequence[Unit]) -> list[UnitResult | Problem]:
        began = clock()
        results = await submit(units)
        ended = clock()
        for unit, result in zip(units, results, strict=True):
            try:
                _note(unit, result, began, ended)
            except Exception:
                log.failure("event=audit_not_written", correlation_id=unit.correlation_id)
        return results

    def _note(unit: Unit, result: UnitResult | Problem, began: datetime, ended: datetime) -> None:
        if isinstance(result, Problem):
            status, versions = result.rendering.http_status, []
        elif result.already_done:
            return  # recorded when it was done
        else:
            status = 200
            ends = (end for end in result.entries if end.outcome not in _NOT_WRITTEN)
            versions = [end.version for end in ends if end.version is not None]
        trail(record(
            context_of(unit.tenant, unit.caller, FHIR, "transaction", "E", status), new_id_suffix(), began, ended,
            unit.correlation_id, "", written(versions), patients_of(versions), unit.origin,
        ))  # fmt: skip

    return store
