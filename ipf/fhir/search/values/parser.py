"""The parser of the value of a search parameter into a test, by the rules of FHIR search for its type.

A value arrives as it was sent, still with its backslashes; `split` cuts it at separators that are not escaped.  The
tests that leave are put on the parameter's sources (`ipf/fhir/index/sources.py`), in the values that indexing writes.

Source: https://hl7.org/fhir/R4/search.html#string, #token, #reference, #uri, #date, #number, #quantity, #composite
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal

from ipf.fhir import ucum
from ipf.fhir.index.composites import Component
from ipf.fhir.index.entries import clean, normalise, string_value, word_codes
from ipf.fhir.index.sources import Source, sources
from ipf.fhir.model import dates
from ipf.fhir.model.definitions import definitions
from ipf.fhir.search.values.composites import conjunction, parts_of
from ipf.fhir.search.values.hierarchies import by_url, of_version
from ipf.fhir.search.values.parameter import RequestedParameter, any_of, kind_of, on_each_code, split, unescape
from ipf.fhir.search.values.ranges import date_bounds, moment_bounds, number_bounds
from ipf.fhir.search.values.tokens import reference, token
from ipf.ports.queries.predicates import (
    Bounds,
    DateRange,
    LastUpdated,
    Not,
    Present,
    QuantityIn,
    QuantityRange,
    Test,
    TextContains,
    TextEquals,
    TextPrefix,
    TextSuffix,
)

_PREFIXED = re.compile(r"(eq|ne|gt|lt|ge|le|sa|eb|ap)?(.*)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,3})?", re.ASCII)


def build(requested: RequestedParameter, value: str) -> Test:
    """The test of a parameter with this value.  Problem VALUE or NOT_SUPPORTED names the parameter."""
    if requested.modifier == "missing":
        return _missing(requested, value)
    alternatives = [one for one in split(value, ",") if one]
    if not alternatives:
        raise requested.refuse("it has no value")
    make = _MAKERS[requested.parameter.type]
    test = any_of([test for one in alternatives for test in make(requested, one)])
    return Not(test) if requested.modifier in ("not", "not-in") else test


def last_updated(requested: RequestedParameter, value: str) -> Test:
    """The test of `_lastUpdated`: the instant of the current version against ranges."""
    if requested.modifier:
        raise requested.unsupported()
    return any_of([LastUpdated(moment_bounds(*_read_date(requested, one))) for one in split(value, ",") if one])


# `:missing`, strings, URIs


def _missing(requested: RequestedParameter, value: str) -> Test:
    if value not in ("true", "false"):
        raise requested.refuse("the modifier :missing takes true or false")
    present = any_of([test for code in requested.source.codes for test in _present(requested, code)])
    return Not(present) if value == "true" else present


def _present(requested: RequestedParameter, code: str) -> list[Test]:
    source = requested.source
    if source.refers_to:
        return [TextPrefix(code, f"{source.refers_to}/"), TextContains(code, f"/{source.refers_to}/")]
    if source.system:
        return [TextSuffix(code, f"\t{clean(source.system)}")]
    return [Present(code, kind_of(requested.parameter))]


def _string(requested: RequestedParameter, value: str) -> list[Test]:
    text = unescape(value)
    normal = normalise(text)
    if not normal:
        raise requested.refuse("it has no value")
    if requested.modifier == "exact":
        return on_each_code(requested, lambda code: TextEquals(code, (string_value(text),)))
    if requested.modifier == "contains":
        return on_each_code(requested, lambda code: TextContains(code, normal))
    if requested.modifier:
        raise requested.unsupported()
    return on_each_code(requested, lambda code: TextPrefix(code, normal, word_codes(code)))


def _uri(requested: RequestedParameter, value: str) -> list[Test]:
    text = clean(unescape(value))
    if not requested.modifier:
        exact = on_each_code(requested, lambda code: TextEquals(code, (text,)))
        return [*exact, *of_version(requested, unescape(value))] if "|" in text else exact
    if requested.modifier not in ("above", "below"):
        raise requested.unsupported()
    return by_url(requested, unescape(value))


# Dates


def _date(requested: RequestedParameter, value: str) -> list[Test]:
    if requested.modifier:
        raise requested.unsupported()
    bounds = date_bounds(*_read_date(requested, value))
    return on_each_code(requested, lambda code: DateRange(code, bounds))


def overlapping(requested: RequestedParameter, value: str) -> Test:
    """The test of a date whose time overlaps that of `value`."""
    _, lo, hi = _read_date(requested, value)
    bounds = date_bounds("ap", lo, hi)
    return any_of(on_each_code(requested, lambda code: DateRange(code, bounds)))


def _read_date(requested: RequestedParameter, value: str) -> tuple[str, int, int]:
    """Prefix, and the range of the date; a plus sign that became a blank on the way is put back."""
    found = _PREFIXED.fullmatch(unescape(value))
    prefix, text = (found[1] or "eq", found[2]) if found else ("eq", value)
    span = dates.date_range(text.strip().replace(" ", "+"))
    if span is None:
        raise requested.refuse("it is no date: write for example 2024, 2024-05, 2024-05-31 or 2024-05-31T10:00:00Z")
    if prefix != "ap":
        return prefix, *span
    if requested.now is None:
        raise requested.refuse("the prefix ap has no meaning here, since it depends on the time of asking")
    margin = abs(dates.microseconds(requested.now) - span[0]) // 10
    return prefix, span[0] - margin, span[1] + margin


# Numbers and quantities


def _number(requested: RequestedParameter, value: str) -> list[Test]:
    if requested.modifier:
        raise requested.unsupported()
    bounds = _read_number(requested, unescape(value))
    return on_each_code(requested, lambda code: QuantityRange(code, bounds))


def _quantity(requested: RequestedParameter, value: str) -> list[Test]:
    if requested.modifier:
        raise requested.unsupported()
    parts = [unescape(one) for one in split(value, "|")]
    if len(parts) not in (1, 3):
        raise requested.refuse("a quantity is written number, number|system|code or number||code")
    bounds = _read_number(requested, parts[0])
    system, unit = (clean(one) for one in parts[1:]) if len(parts) == 3 else ("", "")
    if system == ucum.SYSTEM and unit:
        if not ucum.is_unit(unit):
            raise requested.refuse(ucum.refusal(unit))
        return on_each_code(requested, lambda code: QuantityIn(code, bounds, unit))
    prefix = f"{system}\t{unit}\t" if system and unit else f"{system}\t" if system else ""
    part = f"\t{unit}\t" if unit and not system else ""
    return on_each_code(requested, lambda code: QuantityRange(code, bounds, prefix, part))


def _read_number(requested: RequestedParameter, text: str) -> Bounds:
    found = _PREFIXED.fullmatch(text)
    prefix, digits = (found[1] or "eq", found[2]) if found else ("eq", text)
    if _NUMBER.fullmatch(digits) is None:
        raise requested.refuse("it is no number")
    return number_bounds(prefix, Decimal(digits))


# Composites


def _composite(requested: RequestedParameter, value: str) -> list[Test]:
    if requested.modifier:
        raise requested.unsupported()
    values, found = split(value, "$"), requested.source.composite
    if len(values) != len(requested.parameter.components) or not all(values):
        raise requested.refuse(f"write {len(requested.parameter.components)} values with $ between them")
    if found is None or not (found.conjunctions or found.nested):
        raise requested.refuse("its components are not known here")
    tests = []
    for components in found.conjunctions:
        known = sources(requested.resource_type)
        pairs = zip(components, values, strict=True)
        tests.append(conjunction([_as_component(requested, one, known[one.code], text) for one, text in pairs]))
    bare = Source(("",))
    for code, _, components in found.nested:
        for ordered in _orders(requested, components, values):
            tests.append(
                parts_of(code, components, ordered, lambda one, text: _as_component(requested, one, bare, text))
            )
    return tests


def _orders(requested: RequestedParameter, components: Sequence[Component], values: list[str]) -> list[list[str]]:
    """The values in the order of the components' elements, and in that of their parameters if it is another.

    R4 names the parameters of `relationship` (relatesto, relation) in the other order than their elements (code,
    target): `replaces$DocumentReference/1` and `DocumentReference/1$replaces` are the same search.
    """
    by_url = {one.url: one.code for one in definitions().search_parameters(requested.resource_type).values()}
    named = [by_url.get(url, "") for url, _ in requested.parameter.components]
    meant = [one.code for one in components]
    if named == meant or sorted(named) != sorted(meant):
        return [values]
    return [values, [values[named.index(code)] for code in meant]]


def _as_component(requested: RequestedParameter, component: Component, source: Source, value: str) -> Test:
    parameter = definitions().search_parameters(requested.resource_type)[component.code]
    if source.codes == ("",):
        source = replace(source, paths=frozenset(component.paths))
    one = replace(requested, modifier="", parameter=parameter, source=source)
    return any_of(_MAKERS[component.type](one, value))


_MAKERS: dict[str, Callable[[RequestedParameter, str], list[Test]]] = {
    "composite": _composite,
    "date": _date,
    "number": _number,
    "quantity": _quantity,
    "reference": reference,
    "string": _string,
    "token": token,
    "uri": _uri,
}
