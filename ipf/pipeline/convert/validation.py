"""Validation of what messages become, before it is stored.

What arrives: a claimed message and its transaction.  What leaves: in mode `warn` a log line and counts beside those of
unread fields (`unread_counts`), when a resource is invalid; in mode `refuse` a Problem INVALID, which no retry mends.
Both name the element, the rule of R4, the file and line of the map, and the HL7 field.  To know these, an invalid
message is mapped again with a trace.

The Bundle is validated as a whole, so that the targets of references between its entries are known.  Warnings of the
validator are not reported: R4 has some for every resource.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from twisted.logger import Logger

from ipf.errors import Category, Issue, Problem
from ipf.fhir.validation.findings import ERROR, Finding
from ipf.mapping.library.maps import MappingResult
from ipf.mapping.library.origins import Checks, ExplainedFinding, explained
from ipf.pipeline.convert.log_lines import message_fields
from ipf.ports import Claimed, Json, Mapped, UnreadField
from ipf.ports.messages.mapping import INVALID
from ipf.telemetry.logs import event_line

log = Logger(namespace="ipf.convert")

OFF, WARN, REFUSE = "off", "warn", "refuse"
MOST = 20
"""Findings of one message in its error text and log line."""

Explain = Callable[[Claimed], Awaitable[MappingResult]]
"""Maps a message again with a trace."""


class FindingMetrics(Protocol):
    """Metrics of validation."""

    def invalid(self, outcome: str) -> None:
        """A message has invalid resources, which are `stored` or `refused`."""


class MessageValidation:
    """Validates mapped messages.  `explain` None: the maps run elsewhere, and the origin of findings is unknown."""

    def __init__(self, checks: Checks, explain: Explain | None, metrics: FindingMetrics, *, refuse: bool) -> None:
        self._checks = checks
        self._explain = explain
        self._metrics = metrics
        self._refuse = refuse

    async def __call__(self, message: Claimed, mapped: Mapped) -> Problem | None:
        """Report the findings; in mode `refuse` the Problem of a message with errors."""
        bundle = mapped.bundle
        errors = [one for one in (await self._checks(message.tenant))(bundle) if one.severity == ERROR]
        if not errors:
            return None
        self._metrics.invalid("refused" if self._refuse else "stored")
        found = await explained_findings(self._explain, message, bundle, errors[:MOST])
        if self._refuse:
            return refusal(found, len(errors))
        _report(message, found, len(errors))
        mapped.unread = _with_findings(mapped.unread, found)
        return None


async def explained_findings(
    explain: Explain | None, message: Claimed, bundle: Json, errors: Sequence[Finding]
) -> list[ExplainedFinding]:
    """The findings with the rules that made their elements."""
    if explain is None:
        return explained(bundle, errors)
    try:
        steps = (await explain(message)).steps or ()
    except Problem:  # the maps changed meanwhile
        steps = ()
    return explained(bundle, errors, steps)


def refusal(found: Sequence[ExplainedFinding], count: int) -> Problem:
    """The Problem of an invalid message, with one issue for each finding; `count`: of all errors."""
    more = f" (and {count - 1} more)" if count > 1 else ""
    issues = tuple(Issue(one.text, _place(one), Category.INVALID, one.finding.code) for one in found)
    return Problem(Category.INVALID, f"not valid: {found[0].text}{more}", _place(found[0]), issues=issues)


def _place(one: ExplainedFinding) -> str:
    return "Bundle" if one.entry is None else f"Bundle.entry[{one.entry}].resource"


def _with_findings(
    unread: Callable[[], tuple[UnreadField, ...]], found: Sequence[ExplainedFinding]
) -> Callable[[], tuple[UnreadField, ...]]:
    """The unread fields of a message and its invalid elements, each once."""
    invalid = {one.path: UnreadField(INVALID, one.path, one.reason) for one in found}
    return lambda: (*unread(), *invalid.values())


def _report(message: Claimed, found: Sequence[ExplainedFinding], errors: int) -> None:
    """Log the findings; the texts have no content of the message."""
    texts = "; ".join(dict.fromkeys(one.text for one in found))
    line = event_line("validation", **message_fields(message), errors=errors, findings=texts)
    log.warn(line, correlation_id=message.correlation_id)
