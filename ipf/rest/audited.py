"""What the FHIR server tells the audit trail: of every request, and of every converted message.

Source: interface specification "FHIR AuditEvent resources".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ipf.errors import Problem
from ipf.ports import Answer, Clock, Request
from ipf.ports.aside import LARGE, Aside, here
from ipf.ports.audit import FHIR, Audit, Later, Trail
from ipf.rest.unit import Outcome, Unit, UnitResult
from ipf.security.audit import AuditRules, NewId, patients_of, record, recorded, written

if TYPE_CHECKING:  # a converter process is audited; it has no router, and judges nothing unless it is told to
    from ipf.rest.judged import Submit
    from ipf.rest.router import Observe

log = Logger()

_SMALL = 32 * 1024  # bytes of a body that may be kept for the moment until its record is made
_NOT_WRITTEN = (Outcome.FOUND, Outcome.UNCHANGED)


def observer(
    rules: AuditRules, trail: Trail, clock: Clock, new_id: NewId, aside: Aside = here, later: Later | None = None
) -> Observe:
    """Notes requests by the rules.  Whatever goes wrong here is a line in the log and never the request's fault.

    `aside`: where the many resources of a large Bundle are looked through.  `later`: who makes records of small
    answers, many at a time; None = each is made at once.
    """

    async def note_aside(make: Callable[[], Audit], correlation_id: str) -> None:
        try:
            trail(await aside(make))
        except Exception:
            log.failure("event=audit_not_written", correlation_id=correlation_id)

    def observe(request: Request, answer: Answer, began: datetime) -> None:
        try:
            make = recorded(request, answer, rules, began, clock(), new_id)
            if make is None:
                return
            if later is not None and len(answer.body) <= _SMALL and len(request.body) <= _SMALL:
                later(make)
            elif len(answer.about) >= LARGE:
                Deferred.fromCoroutine(note_aside(make, request.correlation_id))
            else:
                trail(make())
        except Exception:
            log.failure("event=audit_not_written", correlation_id=request.correlation_id)

    return observe


def audited(submit: Submit, trail: Trail, clock: Clock, new_id: NewId) -> Submit:
    """`submit` for converted messages: each that was stored, or refused, is a transaction of its caller."""

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
            return  # told of when it was done
        else:
            status = 200
            ends = (end for end in result.entries if end.outcome not in _NOT_WRITTEN)
            versions = [end.version for end in ends if end.version is not None]
        trail(record(
            unit.tenant, unit.caller, new_id(), began, ended,
            surface=FHIR, interaction="transaction", action="E", status=status, correlation_id=unit.correlation_id,
            entities=written(versions), patients=patients_of(versions), origin=unit.origin,
        ))  # fmt: skip

    return store
