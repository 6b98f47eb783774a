"""The designations of concepts: of imported systems, of code systems in memory, and of their supplements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ipf.fhir.terminology import Terminology
from ipf.ports import Json
from ipf.ports.fhir.terminology import CodeSystems, Designation, ImportedSystem

Designations = dict[tuple[str, str], list[Json]]
"""(system, code) -> FHIR designations"""


async def designations_of(
    terminology: Terminology, systems: CodeSystems | None, members: Sequence[tuple[str, str]],
    chosen: Iterable[ImportedSystem] = (),
) -> Designations:  # fmt: skip
    """The designations of these (system, code).  `chosen`: imported systems in another version than the current one."""
    found: Designations = {}
    by_system: dict[str, list[str]] = {}
    for system, code in members:
        by_system.setdefault(system, []).append(code)
    versions = {one.url: one for one in chosen}
    for url, codes in by_system.items():
        imported = versions.get(url) or terminology.imported(url)
        known = None if imported is not None else terminology.system(url)
        if imported is not None and systems is not None:
            for code, some in (await systems.designations(imported, codes)).items():
                found[url, code] = [as_json(one) for one in some]
        for source in (*([known] if known is not None else []), *terminology.supplements(url)):
            for code in codes:
                concept = source.find(code)
                if concept is not None and concept.designations:
                    found.setdefault((url, code), []).extend(concept.designations)
    return found


def as_json(designation: Designation) -> Json:
    """A designation as FHIR has it."""
    system, code, display = designation.use
    use = {name: text for name, text in (("system", system), ("code", code), ("display", display)) if text}
    return {
        **({"language": designation.language} if designation.language else {}),
        **({"use": use} if use else {}),
        "value": designation.value,
    }


def display_in(language: str | None, designations: Sequence[Json]) -> str | None:
    """The best display in a language (`de` also finds `de-CH`); None when there is none."""
    if not language:
        return None
    wanted = [one.partition(";")[0].strip().casefold() for one in language.split(",")]
    for one in wanted:
        found = [each for each in designations if _speaks(str(each.get("language", "")).casefold(), one)]
        for each in sorted(found, key=_rank):
            return str(each.get("value", ""))
    return None


def _speaks(language: str, wanted: str) -> bool:
    return bool(wanted) and (language == wanted or language.startswith(f"{wanted}-"))


def _rank(designation: Json) -> int:
    """Preferred names first, fully specified names of SNOMED CT last."""
    code = str(designation.get("use", {}).get("code", ""))
    return {"preferred": 0, "display": 0, "": 1, "900000000000013009": 2, "900000000000003001": 4}.get(code, 3)


def is_chosen(designation: Json, tokens: Sequence[str]) -> bool:
    """Whether one of these tokens, `system|code` of a use or `urn:ietf:bcp:47|language`, means a designation."""
    if not tokens:
        return True
    use = designation.get("use", {})
    for one in tokens:
        system, _, code = one.rpartition("|")
        if system == "urn:ietf:bcp:47":
            if _speaks(str(designation.get("language", "")).casefold(), code.casefold()):
                return True
        elif code == use.get("code") and system in ("", use.get("system")):
            return True
    return False
