"""Writes our statement of US Core 7.0.0: the facts of its profiles, value sets and code systems.

    python fhir/us-core/generate.py [path of hl7.fhir.us.core-7.0.0.tgz]

Without a path it reads `../shared/reference/us-core` beside the repository.  Only facts are taken over: paths,
cardinalities, types, bindings, patterns, slices, must-support, and keys and expressions of invariants.  No words are:
what an invariant says is worded in `words.json` here.  Value sets keep their composition, without displays of SNOMED CT
and LOINC.  The form of the tables is in `../facts.py`.
"""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import facts  # noqa: E402  # beside this folder, for the generators only

STRUCTURES = "http://hl7.org/fhir/us/core/StructureDefinition/"
PACKAGE = HERE.parent.parent.parent / "shared/reference/us-core/hl7.fhir.us.core-7.0.0.tgz"


def main(arguments: list[str]) -> None:
    """Read the package and write the three tables beside this file."""
    words = json.loads((HERE / "words.json").read_text(encoding="utf-8"))
    rows: dict[str, list[list[Any]]] = {"StructureDefinition": [], "CodeSystem": [], "ValueSet": []}
    makers = {"CodeSystem": facts.code_system_row, "ValueSet": facts.value_set_row}
    for one in read_package(Path(arguments[0]) if arguments else PACKAGE):
        kind = one["resourceType"]
        if kind == "StructureDefinition":
            rows[kind].append(worded(facts.structure_row(whole(one), prose=False), words))
        elif kind in makers:
            rows[kind].append(makers[kind](one))
    head = {"source": "hl7.fhir.us.core 7.0.0", "licence": "CC0-1.0"}
    for kind, found in rows.items():
        facts.write_table(HERE / f"{kind.lower()}s.jsonl", head, found)


def read_package(path: Path) -> list[dict[str, Any]]:
    """The conformance resources of the package."""
    with tarfile.open(path) as archive:
        members = [one for one in archive if one.name.count("/") == 1 and one.name.endswith(".json")]
        found = [json.load(file) for one in members if (file := archive.extractfile(one)) is not None]
    return [one for one in found if "resourceType" in one]


def whole(structure: dict[str, Any]) -> dict[str, Any]:
    """A profile on one of another guide, with all that its snapshot adds to R4, since that guide is not here."""
    if structure["baseDefinition"].startswith((facts.CORE, STRUCTURES)):
        return structure
    for element in structure["snapshot"]["element"]:
        for rule in element.get("constraint", ()):
            if not rule.get("source", "").startswith(facts.CORE):
                rule["source"] = structure["url"]
    return {**structure, "differential": structure["snapshot"]}


def worded(row: list[Any], words: dict[str, str]) -> list[Any]:
    """The row with our words for its invariants."""
    for _, element in row[1]["elements"]:
        for rule in element.get("rules", ()):
            rule[3] = words[rule[0]]
    return row


if __name__ == "__main__":
    main(sys.argv[1:])
