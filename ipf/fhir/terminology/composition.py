"""A ValueSet resource as facts: its composition, or its expansion when it has no composition.

Source: https://hl7.org/fhir/R4/valueset.html#compositions
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
_FILTER = ("property", "op", "value")
MOST_LISTED = 500_000
"""Codes that the parts of a composition list."""


def excludes_inactive(resource: Json) -> bool:
    """Whether a ValueSet says that codes that are not active are not in it (`compose.inactive` false)."""
    return bool(resource.get("compose", {}).get("inactive") is False)


def facts_of(resource: Json) -> Json:
    """A ValueSet resource as facts: its composition, or its expansion when it has no composition."""
    compose = resource.get("compose")
    if compose is None:
        return {
            "name": resource.get("name", ""),
            "members": list(_expanded(resource.get("expansion", {}).get("contains", ()))),
        }
    facts: Json = {"name": resource.get("name", "")}
    parts = (one for word in ("include", "exclude") for one in compose.get(word, ()))
    if sum(len(one.get("concept", ())) for one in parts) > MOST_LISTED:
        return {**facts, "costly": f"it lists more than {MOST_LISTED} codes"}
    active = {"active": True} if excludes_inactive(resource) else {}
    for word in ("include", "exclude"):
        places = ((f"ValueSet.compose.{word}[{n}]", one) for n, one in enumerate(compose.get(word, ())))
        facts[word] = [
            {**_facts_of_include(one, place), **(active if word == "include" else {})} for place, one in places
        ]
    return facts


def _expanded(rows: list[Json]) -> Iterator[tuple[str, str, str]]:
    for row in rows:
        if "code" in row and not row.get("abstract"):
            yield row.get("system", ""), row["code"], row.get("display", "")
        yield from _expanded(row.get("contains", []))


def _facts_of_include(include: Json, place: str) -> Json:
    """`broken`: what a concept or a filter lacks; its members cannot be told then."""
    found: Json = {}
    if "system" in include:
        found["system"] = include["system"]
        if "version" in include:
            found["version"] = include["version"]
    if "concept" in include:
        found["codes"] = [[one.get("code", ""), one.get("display", "")] for one in include["concept"]]
    if "filter" in include:
        found["filters"] = [[one.get(name, "") for name in _FILTER] for one in include["filter"]]
    for word, names in (("concept", ("code",)), ("filter", _FILTER)):
        for number, one in enumerate(include.get(word, ())):
            missing = [name for name in names if name not in one]
            if missing:
                found["broken"] = f"{place}.{word}[{number}] has no {' and no '.join(missing)}"
    if "valueSet" in include:
        found["sets"] = include["valueSet"]
    return found
