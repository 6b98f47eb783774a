"""Composite values in, tests out: `code$value` as a conjunction, or as parts of one entry of the index.

Source: https://hl7.org/fhir/R4/search.html#composite
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ipf.fhir.index.composites import Component, width
from ipf.fhir.index.entries import component_text
from ipf.ports.queries.predicates import AllOf, AnyOf, Test, TextEquals, TextParts, TextPrefix

Alternatives = Callable[[Component, str], Test]
"""The test for a value of the component's parameter, under the code ""."""


def parts_of(code: str, components: Sequence[Component], values: Sequence[str], read: Alternatives) -> Test:
    """All `values` in one entry of the composite `code`."""
    field, parts = 0, []
    for component, value in zip(components, values, strict=True):
        parts.append((field, _shortened(read(component, value), component.type == "string")))
        field += width(component.type)
    return TextParts(code, tuple(parts))


def conjunction(tests: Sequence[Test]) -> Test:
    """All of these."""
    return tests[0] if len(tests) == 1 else AllOf(tuple(tests))


def _shortened(test: Test, is_string: bool) -> Test:
    """Values as they are written in composites."""
    match test:
        case TextEquals(code, values):
            return TextEquals(code, tuple(sorted({component_text(one, is_string) for one in values})))
        case TextPrefix(code, prefix):
            return TextPrefix(code, component_text(prefix, is_string))
        case AnyOf(tests):
            return AnyOf(tuple(_shortened(one, is_string) for one in tests))
    return test
