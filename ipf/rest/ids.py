"""Ids that the server gives: UUID version 7, so that ids made later sort later and b-trees grow at their end.

Source: RFC 9562 section 5.7
"""

from __future__ import annotations

import os
import re
from datetime import datetime

_ID = re.compile(r"[A-Za-z0-9\-.]{1,64}")


def new_id(now: datetime) -> str:
    """A fresh logical id: 48 bits of milliseconds, the rest random."""
    milliseconds = int(now.timestamp() * 1000) & 0xFFFF_FFFF_FFFF
    bits = int.from_bytes(os.urandom(10), "big")
    number = (milliseconds << 80) | (bits & ~(0xF << 76) & ~(0x3 << 62)) | (0x7 << 76) | (0x2 << 62)
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_id(text: object) -> bool:
    """Whether `text` may be a logical id (https://hl7.org/fhir/R4/datatypes.html#id)."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None
