"""The StructureDefinitions that the maps of an installation use: those installed over HTTP, and those of packages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ipf.fhir.model.packages import Packages
from ipf.mapping.compiler.models import FHIR_CANONICAL, V2_CANONICAL, check_definition
from ipf.mapping.library.map_files import Maps
from ipf.ports import InstalledMap, Json


def installed_place(one: InstalledMap) -> str:
    """The name of a resource installed over HTTP, for error messages."""
    return f"{one.resource_type}/{one.id} (installed over HTTP)"


def installed_definitions(installed: Iterable[InstalledMap]) -> dict[str, Json]:
    """StructureDefinitions by canonical.  Problem MAPPING: one is no model that maps can use."""
    found = {one.url: one for one in installed if one.resource_type == "StructureDefinition"}
    for one in found.values():
        check_definition(one.resource, installed_place(one))
    return {url: one.resource for url, one in found.items()}


def packaged_definitions(maps: Maps, packages: Packages, installed: Mapping[str, Json]) -> list[Json]:
    """The logical models that maps and `installed` models use, and their bases, as far as packages have them."""
    if not packages.packages:
        return []
    found: dict[str, Json] = {}
    queue = [one.url for content in maps.values() for one in content.structures]
    for definition in installed.values():
        queue += _used(definition)
    while queue:
        url = queue.pop()
        if url in found or url in installed or url.startswith(V2_CANONICAL) or FHIR_CANONICAL.fullmatch(url):
            continue
        entry = packages.find(url, "StructureDefinition")
        if entry is not None:
            found[url] = entry.resource()
            queue += _used(found[url])
    return list(found.values())


def _used(definition: Json) -> list[str]:
    """The canonicals that a StructureDefinition refers to."""
    elements = (definition.get("snapshot") or definition.get("differential") or {}).get("element", ())
    types = [str(kind.get("code", "")) for element in elements for kind in element.get("type", ())]
    return [*types, str(definition.get("baseDefinition", ""))]
