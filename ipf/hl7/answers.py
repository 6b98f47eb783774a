"""Acknowledgements as their receiver reads them: one, or a batch of them.

Source: HL7 v2.9 sections 2.14.5 (ERR), 2.14.8 (MSA).
"""

from __future__ import annotations

from dataclasses import dataclass

GOOD = ("AA", "CA")


@dataclass(frozen=True, slots=True)
class AckAnswer:
    """One acknowledgement: MSA-1, MSA-2, the first of ERR-8 and MSA-3 with content, ERR-3.1; "" = absent."""

    code: str
    control_id: str
    text: str = ""
    error_code: str = ""

    @property
    def is_good(self) -> bool:
        """Whether the message was accepted."""
        return self.code in GOOD


def answers_of(acknowledgement: bytes) -> list[AckAnswer]:
    """All acknowledgements in it, in their order."""
    found: list[AckAnswer] = []
    separators = "|^"
    for line in acknowledgement.decode("utf-8", "replace").split("\r"):
        fields = [*line.split(separators[0]), *[""] * 9]
        if line.startswith("MSH") and len(line) > 4:
            separators = line[3:5]
        elif line.startswith("MSA"):
            found.append(AckAnswer(fields[1], fields[2], fields[3]))
        elif line.startswith("ERR") and found:
            last = found[-1]
            code = last.error_code or fields[3].split(separators[1])[0]
            found[-1] = AckAnswer(last.code, last.control_id, fields[8] or last.text, code)
    return found
