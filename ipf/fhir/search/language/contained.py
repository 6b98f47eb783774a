"""`_contained` and `_containedType`: tests on contained resources in, tests on the resources that contain them out.

The entries of contained resources (`ipf/fhir/index/contained.py`) answer equalities and beginnings of text values.
Everything else, and several conditions on one contained resource, is put to the contained resources themselves.

Source: https://hl7.org/fhir/R4/search.html#contained
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ipf.errors import Category, Problem
from ipf.fhir.index.contained import CONTAINED, contained_value
from ipf.fhir.search.predicate import inner
from ipf.fhir.search.values.parameter import any_of
from ipf.ports.queries.predicates import (
    NOTHING,
    AnyOf,
    Contained,
    FullText,
    Has,
    IdIn,
    LastUpdated,
    Linked,
    ListMember,
    ManyValues,
    Present,
    Test,
    TextAmong,
    TextEquals,
    TextPrefix,
)
from ipf.ports.queries.search import Query

WHICH, RETURNED = "_contained", "_containedType"
_WHICH, _RETURNED = ("false", "true", "both"), ("container", "contained")
_ON_WHOLE_RESOURCES = (Linked, Has, ListMember, FullText, LastUpdated)


@dataclass(frozen=True, slots=True)
class ContainedSearch:
    """What is searched: contained resources, and with `both` the others too; and what is returned of them."""

    both: bool
    returned: Literal["container", "contained"]


def read_contained(pairs: Sequence[tuple[str, str]]) -> tuple[ContainedSearch | None, list[tuple[str, str]]]:
    """The two parameters of a request (None: contained resources are not searched), and its others.  Problem VALUE."""
    found = {WHICH: "false", RETURNED: "container"}
    for name, value in pairs:
        if name in found:
            able = _WHICH if name == WHICH else _RETURNED
            if value not in able:
                raise Problem(Category.VALUE, f"search parameter {name}: write {' or '.join(able)}", name)
            found[name] = value
    others = [pair for pair in pairs if pair[0] not in found]
    if found[WHICH] == "false":
        return None, others
    return ContainedSearch(
        found[WHICH] == "both", "contained" if found[RETURNED] == "contained" else "container"
    ), others


def refuse_combinations(asked: ContainedSearch, query: Query) -> None:
    """Problem NOT_SUPPORTED when the search has what concerns resources of their own, or their pages."""
    for term in query.terms:
        if _concerns_whole_resources(term.test):
            text = "chains, _has, _list, _lastUpdated, _text and _content are not for contained resources"
            raise _refused(term.name, text)
    if query.includes:
        raise _refused("_include", "_include and _revinclude")
    if any(sort.kind not in ("id", "last_updated") for sort in query.sort):
        raise _refused("_sort", "containers are sorted by _lastUpdated or _id")


def _concerns_whole_resources(test: Test) -> bool:
    if isinstance(test, _ON_WHOLE_RESOURCES):
        return test != NOTHING
    return any(map(_concerns_whole_resources, inner(test)))


def of_containers(query: Query) -> tuple[Test, ...]:
    """The tests that a resource passes when it contains one that the query finds."""
    kind, tests = query.resource_type, tuple(term.test for term in query.terms)
    indexed = [found for test in tests if (found := _indexed(test, kind)) is not None]
    if not indexed:
        indexed.append(TextPrefix(CONTAINED, contained_value(kind, "", "")))
    is_answered = not tests or (len(tests) == 1 and _indexed(tests[0], kind) is not None)
    return tuple(indexed) if is_answered else (*indexed, Contained(kind, tests))


def _indexed(test: Test, kind: str) -> Test | None:
    """The test on the entries of contained resources; None where these cannot answer it."""

    def prefix(code: str, beginning: str) -> Test:
        return TextPrefix(CONTAINED, contained_value(kind, code, beginning))

    match test:
        case TextEquals(code, values):
            return TextEquals(CONTAINED, tuple(contained_value(kind, code, one) for one in values))
        case TextAmong(code, many):
            return TextAmong(CONTAINED, ManyValues(contained_value(kind, code, one) for one in many.values))
        case IdIn(ids):
            return TextEquals(CONTAINED, tuple(contained_value(kind, "", one) for one in ids))
        case TextPrefix(code, beginning, others):
            return any_of([prefix(one, beginning) for one in (code, *others)])
        case Present(code, "text"):
            return prefix(code, "")
        case AnyOf(tests):
            found = [one for each in tests if (one := _indexed(each, kind)) is not None]
            return any_of(found) if len(found) == len(tests) else None
    return test if test == NOTHING else None


def _refused(name: str, why: str) -> Problem:
    text = f"search parameter {name[:200]}: with {WHICH}=true or both this is not supported: {why}"
    return Problem(Category.NOT_SUPPORTED, text, name[:200])
