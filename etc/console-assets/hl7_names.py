"""Writes ipf/console/hl7_names.txt: the names of HL7 v2 fields and components, as facts of the standard.

Run it in the environment of the tests (it needs hl7apy): PYTHONPATH=. .venv/bin/python etc/console-assets/hl7_names.py
One line a segment or data type: its name, then `name:type` of each field or component, with `|` between them.
Names are those of v2.5.1; segments, types, and last fields that came later are those of v2.8.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hl7apy import v2_5_1, v2_8_2

TARGET = Path("ipf/console/hl7_names.txt")
CAPITALS = {"ID", "HL7", "NPI", "SSN", "DRG", "MPI", "CPT", "ISBT", "MDM", "NDC", "DEA", "OCR", "URL", "OID", "VIP",
            "TX", "GP", "DDE", "HMO", "ICD", "EI", "UPC", "FT", "DTM", "NK1", "PID", "IN2", "IN1", "GT1"}  # fmt: skip
SMALL = {"OF", "AND", "OR", "THE", "FOR", "TO", "IN", "BY", "ON", "WITH", "A", "AT", "FROM", "AS"}


def title(name: str) -> str:
    """`PATIENT_IDENTIFIER_LIST` as words."""
    words = re.split(r"[_\s]+", name.replace("|", "/").strip())
    shown = [one if one in CAPITALS else one.lower() if one in SMALL else one.capitalize() for one in words if one]
    text = " ".join(shown).replace(":", ",")
    for wrong, right in ((" S ", "'s "), ("Date Time", "Date/Time"), (" E G ", " e.g. "), (" Iii", " III")):
        text = text.replace(wrong, right)
    return text


def rows(version: Any) -> Iterator[tuple[str, dict[int, str]]]:
    """Segments, then data types: name -> number -> `name:type`."""
    for table in (version.SEGMENTS, version.DATATYPES_STRUCTS):
        for name, value in table.items():
            children = value[1] if isinstance(value[0], str) else value
            found = {}
            for child, definition, *_ in children:
                number = child.rpartition("_")[2]
                if number.isdigit():
                    label = re.sub(rf"_{name}$", "", definition[3] or "")
                    found[int(number)] = f"{title(label)}:{definition[2] or ''}"
            if found:
                yield name, found


def main() -> None:
    """Write the file."""
    names = dict(rows(v2_8_2))
    for name, found in rows(v2_5_1):
        names[name] = {**names.get(name, {}), **found}
    lines = [
        "|".join([name, *(found.get(number, ":") for number in range(1, max(found) + 1))])
        for name, found in sorted(names.items())
    ]
    TARGET.write_text("\n".join(lines) + "\n")


main()
