"""Lower-case names of HL7 v2 in the maps of the other layout: `src.pid`, `pid.pid3`, `cx.cx1`.

What arrives: a map whose source is a structure of HL7 v2 (`uses ".../v2/StructureDefinition/ADT_A04"`).  What leaves:
the map with the names of ipf: `src.PID`, `pid.PID_3`, `cx.CX_1`.  Only elements of sources are renamed,
and conditions in FHIRPath are not.  Source: docs/reference/mapping-language.md, the names of HL7 v2.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from ipf.mapping.compiler.v2 import field_count
from ipf.mapping.language.model import Rule, Source, StructureMap

_V2 = re.compile(r".*/v2/StructureDefinition/[A-Z0-9_]+")
_SEGMENT = re.compile(r"[a-z][a-z0-9]{2}")
_FIELD = re.compile(r"([a-z][a-z0-9]{2})_?([1-9][0-9]?)")
_COMPONENT = re.compile(r"([a-z]{2,3})_?([1-9][0-9]?)")


def with_names_of_ipf(content: StructureMap) -> tuple[StructureMap, int]:
    """The map, and the number of names that were replaced."""
    if not any(one.mode == "source" and _V2.fullmatch(one.url) for one in content.structures):
        return content, 0
    found: list[str] = []

    def rename(source: Source) -> Source:
        parts = source.element.split(".") if source.element else []
        names = [_name(part) for part in parts]
        found.extend(part for part, name in zip(parts, names, strict=True) if part != name)
        return source if names == parts else replace(source, element=".".join(names))

    groups = tuple(replace(group, rules=tuple(_rule(one, rename) for one in group.rules)) for group in content.groups)
    return (replace(content, groups=groups), len(found)) if found else (content, 0)


def _rule(rule: Rule, rename: Callable[[Source], Source]) -> Rule:
    sources = tuple(rename(one) for one in rule.sources)
    return replace(rule, sources=sources, rules=tuple(_rule(one, rename) for one in rule.rules))


def _name(name: str) -> str:
    """The name of ipf; the same name when it is none of HL7 v2 in lower case."""
    if _SEGMENT.fullmatch(name) and _is_segment(name.upper()):
        return name.upper()
    field = _FIELD.fullmatch(name)
    if field is not None and _is_segment(field[1].upper()):
        return f"{field[1].upper()}_{field[2]}"
    component = _COMPONENT.fullmatch(name)
    return name if component is None else f"{component[1].upper()}_{component[2]}"


def _is_segment(name: str) -> bool:
    return name.startswith("Z") or bool(field_count(name))
