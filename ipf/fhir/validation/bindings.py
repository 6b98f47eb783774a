"""Bindings: whether codes are in the value sets that the definitions name.

`required`: a code outside is an error; when the value set cannot be known here, that is said (information), never taken
for valid.  `extensible`: a code outside is a warning, and an error outside the largest value set.  `preferred` and
`example` are not checked.  Displays are not compared.

Source: https://hl7.org/fhir/R4/terminologies.html#strength
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.valueset import Membership
from ipf.fhir.validation.findings import ERROR, WARNING, Check, Json, Run

MAX_VALUE_SET = "http://hl7.org/fhir/StructureDefinition/elementdefinition-maxValueSet"
_CODED = frozenset(("code", "string", "uri", "Coding", "CodeableConcept", "Quantity", "CodeableReference"))
_Codes = Iterable[tuple[str | None, str]]


def binding_checks(declared: Json, kind: str, terminology: Terminology) -> list[Check]:
    """The checks of a binding on values of type `kind`."""
    if kind not in _CODED and kind not in ("Duration", "Age", "Count", "Distance", "SimpleQuantity", "MoneyQuantity"):
        return []
    checks: list[Check] = []
    url, strength = declared.get("valueSet"), declared.get("strength")
    if url and strength in ("required", "extensible"):
        checks.append(_check(url, ERROR if strength == "required" else WARNING, kind, terminology))
    for extension in declared.get("extension", ()):
        if extension.get("url") == MAX_VALUE_SET:
            checks.append(
                _check(extension.get("valueCanonical") or extension.get("valueUri"), ERROR, kind, terminology)
            )
    return checks


def _check(url: str, severity: str, kind: str, terminology: Terminology) -> Check:
    bare = url.partition("|")[0]
    if kind in ("code", "string", "uri"):
        return _check_code(url, bare, severity, terminology)
    codes = _CODES.get(kind, _of_quantity)

    def check(value: Any, extra: Any, place: str, run: Run) -> None:
        if type(value) is not dict:
            return
        members = terminology.members(url)
        found = list(codes(value))
        if not found and codes is _of_quantity:
            if severity is ERROR:  # a number of things has no unit of a list, such as tablets
                run.warn("code-invalid", f"a unit of {bare} is expected", place)
            return
        if not found:
            if severity is ERROR and kind != "CodeableConcept" and "extension" not in value:
                run.error("code-invalid", f"a code of {bare} is required", place)
            elif severity is ERROR and "text" in value:
                run.error("code-invalid", f"a code of {bare} is required, not only a text", place)
            return
        answers = [None if members is None else _answer(members, system, code) for system, code in found]
        if True in answers:
            return
        if None in answers:
            if severity is ERROR:
                run.note("not-supported", f"not checked: {bare} is not (wholly) loaded", place)
            return
        shown = ", ".join(f"{system or ''}|{code}" for system, code in found)
        run.add(severity, "code-invalid", f"{shown[:200]} is not in the {_WORDS[severity]} value set {bare}", place)

    return check


_WORDS = {ERROR: "required", WARNING: "extensible"}


def _check_code(url: str, bare: str, severity: str, terminology: Terminology) -> Check:
    def check(value: Any, extra: Any, place: str, run: Run) -> None:
        if type(value) is not str:
            return
        members = terminology.members(url)
        answer = None if members is None else members.contains(None, value)
        if answer is None and severity is ERROR:
            run.note("not-supported", f"not checked: {bare} is not (wholly) loaded", place)
        elif answer is False:
            text = f"'{value[:60]}' is not in the {_WORDS[severity]} value set {bare}"
            run.add(severity, "code-invalid", text, place)

    return check


def _answer(members: Membership, system: str | None, code: str) -> bool | None:
    """Whether a coding is a member; one without a system never is."""
    return False if system is None else members.contains(system, code)


def _of_coding(value: Json) -> _Codes:
    code, system = value.get("code"), value.get("system")
    if isinstance(code, str):
        yield system if isinstance(system, str) else None, code


def _of_concept(value: Json) -> _Codes:
    codings = value.get("coding")
    for one in codings if isinstance(codings, list) else ():
        if isinstance(one, dict):
            yield from _of_coding(one)


def _of_quantity(value: Json) -> _Codes:
    yield from _of_coding(value)


def _of_reference(value: Json) -> _Codes:
    concept = value.get("concept")
    if isinstance(concept, dict):
        yield from _of_concept(concept)


_CODES: dict[str, Callable[[Json], _Codes]] = {
    "Coding": _of_coding,
    "CodeableConcept": _of_concept,
    "CodeableReference": _of_reference,
}


def coding_check(terminology: Terminology) -> Check:
    """What every Coding must keep to: its system is an absolute url, no value set, and has the code if it is known."""

    def check(value: Any, extra: Any, place: str, run: Run) -> None:
        system = value.get("system")
        if type(system) is not str:
            return
        if ":" not in system:
            run.error("invalid", "the system of a code must be an absolute url", f"{place}.system")
        elif "/ValueSet/" in system and terminology.is_value_set(system):
            run.error("invalid", f"{system} is a value set, not a code system", f"{place}.system")
        else:
            code = value.get("code")
            if type(code) is str and terminology.has(system, code) is False:
                run.add(*_unknown_code(system), f"{system[:100]} has no code '{code[:60]}'", f"{place}.code")

    return check


def _unknown_code(system: str) -> tuple[str, str]:
    """An error where R4 itself defines the codes; those of terminology.hl7.org (the v2 tables) have grown since."""
    return (ERROR if system.startswith("http://hl7.org/fhir/") else WARNING), "code-invalid"
