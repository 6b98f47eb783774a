"""The translation of a Coding or CodeableConcept by a ConceptMap, as `ConceptMap/$translate` does it.

The codings are tried in order, each in the groups of its system; a coding without a system in all groups.  An
operator's code mapping comes first.  What no coding gives is the fixed result of the table, or an unmapped code.

Source: https://hl7.org/fhir/R4/conceptmap-operation-translate.html.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ipf.mapping.language.concepts import Table
from ipf.mapping.runtime.run import Run, Unmapped
from ipf.ports import Json

Translate = Callable[[Run, Json], Any]


def translator(table: Table, name: str, wanted: str, *, is_counted: bool) -> Translate:
    """What translates the codings of a Coding or CodeableConcept.

    `wanted`: the third argument of `translate`.  `is_counted`: codes without a row are unmapped codes.
    """
    member = "code" if wanted == "uri" else wanted
    url = table.url or name

    def result(coding: Json) -> Any:
        if member in ("code", "system", "display"):
            return coding.get(member)
        return {"coding": [dict(coding)]} if wanted.lower() == "codeableconcept" else dict(coding)

    def translate(run: Run, value: Json) -> Any:
        given = list(_codings(value))
        own = run.overrides.by_table.get(url, {}) if run.overrides is not None else {}
        for system, code in given:
            found = own[code] if code in own else table.coding_of(system, code)
            if found is not None:
                return result(found)
            if code in own:
                return None
        return missing(run, given[0][1]) if given else None

    def missing(run: Run, code: str) -> Any:
        fixed = table.fixed("Coding")
        if fixed is not None:
            return result(fixed)
        if is_counted and code not in table.without_match:
            run.unmapped.append(Unmapped(name, code))
        return None

    return translate


def first_code(value: Any) -> str:
    """The first code of a Coding or CodeableConcept; empty if there is none."""
    return next((code for _, code in _codings(value)), "") if type(value) is dict else ""


def _codings(value: Json) -> Iterator[tuple[str, str]]:
    """(system, code) of a Coding, or of each coding of a CodeableConcept."""
    held = value.get("coding", value)
    for one in held if type(held) is list else [held]:
        code, system = (one.get("code"), one.get("system")) if type(one) is dict else (None, None)
        if type(code) is str and code:
            yield system if type(system) is str else "", code
