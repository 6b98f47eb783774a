"""The short cut of invariants, which skips those about absent elements, against a full evaluation.

Every constraint of R4 and of the shipped guides is evaluated on generated objects of its type: with each element
alone, and with several at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.fhirpath import FhirPathError, Host, compile
from ipf.fhir.fhirpath.items import operators
from ipf.fhir.model.definitions import Element, definitions
from ipf.fhir.profiles.library import PUBLISHERS, Structures, own_urls
from ipf.fhir.validation.checks.invariants import NATIVE, STRUCTURAL, invariant
from ipf.fhir.validation.findings import Run, Scope
from ipf.ports import Json
from tests.fhir.validation.rules import Base, found, with_

_TEXTS = {
    "boolean": [True, False],
    "integer": [0, 3],
    "positiveInt": [1],
    "unsignedInt": [0],
    "decimal": [1.5, -1],
    "date": ["2024-01-02"],
    "dateTime": ["2024-01-02", "2023"],
    "instant": ["2024-01-02T03:04:05Z"],
    "time": ["10:00:00"],
    "base64Binary": ["YWJj"],
    "uri": ["http://example.org/a", "#a"],
    "code": ["a", "entered-in-error", "proposed", "deprecated"],
    "xhtml": ['<div xmlns="http://www.w3.org/1999/xhtml">a</div>'],
}
_ROOTS: list[Json] = [
    {"resourceType": "Patient", "id": "a"},
    {"resourceType": "Basic", "contained": [{"resourceType": "Patient", "id": "a"}], "subject": {"reference": "#a"}},
]


def constraints() -> Iterator[tuple[Json, str]]:
    """Each constraint of the shipped definitions and the type, or type path, on which it is evaluated."""
    structures, seen = Structures(), set[tuple[str, str, str]]()
    for url in own_urls(*PUBLISHERS):
        for element in structures.snapshot(url):
            codes = [str(one["code"]) for one in element.get("type", ())] or [element["path"]]
            rules = structures.rules(url) if "." not in element["path"] else []
            for code in codes:
                kind = element["path"] if code in ("BackboneElement", "Element") else code
                for declared in [*element.get("constraint", ()), *rules]:
                    text = declared.get("expression")
                    if not text or declared["key"] in STRUCTURAL or declared["key"] in NATIVE:
                        continue
                    if definitions().members(kind) and (declared["key"], text, kind) not in seen:
                        seen.add((declared["key"], text, kind))
                        yield declared, kind


def value_of(kind: str, random: Random, depth: int) -> Any:
    """A value of a type."""
    if kind in definitions().primitive_types:
        return random.choice(_TEXTS.get(kind, ["a", "http://example.org/b"]))
    if kind in ("Resource", "DomainResource"):
        return {"resourceType": "Patient", "id": "a"}
    members = list(definitions().members(kind).values())
    made: Json = {"resourceType": kind} if kind in definitions().resource_types else {}
    for element in random.sample(members, min(len(members), random.randint(1, 4))) if depth else ():
        made |= member_of(element, random, depth - 1)
    return made or {"id": "x"}


def member_of(element: Element, random: Random, depth: int) -> Json:
    """One element with one value or two."""
    kind = random.choice(element.types)
    many = [value_of(kind, random, depth) for _ in range(random.choice((1, 2)) if element.many else 1)]
    name = element.json_name(kind)
    if kind in definitions().primitive_types and random.random() < 0.1:
        extra = {"extension": [{"url": "http://example.org/a", "valueString": "a"}]}
        return {f"_{name}": [extra] if element.many else extra}
    return {name: many if element.many else many[0]}


def objects_of(kind: str, random: Random) -> Iterator[Json]:
    """Objects of a type: each element alone, and several at once."""
    empty: Json = {"resourceType": kind} if kind in definitions().resource_types else {"id": "x"}
    yield empty
    members = list(definitions().members(kind).values())
    for element in members:
        for _ in range(4):
            yield {**empty, **member_of(element, random, 2)}
    for _ in range(30):
        made = dict(empty)
        for element in random.sample(members, random.randint(1, len(members))):
            made |= member_of(element, random, 2)
        yield made


class ShortCutTests(TestCase):
    def test_the_short_cut_agrees_with_a_full_evaluation(self) -> None:
        known = list(constraints())
        self.assertGreater(len(known), 250)
        objects: dict[str, list[Json]] = {}
        broken = 0
        for declared, kind in known:
            for value in objects.setdefault(kind, list(objects_of(kind, Random(kind)))):
                for root in _ROOTS:
                    resource = value if "resourceType" in value else root
                    fully = self.full(declared, kind, value, resource)
                    run = Run(Scope(resource, resource, lambda reference: None, "here"))
                    check = invariant(declared, kind, lambda run: Host())
                    assert check is not None
                    check(value, None, "here", run)
                    broken += fully is False
                    if fully is not None:
                        is_broken = any(one.code == "invariant" for one in run.findings)
                        self.assertEqual(is_broken, not fully, (declared["key"], kind, value))
        self.assertGreater(broken, 1000)

    def full(self, declared: Json, kind: str, value: Json, resource: Json) -> bool | None:
        """The result of the constraint; None if it cannot be evaluated."""
        variables = {"resource": resource, "rootResource": resource}
        try:
            expression = compile(declared["expression"], base_type=kind)
            return operators.truth(expression.evaluate(value, variables, host=Host())) is not False
        except FhirPathError:
            return None


class InvariantsByTypeNameTests(Base):
    def test_paths_that_begin_with_the_name_of_the_type(self) -> None:
        """R4's app-4: only a cancelled Appointment has a reason for that."""
        booked = {"resourceType": "Appointment", "status": "booked", "participant": [{"status": "accepted"}]}
        reason = {"cancelationReason": {"text": "x"}}
        times = {"start": "2024-01-02T03:04:05Z", "end": "2024-01-02T03:14:05Z", "participant": [
            {"status": "accepted", "actor": {"reference": "Patient/1"}}]}  # fmt: skip
        self.assertEqual(found(with_(booked, **times)), [])
        self.assertEqual(found(with_(booked, **times, **reason)), [("invariant", "Appointment")])
        self.assertEqual(found(with_(booked, **times, **reason, status="cancelled")), [])
