"""The structure of converted resources: formats, required codes and elements that no message may be stored without.

What arrives: a mapped message.  What leaves: None, the result of the validation that follows, or a Problem INVALID,
which no retry mends: the message waits as a dead letter, with its reason, for another map.  The Problem names the
element, the rule of R4, file and line of the map, and the HL7 field; to know these, the message is mapped again with a
trace.

The maps of ipf convert or leave out what R4 does not permit; what fails here comes from maps of a site.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ipf.errors import Issue, Problem
from ipf.fhir.validation.findings import ERROR, Finding
from ipf.pipeline.convert.validation import MOST, Explain, FindingMetrics, explained_findings, refusal
from ipf.ports import Claimed, Mapped
from ipf.rest.interactions.bundle_entries import structure_issues_in

Validate = Callable[[Claimed, Mapped], Awaitable[Problem | None]]


class StructureCheck:
    """Checks mapped messages.  `explain` None: the maps run elsewhere.  `validate`: further checks, if any."""

    def __init__(self, explain: Explain | None, metrics: FindingMetrics, validate: Validate | None) -> None:
        self._explain = explain
        self._metrics = metrics
        self._validate = validate

    async def __call__(self, message: Claimed, mapped: Mapped) -> Problem | None:
        """The Problem of a message that must not be stored."""
        issues = structure_issues_in(mapped)
        if not issues:
            return None if self._validate is None else await self._validate(message, mapped)
        self._metrics.invalid("refused")
        findings = [_finding(issue) for issue in issues[:MOST]]
        return refusal(await explained_findings(self._explain, message, mapped.bundle, findings), len(issues))


def _finding(issue: Issue) -> Finding:
    return Finding(ERROR, issue.code or "invalid", issue.text, issue.place or "")
