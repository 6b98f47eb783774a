#!/usr/bin/env python3
"""Writes `datatypes.json` beside this file: the data type of every field of a segment and component of a data type.

Run it as `generate.py`, with hl7apy 1.3.5 (MIT licence).  Only facts are taken.  Each name has one list, by position,
of the newest version that has it; a position that was withdrawn later keeps the type that it had last.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

VERSIONS = ("2.1", "2.2", "2.3", "2.3.1", "2.4", "2.5", "2.5.1", "2.6", "2.7", "2.8", "2.8.1", "2.8.2")


def main() -> None:
    found: dict[str, dict[int, str]] = {}
    for version in VERSIONS:
        tables = importlib.import_module(f"hl7apy.v{version.replace('.', '_')}.segments")
        for name, definition in tables.SEGMENTS.items():
            if definition[0] != "sequence" or len(definition) < 2:
                continue
            read(found, name, definition[1])
    lists = {name: [types.get(at, "") for at in range(1, max(types) + 1)] for name, types in found.items() if types}
    tables = {"source": "hl7apy 1.3.5 (MIT), facts of HL7 v2.1 to v2.8.2", "types": {n: " ".join(t or "-" for t in ts)
              for n, ts in lists.items()}}
    target = Path(__file__).with_name("datatypes.json")
    target.write_text(json.dumps(tables, indent=0, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")


def read(found: dict[str, dict[int, str]], owner: str, children: Any) -> None:
    """The parts of a segment or data type, and of their types."""
    types = found.setdefault(owner, {})
    for name, definition, *_ in children or ():
        if not isinstance(definition, (list, tuple)) or len(definition) < 3:
            continue
        at, kind = name.rpartition("_")[2], str(definition[2])
        if not at.isdigit() or not kind or kind in ("WD", "None"):
            continue
        if kind.isupper() or len(kind) < 5:
            types[int(at)] = kind
        if definition[0] == "sequence" and kind != owner and kind.isupper():
            read(found, kind, definition[1])


if __name__ == "__main__":
    main()
