"""The tables of HL7 v2 as ConceptMaps of each code to itself, so that `translate` tells which codes a table has.

What arrives: the URL of a table (`http://terminology.hl7.org/CodeSystem/v2-0063`).  What leaves: a ConceptMap with a
row for each code that HL7 defines.  A table without codes of HL7 (user-defined, such as 0099) and a table that R4 does
not publish have no rows, and every code is theirs.

Sources: https://hl7.org/fhir/R4/terminologies-v2.html, by `fhir/r4/codesystems.jsonl`; codes that HL7 added later, by
the v2-to-FHIR guide, whose tables use them (ORC[ServiceRequest], EIP[Identifier], SPM[Specimen]).
"""

from __future__ import annotations

import re

from ipf.fhir.profiles.tables import CODE_SYSTEMS, tables
from ipf.ports import Json

HL7_TABLES = "http://terminology.hl7.org/CodeSystem/v2-"
_LATER = {f"{HL7_TABLES}0203": ("FGN", "PGN", "SHIP")}
_URL = re.compile(re.escape(HL7_TABLES) + r"\d{4}", re.ASCII)


def hl7_table(url: str) -> Json | None:
    """The ConceptMap of a table; None for any other URL."""
    if not _URL.fullmatch(url):
        return None
    rows = [{"code": code, "target": [{"code": code, "equivalence": "equal"}]} for code in codes_of(url)]
    group: Json = {"source": url, "target": url, "element": rows}
    if not rows:
        group["unmapped"] = {"mode": "provided"}
    return {"resourceType": "ConceptMap", "url": url, "status": "active", "group": [group]}


def codes_of(url: str) -> list[str]:
    """The codes of a table, of all its published versions; empty when R4 has no such table."""
    found = dict.fromkeys(_LATER.get(url, ()))
    for _, table in tables(CODE_SYSTEMS):
        for one in table:
            if one.partition("|")[0] == url:
                found |= dict.fromkeys(row[0] for row in (table.get(one) or {}).get("concepts", ()))
    return list(found)


def translation_of(url: str) -> str:
    """The ConceptMap that translates the codes of a table, by the name that ours have; empty for any other URL."""
    return f"urn:ipf:concepts:HL7{url.removeprefix(HL7_TABLES)}" if _URL.fullmatch(url) else ""
