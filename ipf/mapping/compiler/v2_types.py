"""The data type of an HL7 v2 field or component by its name: `PID_5` is an XPN, `XPN_1` an FN.

Used for rules that leave to the types what happens (`pid.PID_5 -> patient.name`).  The table is of all versions, the
newest counts (`fhir/v2/generate_types.py`).
"""

from __future__ import annotations

import json
from functools import lru_cache

from ipf.config.paths import folder
from ipf.hl7.message import number_of

_OLDER = {"CWE": ("CE", "IS"), "DTM": ("TS",), "CNE": ("CE",), "XCN": ("CN",), "XTN": ("TN",), "XAD": ("AD",)}


@lru_cache(maxsize=1)
def _types() -> dict[str, list[str]]:
    tables = json.loads((folder("fhir") / "v2" / "datatypes.json").read_text(encoding="utf-8"))
    return {name: types.split() for name, types in tables["types"].items()}


def types_of(name: str) -> tuple[str, ...]:
    """Names that the type of `PID_5` goes by, the newest first; none when it is not known."""
    parts = _types().get(name[: max(name.rfind("_"), name.rfind("."), 0)], ())
    number = number_of(name)
    found = parts[number - 1] if 0 < number <= len(parts) else "-"
    return () if found == "-" else (found, *_OLDER.get(found, ()))
