"""Evaluation of a search on one resource in memory, with the same result as the SQL of the store.

Subscription criteria are evaluated on changes, and conditions on the resources of one transaction.  Index entries
suffice; `:text`, `:of-type` and `_contained` read the resource too.  Tests that read other resources call `others`.
Without it they raise an error: callers refuse such queries first (`parameters_that_need_store`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol

from ipf.errors import Category, Problem
from ipf.fhir.index.contained import contained_in
from ipf.fhir.index.extract import extract
from ipf.fhir.search.evaluation.texts import has_text, has_typed_identifier
from ipf.fhir.search.evaluation.ucum_bounds import in_unit, ucum_code
from ipf.fhir.search.values.full_text import has_words
from ipf.fhir.search.values.near import is_near
from ipf.ports.queries.index import Entries
from ipf.ports.queries.predicates import (
    AllOf,
    AnyOf,
    Bounds,
    CodedText,
    Contained,
    ContextOutside,
    DateRange,
    FullText,
    Has,
    IdAmong,
    IdIn,
    LastUpdated,
    Linked,
    Near,
    Not,
    Present,
    QuantityIn,
    QuantityRange,
    Test,
    TextAmong,
    TextContains,
    TextEnds,
    TextEquals,
    TextParts,
    TextPrefix,
    TextSuffix,
    TypedIdentifier,
)
from ipf.ports.queries.search import Query

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class OtherResources(Protocol):
    """Other resources, for chains."""

    def passes(self, resource_type: str, id: str, tests: Sequence[Test]) -> bool:
        """Whether there is such a live resource and it passes all tests."""

    def referred(self, resource_type: str, code: str, tests: Sequence[Test], reference: str) -> bool:
        """Whether a live resource of this type, which passes all tests, has `reference` under `code`."""


def matches(
    query: Query,
    entries: Entries,
    *,
    id: str,
    last_updated: datetime,
    resource: dict[str, Any] | None = None,
    others: OtherResources | None = None,
) -> bool:
    """All terms of `query` hold of the resource with these entries (its type is not looked at).

    `resource`: parsed; needed when `query_needs_resource(query)`.
    """
    candidate = Candidate(query.resource_type, entries, id, last_updated, resource, others)
    return all(candidate.passes(term.test) for term in query.terms)


@dataclass(frozen=True, slots=True)
class Candidate:
    """What tests are put to."""

    resource_type: str
    entries: Entries
    id: str
    last_updated: datetime
    resource: dict[str, Any] | None = None
    others: OtherResources | None = None

    def passes(self, test: Test) -> bool:
        """Whether one test holds."""
        match test:
            case TextEquals(code, values):
                texts = self.entries.texts
                return any((code, value) in texts for value in values)
            case TextAmong(code, many):
                return any(one == code and value in many.values for one, value in self.entries.texts)
            case IdIn(ids):
                return self.id in ids
            case IdAmong(many):
                return self.id in many.values
            case LastUpdated(bounds):
                return _within(bounds, at=self.last_updated)
            case AllOf(tests):
                return all(self.passes(one) for one in tests)
            case AnyOf(tests):
                return any(self.passes(one) for one in tests)
            case Not(inner):
                return not self.passes(inner)
            case TextPrefix(code, prefix, others) if others:
                codes = (code, *others)
                return any(one in codes and value.startswith(prefix) for one, value in self.entries.texts)
            case TextPrefix() | TextSuffix() | TextContains() | TextEnds() | TextParts():
                return any(code == test.code and text_passes(test, value) for code, value in self.entries.texts)
            case DateRange(code, bounds):
                return any(one == code and _within(bounds, lo=lo, hi=hi) for one, lo, hi in self.entries.dates)
            case QuantityRange() | QuantityIn():
                return any(
                    code == test.code and quantity_passes(test, lo, hi, unit)
                    for code, lo, hi, unit in self.entries.quantities
                )
        return self._other(test)

    def _other(self, test: Test) -> bool:
        match test:
            case Present(code, kind):
                return self._present(code, kind)
            case Linked(code, resource_type, tests):
                prefix, known = f"{resource_type}/", self._other_resources()
                return any(
                    known.passes(resource_type, value.removeprefix(prefix), tests)
                    for one, value in self.entries.texts
                    if one == code and value.startswith(prefix)
                )
            case Has(resource_type, code, tests):
                return self._other_resources().referred(resource_type, code, tests, f"{self.resource_type}/{self.id}")
            case FullText():
                return has_words(test, self._whole())
            case Near():
                return is_near(test, self._whole())
            case CodedText():
                return has_text(test, self._whole())
            case Contained():
                return bool(self.contained(test))
            case ContextOutside(patients):
                context = (self._whole().get("securityContext") or {}).get("reference", "")
                return not context or (context.startswith("Patient/") and context not in patients.values)
            case TypedIdentifier():
                return has_typed_identifier(test, self._whole())
        raise Problem(Category.INTERNAL, f"{type(test).__name__} cannot be answered here")

    def contained(self, test: Contained) -> list[dict[str, Any]]:
        """The contained resources that pass."""
        of_type = [one for one in contained_in(self._whole()) if one["resourceType"] == test.resource_type]
        parts = [
            Candidate(test.resource_type, extract(one), str(one.get("id")), self.last_updated, one) for one in of_type
        ]
        return [one for one, part in zip(of_type, parts, strict=True) if all(map(part.passes, test.tests))]

    def _other_resources(self) -> OtherResources:
        if self.others is None:
            raise Problem(Category.INTERNAL, "a query that needs other resources was put to one resource")
        return self.others

    def _whole(self) -> dict[str, Any]:
        if self.resource is None:
            raise Problem(Category.INTERNAL, "a query that needs the resource was put to its index entries")
        return self.resource

    def _present(self, code: str, kind: str) -> bool:
        if kind == "text":
            return any(one == code for one, _ in self.entries.texts)
        if kind == "date":
            return any(one == code for one, _, _ in self.entries.dates)
        return any(one == code for one, _, _, _ in self.entries.quantities)


def text_passes(test: Test, value: str) -> bool:
    """Whether one text value satisfies a test on texts."""
    match test:
        case TextEquals(_, values):
            return value in values
        case TextPrefix(_, prefix):
            return value.startswith(prefix)
        case TextSuffix(_, suffix):
            return value.endswith(suffix)
        case TextContains(_, part):
            return part in value.partition("\t")[0]
        case TextEnds(_, part):
            return value.partition("\t")[0].endswith(part)
        case TextParts(_, parts):
            fields = value.split("\n")
            return all(_part_passes(one, fields[field:]) for field, one in parts)
    raise Problem(Category.INTERNAL, f"{type(test).__name__} is no test on texts")


def quantity_passes(test: QuantityRange | QuantityIn, lo: Any, hi: Any, unit: str) -> bool:
    """Whether one quantity satisfies a test."""
    if isinstance(test, QuantityIn):
        code = ucum_code(unit)
        bounds = None if code is None else in_unit(test.bounds, test.unit, code)
        return bounds is not None and _within(bounds, lo=lo, hi=hi)
    return unit.startswith(test.unit_prefix) and test.unit_part in unit and _within(test.bounds, lo=lo, hi=hi)


def _part_passes(test: Test, fields: list[str]) -> bool:
    match test:
        case DateRange(_, bounds):
            return _within(bounds, lo=int(fields[0]), hi=int(fields[1]))
        case QuantityRange() | QuantityIn():
            return quantity_passes(test, Decimal(fields[0]), Decimal(fields[1]), fields[2])
        case AnyOf(tests):
            return any(_part_passes(one, fields) for one in tests)
        case AllOf() | Not() | LastUpdated():
            return False  # only `NOTHING` comes here
    return text_passes(test, fields[0])


def _within(bounds: Bounds, **columns: Any) -> bool:
    """One entry's columns satisfy all bounds of one alternative."""
    return any(all(_COMPARE[bound.operator](columns[bound.column], bound.value) for bound in every) for every in bounds)
