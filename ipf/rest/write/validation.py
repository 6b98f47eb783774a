"""Converted messages through the same judgement as resources from outside, where the validation mode asks for it.

In mode `enforce` a message whose resources are not valid is not stored: its Problem (422 of a FHIR server) is what the
convert stage would get from a server elsewhere.  In mode `warn` the number of findings is told.  In mode `off` nothing
is done and nothing loaded.  References between the entries of a message are not followed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from ipf.errors import Issue, Problem
from ipf.fhir.validation.findings import Finding
from ipf.rest.write.conformance import ENFORCE, OFF, Conformance, refusal
from ipf.rest.write.unit import Unit, UnitResult

Told = Callable[[Unit, int, int], None]  # unit, errors, other findings


class Submit(Protocol):
    """Stores FHIR transactions: one result or Problem a unit, in order."""

    async def __call__(self, units: Sequence[Unit]) -> list[UnitResult | Problem]:
        """StoreUnreachable when nothing is known to be stored."""


def judged(submit: Submit, conformance: Conformance, told: Told) -> Submit:
    """`submit` for the units that are valid; a Problem for each of the others, in order."""
    if conformance.mode == OFF:
        return submit

    async def judge(units: Sequence[Unit]) -> list[UnitResult | Problem]:
        problems = [await _problem(unit, conformance, told) for unit in units]
        valid = [unit for unit, one in zip(units, problems, strict=True) if one is None]
        stored = iter(await submit(valid) if valid else [])
        return [next(stored) if one is None else one for one in problems]

    return judge


async def _problem(unit: Unit, conformance: Conformance, told: Told) -> Problem | None:
    """What is wrong with the resources of a unit, when that keeps it from being stored."""
    validator = (await conformance.known(unit.tenant)).validator
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
        told(unit, len(errors), others)
    if not issues or conformance.mode != ENFORCE:
        return None
    first = issues[0]
    return Problem(refusal(errors).category, f"not valid: {first.text}", first.place, issues=tuple(issues))
