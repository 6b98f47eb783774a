"""Selections of Consents as tests on resources of one type, which limit searches and decide on single resources.

True and False stand for tests that all or no resources pass.  A code is looked for in all coded elements of a type that
have a search parameter, a reference in all references that have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from ipf.errors import Problem
from ipf.fhir.model.definitions import definitions
from ipf.fhir.search.language.terms import TermReader, Unsupported
from ipf.fhir.search.parameters.compartments import compartments
from ipf.fhir.search.predicate import rewritten
from ipf.fhir.search.values.parameter import any_of
from ipf.ports.queries.predicates import (
    NOTHING,
    AllOf,
    ContextOutside,
    IdAmong,
    IdIn,
    ManyValues,
    Not,
    Test,
    TextAmong,
    TextEquals,
)
from ipf.security.privacy.consent import Selection
from ipf.security.privacy.labels import CONFIDENTIALITY, ORDER, Label, at_least, tokens_of

Condition = Test | bool

_ITSELF = "{def}"
_OF_A_PATIENT = ("patient", "subject")  # parameters of types that are in no compartment of a Patient: Task, Device
_ANY_ID = "Patient/x"
_NORMAL = "N"  # the confidentiality of a resource without a label of it


def both(conditions: Iterable[Condition]) -> Condition:
    """All of them."""
    tests: list[Test] = []
    for one in conditions:
        if one is False:
            return False
        if one is not True:
            tests.append(one)
    return True if not tests else tests[0] if len(tests) == 1 else AllOf(tuple(tests))


def either(conditions: Iterable[Condition]) -> Condition:
    """At least one of them."""
    tests: list[Test] = []
    for one in conditions:
        if one is True:
            return True
        if one is not False:
            tests.append(one)
    return any_of(tests) if tests else False


def negated(condition: Condition) -> Condition:
    """The opposite."""
    if isinstance(condition, bool):
        return not condition
    return condition.test if isinstance(condition, Not) else Not(condition)


class Patients:
    """Patients by their logical ids, as values of references and as ids."""

    def __init__(self, ids: Iterable[str]) -> None:
        self.ids = ManyValues(ids)
        self.references = ManyValues(f"Patient/{id}" for id in self.ids.values)

    def without(self, id: str) -> Patients:
        """The others."""
        return Patients(self.ids.values - {id}) if id in self.ids.values else self


def of_patients(resource_type: str, patients: Patients) -> Condition:
    """Whether a resource of this type belongs to one of the patients: its compartment, and what names it as patient.

    A Binary belongs to whom its security context belongs; one whose context is no Patient counts as belonging.
    """
    if resource_type == "Binary":
        return Not(ContextOutside(patients.references))
    found: list[Test] = [IdAmong(patients.ids)] if resource_type == "Patient" else []
    found += [TextAmong(code, patients.references) for code in _patient_codes(resource_type)]
    return either(found)


@lru_cache(maxsize=512)
def _patient_codes(resource_type: str) -> tuple[str, ...]:
    """The codes of the index whose values are references to the patients that a resource belongs to."""
    named = [code for code in compartments()["Patient"].get(resource_type, ()) if code != _ITSELF]
    codes: dict[str, None] = {}

    def note(test: Test) -> Test:
        if isinstance(test, TextEquals):
            codes[test.code] = None
        return test

    for test in _read(resource_type, (*named, *_OF_A_PATIENT), _ANY_ID):
        rewritten(test, note)
    return tuple(codes)


def selected(selection: Selection, resource_type: str, *, is_permission: bool) -> Condition:
    """Whether a provision concerns a resource of this type.

    A denial takes all that it may mean, a permission no more than it surely means.
    """
    if is_permission and selection.is_partial:
        return False
    return both((
        _of_class(selection, resource_type),
        _with_codes(selection.codes, resource_type),
        _permitted_labels(selection.labels) if is_permission else _denied_labels(selection.labels),
        _data(selection.data, resource_type),
    ))  # fmt: skip


def _of_class(selection: Selection, resource_type: str) -> Condition:
    if not (selection.types or selection.profiles):
        return True
    profiles = (one for url in selection.profiles for one in _read(resource_type, ("_profile",), url))
    return either((resource_type in selection.types, *profiles))


def _with_codes(codes: tuple[str, ...], resource_type: str) -> Condition:
    if not codes:
        return True
    parameters = definitions().search_parameters(resource_type).values()
    names = [one.code for one in parameters if one.type == "token" and not one.code.startswith("_")]
    return either(_read(resource_type, names, ",".join(codes)))


def _denied_labels(labels: tuple[Label, ...]) -> Condition:
    """With one of the labels; of confidentiality, with this or more.  A resource without it counts as N."""
    if not labels:
        return True
    found: list[Condition] = []
    for system, code in labels:
        if not _is_confidentiality((system, code)):
            found.append(_labelled([(system, code)]))
        elif ORDER.index(code) <= ORDER.index(_NORMAL):
            lower = ORDER[: ORDER.index(code)]
            found.append(negated(_labelled((CONFIDENTIALITY, one) for one in lower)))
        else:
            found.append(_labelled((CONFIDENTIALITY, one) for one in at_least(code)))
    return either(found)


def _permitted_labels(labels: tuple[Label, ...]) -> Condition:
    """Of confidentiality, with no more than the highest named; of the others, with one of those named."""
    codes = [ORDER.index(one[1]) for one in labels if _is_confidentiality(one)]
    others = [one for one in labels if not _is_confidentiality(one)]
    higher = [(CONFIDENTIALITY, one) for one in ORDER[max(codes) + 1 :]] if codes else []
    is_low = max(codes, default=0) < ORDER.index(_NORMAL) and bool(codes)
    return both((
        not is_low or _labelled((CONFIDENTIALITY, one) for one in ORDER[: ORDER.index(_NORMAL)]),
        negated(_labelled(higher)) if higher else True,
        _labelled(others) if others else True,
    ))  # fmt: skip


def _is_confidentiality(label: Label) -> bool:
    system, code = label
    return code in ORDER and (not system or bool(set(tokens_of([label])) & set(tokens_of([(CONFIDENTIALITY, code)]))))


def _labelled(labels: Iterable[Label]) -> Condition:
    values = tokens_of(labels)
    return TextEquals("_security", values) if values else False


def _data(data: tuple[tuple[str, str], ...], resource_type: str) -> Condition:
    if not data:
        return True
    found: list[Condition] = []
    for meaning, reference in data:
        kind, _, id = reference.partition("/")
        if kind == resource_type:
            found.append(IdIn((id,)))
        if meaning == "dependents":
            parameters = definitions().search_parameters(resource_type).values()
            names = [one.code for one in parameters if one.type == "reference" and kind in (one.targets or (kind,))]
            found += _read(resource_type, names, reference)
    return either(found)


def _read(resource_type: str, names: Iterable[str], value: str) -> Iterator[Test]:
    """The tests of these parameters with a value, without those that cannot be tested or that nothing passes."""
    for name in dict.fromkeys(names):
        try:
            test = TermReader(None, name).read(resource_type, name, value)
        except (Unsupported, Problem):
            continue
        if test != NOTHING:
            yield test
