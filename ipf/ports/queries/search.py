"""A FHIR search as a record: conditions, order, paging and includes.

`ipf/fhir/search/language/query.py` builds a `Query` from search parameters; the store and the in-memory matcher
execute it.

Source: https://hl7.org/fhir/R4/search.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ipf.ports.queries.predicates import Kind, Test, TextEquals


@dataclass(frozen=True, slots=True)
class Term:
    """One search parameter: `name` and `value` as written (`identifier:not`, `a|b`), and its test."""

    name: str
    value: str
    test: Test


@dataclass(frozen=True, slots=True)
class Sort:
    """One sort key.  `kind`: source of the values, an index or the columns of `_id` and `_lastUpdated`.

    `others`: further codes under which values are indexed.
    """

    code: str
    kind: Kind | Literal["id", "last_updated"]
    descending: bool = False
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Include:
    """An `_include` or `_revinclude`.  `source`: the referring type, "" = any.  `code`: its parameter, `*` = all.
    `target`: only this type, "" = any.

    `reverse`: include the resources that refer to a match (`_revinclude`).  `iterate`: also for included resources.
    """

    source: str
    code: str
    target: str = ""
    reverse: bool = False
    iterate: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A search on one resource type: all `terms` must hold.

    `count`: the page size, None = the default of the server.  `total`: none, estimate or accurate, None = not given.
    `summary_count`: return the total only.  `ignored`: parameters that lenient parsing ignored, as
    written; of `_sort` each key alone.
    `canonical`: equal for equal terms in any order; the key of locks.  `each_token`: return a page token
    for each match.  `backwards`: the page before the token, or the last one without a token; its order is the same.
    """

    resource_type: str
    terms: tuple[Term, ...] = ()
    sort: tuple[Sort, ...] = ()
    count: int | None = None
    total: str | None = None
    summary_count: bool = False
    ignored: tuple[tuple[str, str], ...] = ()
    canonical: str = ""
    includes: tuple[Include, ...] = ()
    each_token: bool = False
    backwards: bool = False

    @property
    def single_token(self) -> tuple[str, str] | None:
        """(code, index value) when the query is one equality with one value of the text index, else None."""
        test = self.terms[0].test if len(self.terms) == 1 else None
        return (test.code, test.values[0]) if type(test) is TextEquals and len(test.values) == 1 else None
