"""Validation of converted messages, according to the validation mode.

In mode `enforce` a message with an invalid resource is not stored; its Problem is a 422, as from a remote FHIR server.
In mode `warn` the number of findings is reported.  In mode `off` nothing is loaded.  References between the entries of
a message are not followed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from ipf.errors import Issue, Problem
from ipf.fhir.validation.findings import Finding
from ipf.rest.write.conformance import ENFORCE, OFF, Conformance, refusal
from ipf.rest.write.unit import Unit, UnitResult

ReportFindings = Callable[[Unit, int, int], None]  # unit, errors, other findings


class Submit(Protocol):
    """Stores FHIR transactions: one result or Problem per unit, in order."""

    async def __call__(self, units: Sequence[Unit]) -> list[UnitResult | Problem]:
        """StoreUnreachable when the outcome of every unit is unknown."""


def validated(submit: Submit, conformance: Conformance, reported: ReportFindings) -> Submit:
    """`submit` for valid units; a Problem for each invalid one, in order."""
    if conformance.mode == OFF:
        return submit

    async def judge(units: Sequence[Unit]) -> list[UnitResult | Problem]:
        problems = [await _problem(unit, conformance, reported) for unit in units]
        valid = [unit for unit, one in zip(units, problems, strict=True) if one is None]
        stored = iter(await submit(valid) if valid else [])
        return [next(stored) if one is None else one for one in problems]

    return judge


async def _problem(unit: Unit, conformance: Conformance, reported: ReportFindings) -> Problem | None:
    """The Problem of a unit that must not be stored; None when it may be."""
    validator = (await conformance.definitions_of(unit.tenant)).validator
    errors: list[Finding] = []
    issues: list[Issue] = []
    others = 0
    for number, entry in enumerate(unit.entries):
        findings = validator.validate(entry.resource) if entry.resource is not None else []
        wrong = [one for one in findings if one.severity == "error"]
        others += len(findings) - len(wrong)
        errors += wrong
        if wrong:
            place = entry.place or f"Bundle.entry[{number}]"
            issues += [replace(one, place=f"{place}.resource ({one.place})") for one in refusal(findings).issues]
    if errors or others:
        reported(unit, len(errors), others)
    if not issues or conformance.mode != ENFORCE:
        return None
    first = issues[0]
    return Problem(refusal(errors).category, f"not valid: {first.text}", first.place, issues=tuple(issues))
