"""Maps of FHIR packages, and the ConceptMaps of a library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ipf.fhir.model.packages import Packages
from ipf.mapping.language.concepts import ConceptTables, load_tables
from ipf.mapping.language.model import StructureMap
from ipf.mapping.language.structuremap import from_json
from ipf.ports import InstalledMap


def of_packages(packages: Packages) -> Iterator[StructureMap]:
    """The newest version of each map."""
    for entry in packages.newest("StructureMap"):
        yield from_json(entry.resource(), entry.place)


def tables_of(folder: Path, packages: Packages, installed: Iterable[InstalledMap]) -> ConceptTables:
    """The ConceptMaps of the folder of maps and of the installation; those of packages are parsed on demand."""

    def further(canonical: str) -> Mapping[str, Any] | None:
        entry = packages.find(canonical, "ConceptMap") or packages.by_id("ConceptMap", canonical)
        return entry.resource() if entry is not None else None

    codesystems = folder / "codesystems"
    tables = load_tables(codesystems, further) if codesystems.is_dir() else ConceptTables(further=further)
    for one in installed:
        if one.resource_type == "ConceptMap":
            tables.add(one.resource)
    return tables
