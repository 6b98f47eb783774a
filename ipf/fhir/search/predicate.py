"""Functions on the tests of a search (`ipf/ports/queries/predicates.py`).

Source: https://hl7.org/fhir/R4/search.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ipf.ports.queries.predicates import (
    NOTHING,
    AllOf,
    AnyOf,
    CodedText,
    CodeIn,
    Contained,
    ContextOutside,
    FullText,
    Has,
    Linked,
    ListMember,
    Near,
    Not,
    ReferenceIn,
    Test,
    TextEquals,
    TextPrefix,
    TypedIdentifier,
)
from ipf.ports.queries.search import Query

_HOLDERS = (AllOf, AnyOf, Not, Linked, Has)


def inner(test: Test) -> tuple[Test, ...]:
    """The tests that a test is put together from, of this or of other resources."""
    match test:
        case AllOf(tests) | AnyOf(tests):
            return tests
        case Linked() | Has():
            return test.tests
        case Not(one):
            return (one,)
    return ()


def within(test: Test, *kinds: type[object]) -> bool:
    """Whether the test is, or holds, one of these kinds."""
    if isinstance(test, kinds):
        return True
    return isinstance(test, _HOLDERS) and any(within(one, *kinds) for one in inner(test))


def needs_store(test: Test) -> bool:
    """Whether the answer takes other resources, or a terminology."""
    return within(test, Linked, Has, CodeIn, ReferenceIn, ListMember)


def needs_resource(test: Test) -> bool:
    """Whether the answer takes the resource itself: index entries only come near to it."""
    return within(test, CodedText, FullText, Near, TypedIdentifier, ContextOutside, Contained)


def parameters_that_need_store(query: Query) -> tuple[str, ...]:
    """Names of the parameters of a search that need other resources or a terminology."""
    return tuple(term.name for term in query.terms if needs_store(term.test))


def query_needs_resource(query: Query) -> bool:
    """Whether a match needs the resource itself besides its index entries."""
    return any(needs_resource(term.test) for term in query.terms)


def rewritten(test: Test, change: Callable[[Test], Test]) -> Test:
    """The test with `change` applied to all that it holds, innermost first, and to itself."""
    match test:
        case AllOf(tests):
            test = AllOf(tuple(rewritten(one, change) for one in tests))
        case AnyOf(tests):
            test = AnyOf(tuple(rewritten(one, change) for one in tests))
        case Linked(code, resource_type, tests):
            test = Linked(code, resource_type, tuple(rewritten(one, change) for one in tests))
        case Has(resource_type, code, tests):
            test = Has(resource_type, code, tuple(rewritten(one, change) for one in tests))
        case Not(one):
            test = Not(rewritten(one, change))
    return change(test)


def by_beginnings(test: Test) -> Test:
    """The test with names found by the beginnings of their parts alone, not by later words."""
    return rewritten(test, lambda one: replace(one, others=()) if isinstance(one, TextPrefix) else one)


def tests_equal(code: str, values: Iterable[str]) -> Test:
    """`TextEquals` for any number of values; with none, what no resource passes."""
    found = tuple(sorted(set(values)))
    return TextEquals(code, found) if found else NOTHING
