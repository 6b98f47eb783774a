"""A FHIR search as a record: what is searched for, and how the result is wanted.

`ipf/fhir/search/query.py` makes a `Query` of search parameters; the store and the in-memory match answer it.

Source: https://hl7.org/fhir/R4/search.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ipf.ports.predicates import Kind, Test, TextEquals


@dataclass(frozen=True, slots=True)
class Term:
    """One search parameter: `name` and `value` as written (`identifier:not`, `a|b`), and its test."""

    name: str
    value: str
    test: Test


@dataclass(frozen=True, slots=True)
class Sort:
    """One sort key.  `kind`: where the values are, an index or the columns `_id` and `_lastUpdated`.

    `others`: further codes under which values are indexed, besides `code`.
    """

    code: str
    kind: Kind | Literal["id", "last_updated"]
    descending: bool = False
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Include:
    """`source`: the type that refers.  `code`: its parameter, or `*` for all.  `target`: only this type.  "" = any.

    `reverse`: those that refer to a match are wanted, not those that it refers to.  `iterate`: also for what was
    included.
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
    `summary_count`: only the total is wanted.  `ignored`: names of parameters that lenient parsing left out.
    `canonical`: a text that is equal for equal terms in any order; the key of locks.  `each_token`: return a page token
    for each match, not only for the page.
    """

    resource_type: str
    terms: tuple[Term, ...] = ()
    sort: tuple[Sort, ...] = ()
    count: int | None = None
    total: str | None = None
    summary_count: bool = False
    ignored: tuple[str, ...] = ()
    canonical: str = ""
    includes: tuple[Include, ...] = ()
    each_token: bool = False

    @property
    def single_token(self) -> tuple[str, str] | None:
        """(code, index value) when the query is one equality with one value of the text index, else None."""
        test = self.terms[0].test if len(self.terms) == 1 else None
        return (test.code, test.values[0]) if type(test) is TextEquals and len(test.values) == 1 else None
