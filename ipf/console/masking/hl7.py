"""A message as a role without patient data sees it: fields that may be shown stay, all others become MASK.

Only what `SHOWN` names is shown: names, identifiers, addresses, phone numbers and free text are not in it, and a
segment that it does not have is masked as a whole.  Segments, fields and separators stay at their places, so that the
pages of a message, traces and tries of a map work on masked text too.  No IO.

Source: HL7 v2.5.1 chapters 2 to 7 (meaning of fields).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "***"

_SPLIT = re.compile(r"(\r\n|\r|\n)")
_NAME = re.compile(r"[A-Z][A-Z0-9]{2}")


def _fields(text: str) -> frozenset[int]:
    """`1-4 7` as numbers."""
    found: set[int] = set()
    for part in text.split():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


SHOWN: Mapping[str, frozenset[int]] = {
    name: _fields(text)
    for name, text in {
        "MSH": "1-7 9-21",  # not security
        "SFT": "1-4 6",
        "EVN": "1-4 6 7",  # not the operator
        "PID": "1 8 10 15-17 22 24-28 30",  # sex, race, language, marital status, religion, citizenship, death
        "PD1": "1 2 5-7 11 12 15-18",
        "PV1": "1-4 6 10 12-16 18 20-49",  # class, location, type, dates; no staff, no visit number
        "PV2": "1-3 6-12 14-49",
        "ORC": "1 5-7 9 15 16 20 25 29",
        "OBR": "1 4-9 11 12 14 15 22-27 30 31 36 44-48",
        "OBX": "1-4 6-12 14 17-19",  # the value may be text
        "SPM": "1 4-9 11-13 16-18 24 27",
        "TQ1": "1-9 12-14",
        "DG1": "1-3 5-15 17-21",
        "PR1": "1-3 5-7 9 10 13-20",
        "AL1": "1-4 6",
        "IAM": "1-4 6 7 11 13",
        "RXA": "1-4 6-8 12 16 20-22",
        "RXR": "1-6",
        "SCH": "6-11 25",
        "RGS": "1-3",
        "AIS": "1-10",
        "TXA": "1-4 6-8 17-20",
        "IN1": "1 12 13 15",
        "GT1": "1 8-11",
        "NK1": "1 3 7-9 14 15",  # relationship, role and dates
        "MRG": "",
        "FHS": "1-9",
        "BHS": "1-9",
        "BTS": "1",
        "FTS": "1",
    }.items()
}
"""Fields that are shown, by segment."""
_BIRTH = ("PID", 7)


def mask_message(raw: str) -> str:
    """The text of a message, masked.  What is no HL7 v2 is masked as a whole."""
    if raw[:3] not in ("MSH", "FHS", "BHS"):
        return MASK
    separator = raw[3:4]
    parts = _SPLIT.split(raw)
    return "".join(_segment(part, separator) if place % 2 == 0 else part for place, part in enumerate(parts))


def _segment(line: str, separator: str) -> str:
    """One segment."""
    if not line.strip():
        return line
    name, *fields = line.split(separator)
    shown = SHOWN.get(name)
    if shown is None:
        return f"{name if _NAME.fullmatch(name) else MASK}{separator}{MASK}"
    first = 2 if name in ("MSH", "FHS", "BHS") else 1  # the first of them is the separator
    texts = (_field(name, number, text, shown) for number, text in enumerate(fields, first))
    return separator.join((name, *texts))


def _field(name: str, number: int, text: str, shown: frozenset[int]) -> str:
    if not text or text == '""' or number in shown:
        return text
    if (name, number) == _BIRTH and text[:4].isdigit():
        return text[:4]  # a date with the precision of a year
    return MASK
