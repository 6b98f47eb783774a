"""FHIRPath on a received message: the condition of a destination, and computed fields.

A message is a collection of its segments: `PV1` is every PV1 of it, in any group, and `PATIENT_RESULT` the group of
that name.  Fields and components have the names of the mapping language (`PID.PID_3.CX_1`).  The first component is the
value of a field.  Failures are Problem VALUE; `check` finds names that no message can have before the first message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.fhirpath import FhirPathError, compile
from ipf.hl7.escape import escape
from ipf.hl7.message import Message
from ipf.mapping.compiler.conversions import as_text
from ipf.mapping.compiler.v2_names import check_names
from ipf.ports.messages.forwards import Destination

_ANY_MESSAGE = "ADT_A01"  # the check allows the segments of every structure in it


class Content:
    """A message, decoded."""

    kind = "message"
    text = None

    def __init__(self, raw: bytes, charset: str) -> None:
        self._message = Message.parse(raw, charset or None)

    def children(self, name: str) -> list[Any]:
        """The segments of this name, or the groups."""
        return self._message.segments(name) or self._message.children(name)

    def holds(self, condition: str) -> bool:
        """Whether a condition is true; nothing found is false."""
        found = self._evaluated(condition, {})
        return bool(found) and found != [False]

    def field(self, expression: str, segment: str, number: int) -> str:
        """The computed text of a field in the segment with this number of its name, from 0.

        Fields and components that the expression finds are written as they were received, other values are escaped;
        several values are repetitions.
        """
        segments = self._message.segments(segment)
        focus: Any = segments[number] if number < len(segments) else []
        separators = self._message.encoding.separators
        texts = [
            one.raw if hasattr(one, "raw") else escape(as_text(one) or "", separators)
            for one in self._evaluated(expression, {"segment": focus})
        ]
        return separators.repetition.join(texts)

    def _evaluated(self, expression: str, variables: Mapping[str, Any]) -> list[Any]:
        try:
            return compile(expression).evaluate(self, variables)
        except FhirPathError as error:
            raise Problem(Category.VALUE, f"{expression}: {error}") from error


def check(destination: Destination) -> None:
    """Problem VALUE names the key and what is wrong in its expression."""
    keys = [("where", destination.where, "")] if destination.where else []
    keys += [(f"compute: {field}", expression, field[:3]) for field, expression in destination.computed]
    for key, expression, segment in keys:
        try:
            compile(expression)
        except FhirPathError as error:
            raise Problem(Category.VALUE, f"is no FHIRPath: {error}", f"{key}") from error
        wrong = check_names(expression, _ANY_MESSAGE, {"segment": segment} if segment else {})
        if wrong:
            raise Problem(Category.VALUE, wrong, key)
