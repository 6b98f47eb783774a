"""`_typeFilter` of `$export`: searches that select resources of their types.

`_typeFilter=Observation?code=1,Observation?code=2&_typeFilter=Patient?gender=male`: filters of one type add up, and a
type without a filter is exported whole.  A comma separates filters where a type follows it; in a value it stays.  A
filter tests the resource itself only.

Source: https://hl7.org/fhir/uv/bulkdata/STU2/export.html#_typefilter-query-parameter
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ipf.errors import Category, Problem
from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import loads
from ipf.fhir.search.evaluation.match import matches
from ipf.fhir.search.language.query import parse_query
from ipf.fhir.search.predicate import parameters_that_need_store
from ipf.ports import Version
from ipf.ports.queries.search import Query
from ipf.rest.http.exchange import parameters

TYPE_FILTER = "_typeFilter"
_MOST_FILTERS = 100
_NEXT = re.compile(r",(?=[A-Z][A-Za-z]*\?)")
_RESULT = frozenset({
    "_sort", "_count", "_total", "_summary", "_elements", "_contained", "_containedType", "_include", "_revinclude",
    "_format", "_pretty",
})  # fmt: skip


def read_filters(values: Sequence[str], types: Sequence[str], *, lenient: bool, base_url: str = "") -> tuple[str, ...]:
    """The filters of a request, each for one of the exported types.

    Problem VALUE or NOT_SUPPORTED for what cannot be read; what `lenient` leaves out of a filter narrows nothing.
    """
    found = [one for value in values for one in _NEXT.split(value) if one]
    if len(found) > _MOST_FILTERS:
        raise Problem(Category.COSTLY, f"an export has at most {_MOST_FILTERS} filters", TYPE_FILTER)
    kept = []
    for one in found:
        resource_type, mark, _ = one.partition("?")
        if lenient and not (mark and resource_type in types):
            continue
        if not mark:
            raise Problem(Category.VALUE, f"{one[:60]}: a filter is written Type?query", TYPE_FILTER)
        if resource_type not in types:
            raise Problem(Category.VALUE, f"{resource_type[:60]} is not exported: name it in _type", TYPE_FILTER)
        try:
            _query(one, strict=not lenient, base_url=base_url)
        except Problem as refused:
            raise Problem(refused.category, f"{one[:200]}: {refused.text}", TYPE_FILTER) from refused
        kept.append(one)
    return tuple(kept)


def selects(filters: Sequence[str], resource_type: str, version: Version, base_url: str) -> bool:
    """Whether one of the filters of its type selects a version; every version without a filter."""
    own = [one for one in filters if one.startswith(f"{resource_type}?")]
    if not own:
        return True
    resource = loads(version.body)
    entries, known = extract(resource), {"id": version.id, "last_updated": version.last_updated, "resource": resource}
    return any(matches(_query(one, strict=False, base_url=base_url), entries, **known) for one in own)


def _query(text: str, *, strict: bool, base_url: str) -> Query:
    """The search of a filter.  Not strict: without what cannot be tested on the resource alone."""
    resource_type, _, search = text.partition("?")
    pairs = parameters(search, TYPE_FILTER)
    named = next((name for name, _ in pairs if name.partition(":")[0] in _RESULT), None)
    if named is not None and strict:
        text = f"{named[:60]} shapes the answer of a search: it is no part of a filter"
        raise Problem(Category.NOT_SUPPORTED, text, named[:60])
    pairs = [pair for pair in pairs if pair[0].partition(":")[0] not in _RESULT]
    query = parse_query(resource_type, pairs, strict=strict, base_url=base_url)
    far = parameters_that_need_store(query)
    if far and strict:
        text = f"a filter tests the resource itself: {', '.join(far)[:200]} cannot be used"
        raise Problem(Category.NOT_SUPPORTED, text)
    if far:
        pairs = [(term.name, term.value) for term in query.terms if term.name not in far]
        query = parse_query(resource_type, pairs, strict=False, base_url=base_url)
    return query
