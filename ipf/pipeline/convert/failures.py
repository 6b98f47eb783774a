"""A failed attempt in words: what failed, for which message, and what to do (`last_error`).

The stage is `matchbox` or `hapi` in log lines, as the interface specification has it ("Log events").  Operators read
what this service does: mapping and storing.  The text has no data of a patient, and none of one message alone, so that
dead letters with the same cause have the same text.
"""

from __future__ import annotations

from dataclasses import dataclass

from ipf.errors import Problem
from ipf.ports import Claimed, UnmappedCode
from ipf.ports.identity import IdentityConflict

MAPPING_STAGE = "matchbox"  # the stage names of the specification
FHIR_STAGE = "hapi"
_WORDS = {MAPPING_STAGE: "mapping", FHIR_STAGE: "storing"}
_WHAT_TO_CORRECT = {
    MAPPING_STAGE: "correct the message at its sender, or install or correct the map, then retry it",
    FHIR_STAGE: "correct the message at its sender, or the map, or what is stored, then retry it",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt: its stage, the problem, and the unmapped codes when the message was mapped."""

    stage: str
    problem: Problem
    unmapped: tuple[UnmappedCode, ...] = ()

    def text(self, message: Claimed, *, is_last: bool) -> str:
        """The text of `last_error`.  `is_last`: there is no further attempt."""
        what = f"{_WORDS[self.stage]} {message.message_type} of {message.source_system} failed"
        return f"{what}: {str(self.problem).rstrip('. ')}. {self._advice(is_last=is_last)}."

    def _advice(self, *, is_last: bool) -> str:
        if isinstance(self.problem, IdentityConflict):
            return "It fails again until the conflict is answered"
        if self.problem.is_permanent:
            return f"No attempt can succeed as it is: {_WHAT_TO_CORRECT[self.stage]}"
        return "All attempts failed: retry it when the cause is gone" if is_last else "It is tried again"
