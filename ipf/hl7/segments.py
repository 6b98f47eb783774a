"""Segments of a message text.

Source: HL7 v2.9 section 2.5.2 (segments end with CR); senders also use CR LF or LF.
"""

from __future__ import annotations

import re
from functools import lru_cache


def split_segments(text: str, separator: str) -> list[str]:
    """Segments of a message: separated by CR, CR LF, or LF before the beginning of a segment."""
    if "\n" not in text:
        lines = text.split("\r")
        if not lines[-1]:
            lines.pop()
        return lines if all(lines) else [line for line in lines if line]
    pieces = _line_end(separator).split(text.replace("\r\n", "\r"))
    return [line for line in (piece.strip("\n") for piece in pieces) if line]


@lru_cache(maxsize=64)
def _line_end(separator: str) -> re.Pattern[str]:
    return re.compile(rf"\r|\n(?=[A-Z][A-Z0-9]{{2}}(?:{re.escape(separator)}|[\r\n]|\Z))")
