"""Drafts of audit records: what is known of an operation before it writes (`ports.audit_draft.AuditDraft`).

The records are made by `rest/write/commit` from what the plan writes, and are committed with it.  What the end of the
operation leaves to record outside of the transaction is what no committed record has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from ipf.ports import Answer, Caller, Request, Version
from ipf.ports.audit.records import FHIR, Audit
from ipf.ports.audit_draft import AuditDraft
from ipf.ports.messages.mapping import Origin
from ipf.security.audit.records import Operation, detailed, operation_records, records_of
from ipf.security.audit.rules import LONGEST_TARGET, AuditRules, NewIdSuffix, action_of, context_of, interaction_of
from ipf.security.audit.target import Asked, asked_of

Key = tuple[str, str, int]

NewDraft = Callable[[Request, float], AuditDraft | None]
"""Returns the draft of a request that may write, which began at this `perf_counter`; None: it has no record."""

Count = Callable[[str, int], None]
"""Counts records: `written` or `deferred`."""

_SINGLE = frozenset({"create", "update", "patch", "delete"})


@dataclass(slots=True)
class RequestDraft:
    """The draft of an HTTP request.  `stored`: the versions in committed records; `failures`: entries of a batch."""

    request: Request
    began: float
    surface: str
    interaction: str
    new_id_suffix: NewIdSuffix
    count: Count
    stored: set[Key] = field(default_factory=set)
    failures: list[tuple[str, int]] = field(default_factory=list)
    notes: dict[tuple[str, str], None] = field(default_factory=dict)
    records_nothing_written: bool = False
    asked: Asked | None = None

    def records(self, status: int, versions: Sequence[Version], ended: int) -> list[Audit]:
        """See `AuditDraft.records`."""
        status = status if self.interaction in _SINGLE else 200
        self.asked = self.asked or asked_of(self.request)
        made = self._made(self.request, Answer(status, about=versions), ended, self.asked)
        return [detailed(one, tuple(self.notes)) for one in made]

    def note(self, name: str, text: str) -> None:
        """See `AuditDraft.note`."""
        self.notes[name, text] = None

    def failure_records(self, ended: int) -> list[Audit]:
        """The records of the failed entries of a batch."""
        made = []
        for target, status in self.failures:
            path = tuple(part for part in target.partition("?")[0].split("/") if part)
            request = replace(self.request, method="POST", path=path, query=(), body=b"", draft=None)
            made += self._made(request, Answer(status), ended, Asked(path))
        return made

    def _made(self, shown: Request, answer: Answer, ended: int, asked: Asked) -> list[Audit]:
        request = self.request
        context = context_of(
            request.tenant, request.caller, self.surface, self.interaction, action_of(self.interaction), answer.status,
            request.address,
        )  # fmt: skip
        return records_of(shown, answer, perf_counter() - self.began, ended, self.new_id_suffix, context, asked)

    def committed(self, versions: Sequence[Version], count: int) -> None:
        """See `AuditDraft.committed`."""
        self.stored.update([(one.resource_type, one.id, one.version_id) for one in versions])
        self.count("written", count)

    def deferred(self, count: int) -> None:
        """See `AuditDraft.deferred`."""
        self.count("deferred", count)

    def failed(self, target: str, status: int) -> None:
        """See `AuditDraft.failed`."""
        self.failures.append((target[:LONGEST_TARGET], status))

    def left(self, answer: Answer) -> Answer | None:
        """The response with the versions that no committed record has; None: there is nothing left to record."""
        if answer.status >= 400 or not self.stored:
            return answer
        about = [one for one in answer.about if (one.resource_type, one.id, one.version_id) not in self.stored]
        return Answer(answer.status, answer.body, answer.headers, answer.content_type, about) if about else None


@dataclass(slots=True)
class ConversionDraft:
    """The draft of a converted message.  `is_stored`: its records are committed."""

    tenant: str
    caller: Caller
    correlation_id: str
    origin: Origin | None
    began: float
    new_id_suffix: NewIdSuffix
    count: Count
    is_stored: bool = False
    records_nothing_written: bool = True

    def records(self, status: int, versions: Sequence[Version], ended: int) -> list[Audit]:
        """See `AuditDraft.records`."""
        context = context_of(self.tenant, self.caller, FHIR, "transaction", action_of("transaction"), status)
        duration_ms = int((perf_counter() - self.began) * 1000)
        operation = Operation(context, ended, duration_ms, self.correlation_id, origin=self.origin)
        return operation_records(operation, versions, self.new_id_suffix)

    def note(self, name: str, text: str) -> None:
        """See `AuditDraft.note`; a message writes no Subscription."""

    def committed(self, versions: Sequence[Version], count: int) -> None:
        """See `AuditDraft.committed`."""
        self.is_stored = True
        self.count("written", count)

    def deferred(self, count: int) -> None:
        """See `AuditDraft.deferred`."""
        self.count("deferred", count)

    def failed(self, target: str, status: int) -> None:
        """See `AuditDraft.failed`."""


def drafter(rules: AuditRules, new_id_suffix: NewIdSuffix, count: Count = lambda outcome, count: None) -> NewDraft:
    """Makes the drafts of requests by the rules."""

    def draft(request: Request, began: float) -> AuditDraft | None:
        interaction = interaction_of(request)
        surface = rules.surface(interaction, request, 200)
        return None if surface is None else RequestDraft(request, began, surface, interaction, new_id_suffix, count)

    return draft
