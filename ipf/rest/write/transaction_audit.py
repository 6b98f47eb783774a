"""The audit records of one database transaction, made of its plan and committed with it.

Units of one operation (the entries of a batch, the pieces of a merge) share a draft, and so the records of their
transaction.  Records that the store cannot write fail nothing: they are logged, and the draft stores them outside of
the transaction.

Source: interface specification "FHIR AuditEvent resources", rules 1 and 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from twisted.logger import Logger

from ipf.fhir.model.json import dumps
from ipf.ports import Change, Version
from ipf.ports.audit.records import Audit
from ipf.ports.audit_draft import AuditDraft
from ipf.rest.write.plan import Plan
from ipf.rest.write.prefetch import PreparedUnit
from ipf.rest.write.unit import Outcome, UnitResult

log = Logger()

_NOT_WRITTEN = (Outcome.FOUND, Outcome.UNCHANGED)


@dataclass(slots=True)
class Drafted:
    """What one operation wrote in this transaction.  `count`: its records."""

    draft: AuditDraft
    status: int
    versions: list[Version] = field(default_factory=list)
    count: int = 0


class TransactionAudit:
    """The operations of one transaction that have records."""

    def __init__(self, prepared_units: Sequence[PreparedUnit], plan: Plan) -> None:
        found: dict[int, Drafted] = {}
        for prepared, result in zip(prepared_units, plan.results, strict=True):
            unit, draft = prepared.unit, prepared.unit.draft
            if draft is None or not isinstance(result, UnitResult) or result.already_done:
                continue
            status = result.entries[0].status if len(result.entries) == 1 and not unit.is_conversion else 200
            drafted = found.setdefault(id(draft), Drafted(draft, status))
            drafted.versions += written_versions(result) if unit.is_conversion else _versions(result)
        self._drafted = [one for one in found.values() if one.versions or one.draft.records_nothing_written]
        self._deleted = {}
        if any(version.deleted for one in self._drafted for version in one.versions):
            self._deleted = {id(change.version): change for change in plan.changes if change.version.deleted}

    def records(self, ended: int) -> list[Audit]:
        """The records; those that cannot be made are left to the drafts."""
        made: list[Audit] = []
        for one in self._drafted:
            try:
                own = one.draft.records(one.status, [self._with_body(version) for version in one.versions], ended)
            except Exception:
                log.failure("event=audit_not_written")
                continue
            one.count = len(own)
            made += own
        return made

    def _with_body(self, version: Version) -> Version:
        """A deletion with what it deleted, which names the patient."""
        change: Change | None = self._deleted.get(id(version))
        previous = change.previous if change is not None else None
        return version if previous is None else replace(version, body=dumps(previous))

    def ended(self, refused: str) -> None:
        """The transaction is committed; `refused`: why its records are not."""
        count = sum(one.count for one in self._drafted)
        if refused and count:
            log.warn("event=audit_not_written count={count} reason={reason}",
                     event="audit_not_written", count=count, reason=refused)  # fmt: skip
        for one in self._drafted:
            if refused or not one.count:
                one.draft.deferred(one.count)
            else:
                one.draft.committed(one.versions, one.count)


def written_versions(result: UnitResult) -> list[Version]:
    """The versions that a unit wrote."""
    ends = (*result.entries, *result.ended)
    return [end.version for end in ends if end.version is not None and end.outcome not in _NOT_WRITTEN]


def _versions(result: UnitResult) -> list[Version]:
    """The versions that a unit wrote or found."""
    return [end.version for end in result.entries if end.version is not None]
