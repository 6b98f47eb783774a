"""`_text` and `_content` in a search, by PostgreSQL's full-text search on `index_words`.

While the setting is off, or the words of resources of an earlier time are not indexed yet, the resources that pass the
other terms of a search are read instead (`run.py`).

Source: https://www.postgresql.org/docs/current/datatype-textsearch.html
"""

from __future__ import annotations

from dataclasses import replace

from ipf.fhir.index.words import index_words, words_are_indexed
from ipf.fhir.search.predicate import rewritten
from ipf.ports.queries.predicates import FullText, IndexedWords, Test, WordQuery
from ipf.ports.queries.search import Query
from ipf.store.postgres.database import Database
from ipf.store.postgres.symbols import SymbolTable
from ipf.store.resources.searches.texts import Many

WORDS_ARE_INDEXED = "SELECT words_are_indexed()"

_FORGET = "DELETE FROM reindex_jobs WHERE reason = 'full text'"
_HAS_JOB = "SELECT EXISTS (SELECT 1 FROM reindex_jobs WHERE reason = 'full text')"
_BEGIN = """
LOCK TABLE index_words IN SHARE ROW EXCLUSIVE MODE;
DELETE FROM index_words WHERE NOT EXISTS (SELECT 1 FROM reindex_jobs WHERE reason = 'full text');
INSERT INTO reindex_jobs (partition_id, resource_types, parameters, reason, status, until_rid)
SELECT 1, coalesce(string_agg(DISTINCT resource_type, ','), ''), '', 'full text',
       CASE WHEN count(*) = 0 THEN 'done' ELSE 'requested' END, coalesce(max(rid), 0)
FROM resources HAVING NOT EXISTS (SELECT 1 FROM reindex_jobs WHERE reason = 'full text');
SELECT 1"""


async def prepare_words(database: Database, is_on: bool) -> None:
    """At the start of a process: with the setting, request the index of all resources once; without it, forget that.

    Rows of an earlier time are removed, since resources may have changed without them.
    """
    index_words(is_on)
    everyone = database.all_tenants
    if not is_on:
        await everyone.many(_FORGET)
    elif not (await everyone.many(_HAS_JOB))[0][0]:
        async with everyone.session() as session:
            await session.commit(_BEGIN)


async def with_indexed_words(query: Query, many: Many, symbols: SymbolTable) -> Query:
    """The query with `_text` and `_content` as tests on index entries, if the index has the words of all resources."""
    if not words_are_indexed():
        return query
    if not symbols.has_words:
        symbols.has_words = (await many(WORDS_ARE_INDEXED))[0][0]
        if not symbols.has_words:
            return query
    return replace(query, terms=tuple(replace(term, test=rewritten(term.test, _indexed)) for term in query.terms))


def _indexed(test: Test) -> Test:
    return IndexedWords(test.code, test.query) if isinstance(test, FullText) else test


def words_query(query: WordQuery) -> str:
    """The condition as a tsquery; words have letters and digits only."""
    match query.operator:
        case "phrase":
            return "(" + " <-> ".join(f"'{word}'" for word in query.words) + ")"
        case "not":
            return f"!{words_query(query.parts[0])}"
    joint = " & " if query.operator == "and" else " | "
    return f"({joint.join(map(words_query, query.parts))})"
