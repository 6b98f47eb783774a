"""The translation of a code, a Coding or a CodeableConcept by a ConceptMap, as `ConceptMap/$translate` does it.

Of a Coding or CodeableConcept the codings are tried in order, each in the groups of its system; a coding without a
system in all groups.  An operator's code mapping comes first.  What no coding gives is what the table says of codes
without a row, or an unmapped code.

A ConceptMap that is named by a variable, such as the table of a field, is looked up when the rule runs.

Source: https://hl7.org/fhir/R4/conceptmap-operation-translate.html.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from ipf.mapping.compiler import conversions
from ipf.mapping.compiler.kinds import STRING, fhir
from ipf.mapping.language.concepts import ConceptTables, Table
from ipf.mapping.language.hl7_tables import translation_of
from ipf.mapping.runtime.run import Run, Unmapped
from ipf.ports import Json

Translate = Callable[[Run, Json], Any]
LookUp = Callable[[Run, str | None], Any]

TRANSLATED = {
    "code": fhir("code"),
    "system": fhir("uri"),
    "display": STRING,
    "uri": fhir("uri"),
    "Coding": fhir("Coding"),
    "coding": fhir("Coding"),
    "CodeableConcept": fhir("CodeableConcept"),
    "codeableconcept": fhir("CodeableConcept"),
}
"""The kind of each result, by the third argument of `translate`."""

_MOST_NAMES = 4096


def code_translator(table: Table, name: str, wanted: str) -> LookUp:
    """What translates the text of a code."""
    is_counted = _is_counted(table, wanted)
    results: Mapping[str, Any] = table.results(wanted)
    without_match = table.without_match
    member = "code" if wanted == "uri" else wanted
    url = table.url or name
    translated = translation_of(url)

    def translate(run: Run, given: str | None) -> Any:
        if not given:
            return None
        overrides = run.overrides
        if overrides is not None and url in overrides.by_table:
            own = overrides.by_table[url]
            if given in own:
                coding = own[given]
                if coding is None or member in ("code", "system", "display"):
                    return coding and coding.get(member)
                return dict(coding)
        found = results.get(given)
        if found is None:
            found = missing(run, given)
        return dict(found) if type(found) is dict else found

    def missing(run: Run, given: str) -> Any:
        token = conversions.code(given) or ""
        found = results.get(token)
        if found is None:
            found = table.without_row(token, wanted)
        if found is None and is_counted and given not in without_match:
            answered = run.overrides.by_table.get(translated, ()) if run.overrides is not None else ()
            if given not in answered:
                run.unmapped.append(Unmapped(name, given))
        return found

    def translate_to_object(run: Run, given: str | None) -> Any:
        found = translate(run, given)
        if type(found) is not dict:
            return None
        return {"coding": [found]} if wanted == "CodeableConcept" else found

    return translate_to_object if TRANSLATED[wanted].name in ("Coding", "CodeableConcept") else translate


def look_up_by_name(tables: ConceptTables, wanted: str) -> Callable[[Run, str | None, str | None], Any]:
    """What translates a code by the ConceptMap that a text names; an empty name or an unknown one gives nothing."""

    @lru_cache(maxsize=_MOST_NAMES)
    def found(name: str) -> LookUp | None:
        table = tables.find(name)
        return None if table is None else code_translator(table, name, wanted)

    def translate(run: Run, given: str | None, name: str | None) -> Any:
        look_up = found(name) if name else None
        return None if look_up is None else look_up(run, given)

    return translate


def _is_counted(table: Table, wanted: str) -> bool:
    """Whether codes without a row are unmapped codes; an unknown display or system is none."""
    return wanted not in ("display", "system") and not table.is_partial


def translator(table: Table, name: str, wanted: str) -> Translate:
    """What translates the codings of a Coding or CodeableConcept.  `wanted`: the third argument of `translate`."""
    is_counted = _is_counted(table, wanted)
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
        found = table.without_row(code, "Coding")
        if found is not None:
            return result(found)
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
