"""`:text` in a search: the texts of codes that occur and have the words, then the resources with one of them.

The texts under one parameter are few compared with the resources, because codes repeat.  They are read by steps along
the index from text to text.  Of more than `MAX_TEXTS` the index is searched as a whole.

Source: https://hl7.org/fhir/R4/search.html#token
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from ipf.fhir.search.evaluation.texts import indexed_texts
from ipf.fhir.search.predicate import rewritten, tests_equal
from ipf.ports.queries.predicates import NOTHING, AnyOf, CodedText, Test, TextContains
from ipf.ports.queries.search import Query
from ipf.store.postgres.database import Row
from ipf.store.postgres.quoting import Statement
from ipf.store.postgres.symbols import SymbolTable

Many = Callable[[str], Awaitable[list[Row]]]

MAX_TEXTS = 1000

TEXTS = Statement(
    "fhir_texts",
    "smallint, smallint, bigint",
    """
WITH RECURSIVE found AS (
    (SELECT val FROM index_text WHERE partition_id = $1 AND param = $2 ORDER BY val LIMIT 1)
    UNION ALL
    SELECT (SELECT t.val FROM index_text t WHERE t.partition_id = $1 AND t.param = $2 AND t.val > f.val
            ORDER BY t.val LIMIT 1)
    FROM found f WHERE f.val IS NOT NULL
)
SELECT val FROM found WHERE val IS NOT NULL LIMIT $3""",
)

STATEMENTS = (TEXTS,)


async def with_indexed_texts(query: Query, tenant: str, many: Many, symbols: SymbolTable) -> Query:
    """The query with `:text` as tests on index entries."""
    found: dict[Test, Test] = {}
    for term in query.terms:
        rewritten(term.test, lambda test: found.setdefault(test, test))
    for test in [test for test in found if isinstance(test, CodedText)]:
        tests = [await _among_texts(one, test.resource_type, tenant, many, symbols) for one in indexed_texts(test)]
        if tests:
            left = tuple(one for one in tests if one != NOTHING)
            found[test] = AnyOf(left) if len(left) > 1 else left[0] if left else NOTHING
    terms = (replace(term, test=rewritten(term.test, lambda test: found.get(test, test))) for term in query.terms)
    return replace(query, terms=tuple(terms))


async def _among_texts(test: TextContains, resource_type: str, tenant: str, many: Many, symbols: SymbolTable) -> Test:
    """The test for the texts that occur and pass; the test itself if too many occur."""
    await symbols.load((tenant,), ((resource_type, test.code),))
    call = TEXTS.call(symbols.partition(tenant), symbols.parameter(resource_type, test.code), MAX_TEXTS + 1)
    texts = [text for (text,) in await many(call)]
    return test if len(texts) > MAX_TEXTS else tests_equal(test.code, (text for text in texts if test.part in text))
