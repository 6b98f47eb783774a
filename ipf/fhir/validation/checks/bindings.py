"""The check of bindings: whether codes are in the bound value sets.

`required`: a code outside the value set is an error; when membership cannot be decided, the finding is an information.
`extensible`: a code outside the value set is a warning, and an error outside the maximum value set.  `preferred` and
`example` are not checked.  Displays are not compared.

Source: https://hl7.org/fhir/R4/terminologies.html#strength
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ipf.fhir import ucum
from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.valueset import Membership
from ipf.fhir.validation.findings import ERROR, WARNING, Check, Json, Run
from ipf.fhir.validation.proposals import code_meant, code_of_system_meant, system_meant

MAX_VALUE_SET = "http://hl7.org/fhir/StructureDefinition/elementdefinition-maxValueSet"
_CODED = frozenset(("code", "string", "uri", "Coding", "CodeableConcept", "Quantity", "CodeableReference"))
QUANTITIES = frozenset(("Duration", "Age", "Count", "Distance", "SimpleQuantity", "MoneyQuantity"))
_Codes = Iterable[tuple[str | None, str]]


def binding_checks(declared: Json, kind: str, terminology: Terminology) -> list[Check]:
    """The checks of a binding on values of type `kind`."""
    if kind not in _CODED and kind not in QUANTITIES:
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

    def check(value: Any, extra: Any, location: str, run: Run) -> None:
        if type(value) is not dict:
            return
        members = terminology.members(url)
        found = list(codes(value))
        if not found and codes is _of_quantity:
            if severity is ERROR:  # counts, such as tablets, have no coded unit
                run.warn("code-invalid", f"a unit from {bare} is expected", location)
            return
        if not found:
            if severity is ERROR and kind != "CodeableConcept" and "extension" not in value:
                run.error("code-invalid", f"a code from {bare} is required", location)
            elif severity is ERROR and "text" in value:
                run.error("code-invalid", f"a code from {bare} is required; a text alone is not enough", location)
            return
        results = [None if members is None else _answer(members, system, code) for system, code in found]
        if True in results:
            return
        if None in results:
            if severity is ERROR:
                run.note("not-supported", f"not checked: {bare} is not completely loaded", location)
            return
        shown = ", ".join(f"{system or ''}|{code}" for system, code in found)
        text = f"{shown[:200]} is not in the {_WORDS[severity]} value set {bare}"
        run.add(severity, "code-invalid", text, location, lambda: code_meant(members, *found[0]))

    return check


_WORDS = {ERROR: "required", WARNING: "extensible"}


def _check_code(url: str, bare: str, severity: str, terminology: Terminology) -> Check:
    def check(value: Any, extra: Any, location: str, run: Run) -> None:
        if type(value) is not str:
            return
        members = terminology.members(url)
        result = None if members is None else members.contains(None, value)
        if result is None and severity is ERROR:
            run.note("not-supported", f"not checked: {bare} is not completely loaded", location)
        elif result is False:
            text = f"'{value[:60]}' is not in the {_WORDS[severity]} value set {bare}"
            run.add(severity, "code-invalid", text, location, lambda: code_meant(members, None, value))

    return check


def _answer(members: Membership, system: str | None, code: str) -> bool | None:
    """Whether a coding is a member; a coding without a system is not."""
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
    """The check of every Coding: its system is an absolute url, not a value set, and has the code if it is loaded."""

    def check(value: Any, extra: Any, location: str, run: Run) -> None:
        system = value.get("system")
        if type(system) is not str:
            return
        if ":" not in system:
            text = "the system of a code must be an absolute url"
            run.error("invalid", text, f"{location}.system", lambda: system_meant(system))
        elif "/ValueSet/" in system and terminology.is_value_set(system):
            run.error("invalid", f"{system} is a value set, not a code system", f"{location}.system")
        else:
            code = value.get("code")
            if type(code) is str and terminology.has(system, code) is False:
                text = f"{system[:100]} has no code '{code[:60]}'"
                propose = partial(code_of_system_meant, terminology, system, code)
                run.add(*_unknown_code(system), text, f"{location}.code", propose)
            elif system_meant(system) is not None:
                text = f"the code system {system[:100]} is not known"
                run.warn("code-invalid", text, f"{location}.system", lambda: system_meant(system))

    return check


def unit_check(value: Any, extra: Any, location: str, run: Run) -> None:
    """The check of every Quantity in UCUM units: the code is UCUM's.  A required binding adds an error."""
    code = value.get("code")
    if value.get("system") != ucum.SYSTEM or type(code) is not str:
        return
    try:
        ucum.parse(code)
    except ucum.UnitError as error:
        run.warn("code-invalid", str(error), f"{location}.code", lambda: ucum.proposal(code))


def _unknown_code(system: str) -> tuple[str, str]:
    """An error for systems of R4 itself; a warning for others, since terminology.hl7.org has added codes after R4."""
    return (ERROR if system.startswith("http://hl7.org/fhir/") else WARNING), "code-invalid"
