"""The parser of FHIR search syntax.

`parse_query` reads the parameters of a search request, `parse_criteria` a URL such as `Patient?identifier=a|b` (a
conditional interaction, a conditional reference, the criteria of a subscription).  What leaves is a `Query`: terms
(all must hold) in the algebra of `predicate.py`, and how the result is wanted.

A parameter that is not known or not supported stops strict parsing with a Problem that names it; lenient parsing leaves
it out and lists it in `Query.ignored` (search.html#errors).  Conditional interactions, criteria and filters are parsed
strictly.  A modifier, a prefix or a value that cannot be understood always stops: a server must not answer another
search than the one requested (search.html#modifiers).

Source: https://hl7.org/fhir/R4/search.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, lru_cache
from urllib.parse import unquote_plus

from ipf.errors import Category, Problem
from ipf.fhir.budget import Budget
from ipf.fhir.index.entries import token_value
from ipf.fhir.index.sources import sources
from ipf.fhir.model.definitions import SearchParameter, definitions
from ipf.fhir.search.language.contained import RETURNED, WHICH, read_contained
from ipf.fhir.search.language.filters import NAME as FILTER
from ipf.fhir.search.language.filters import read_filter
from ipf.fhir.search.language.includes import UnknownInclude, read_include
from ipf.fhir.search.language.terms import TermReader, Unsupported, search_budget
from ipf.fhir.search.predicate import by_beginnings
from ipf.fhir.search.values.parameter import kind_of
from ipf.ports.queries.predicates import Test, TextEquals
from ipf.ports.queries.search import Include

__all__ = ["by_token", "for_write", "parse_criteria", "parse_query"]

from ipf.ports.queries.search import Query, Sort, Term

_PRESENTATION = frozenset({"_format", "_pretty"})  # for the HTTP layer; they do not restrict the search
_LAST_UPDATED = "_lastUpdated"
MOST_ALTERNATIVES = 5000
"""Values of all parameters of one search."""
_PLAIN_TOKEN = re.compile(r"([A-Za-z]+)\?([A-Za-z_-]+)=(([^&%+,\\|]+)\|([^&%+,\\|]+))", re.DOTALL).fullmatch
_NOTHING_TO_ESCAPE = re.compile(r"[A-Za-z0-9._~:/-]+").fullmatch
_SURELY_WHOLE = 300  # characters; longer values are cut by the index


def parse_query(
    resource_type: str,
    pairs: Iterable[tuple[str, str]],
    *,
    strict: bool = True,
    now: datetime | None = None,
    page_sizes: tuple[int, int] | None = None,
    base_url: str = "",
) -> Query:
    """The search that `pairs` (decoded, in order) state.

    `now` is what the prefix `ap` on a date is relative to.  `page_sizes`: the one where none is asked for, and the
    largest.  `base_url`: of this server; a URL below it finds relative references too.  Raises Problem with the
    parameter's name as its place: NOT_SUPPORTED for what is unknown or not supported, VALUE for a value that cannot
    be read.
    """
    if resource_type not in definitions().resource_types:
        raise Problem(Category.NOT_SUPPORTED, f"{resource_type} is no FHIR R4 resource type")
    parser = _QueryParser(resource_type, strict, now, base_url)
    alternatives = 0
    for name, value in pairs:
        alternatives += value.count(",")
        if alternatives > MOST_ALTERNATIVES:
            text = f"the parameters of a search have more than {MOST_ALTERNATIVES} values, separated by commas"
            raise Problem(Category.COSTLY, text, name)
        if name not in _PRESENTATION:
            parser.add(name, value)
    return parser.query(page_sizes)


def parse_criteria(text: str, *, strict: bool = True, base_url: str = "") -> Query:
    """`Type?name=value&...` (percent-encoded; `Type` or `Type?` alone matches all) as a Query.  Problem as above."""
    return _criteria(text, strict, base_url)


def for_write(query: Query) -> Query:
    """The search of a conditional write or reference: a later word of a name makes nobody the one that is meant."""
    terms = tuple([replace(term, test=by_beginnings(term.test)) for term in query.terms])
    return replace(query, terms=terms, count=None)


def by_token(resource_type: str, code: str, system: str, value: str) -> Query | None:
    """The query that `parse_criteria` makes of `Type?code=system|value`; None where only that function can tell."""
    index = _token_index(resource_type, code)
    if index is None or type(value) is not str or len(value) > _SURELY_WHOLE:
        return None
    if not _NOTHING_TO_ESCAPE(system) or not _NOTHING_TO_ESCAPE(value):
        return None
    text = token_value(value, "" if index[1] else system)
    return _one_token(resource_type, code, f"{system}|{value}", text, index[0])


def forget() -> None:
    """Read anew: the definitions of search parameters have changed."""
    _criteria.cache_clear()
    _token_index.cache_clear()


@lru_cache(maxsize=2048)  # about a kilobyte each
def _criteria(text: str, strict: bool, base_url: str) -> Query:
    plain = _PLAIN_TOKEN(text)
    if plain is not None:
        resource_type, code, token, system, value = plain.groups()
        index = _token_index(resource_type, code)
        if index is not None:
            return _one_token(resource_type, code, token, token_value(value, "" if index[1] else system), index[0])
    resource_type, _, search = text.partition("?")
    pairs = [_decoded(pair) for pair in search.split("&") if pair]
    return parse_query(resource_type, pairs, strict=strict, base_url=base_url)


def _one_token(resource_type: str, code: str, token: str, text: str, written_under: str) -> Query:
    """The short way for `code=system|value` with nothing to decode, of which nearly all conditions are made."""
    term = Term(code, token, TextEquals(written_under, (text,)))
    return Query(resource_type, (term,), canonical=f"{resource_type}?{written_under}={text}")


@cache
def _token_index(resource_type: str, code: str) -> tuple[str, bool] | None:
    """Under which code a token's values are, and that they have no systems; None when that is not the whole answer."""
    if resource_type not in definitions().resource_types or code in _RESULT:
        return None
    parameter = definitions().search_parameters(resource_type).get(code)
    source = sources(resource_type).get(code)
    if parameter is None or source is None or parameter.type != "token" or source.system or len(source.codes) != 1:
        return None
    return source.codes[0], source.has_no_systems


def _canonical(resource_type: str, tests: Sequence[Test]) -> str:
    """Equal for equal tests in any order; that of a single token is short, and no other's text is like it."""
    match tests:
        case [TextEquals(code, (value,))]:
            return f"{resource_type}?{code}={value}"
    return f"{resource_type}?{'&'.join(sorted({repr(test) for test in tests}))}"


def _decoded(pair: str) -> tuple[str, str]:
    name, _, value = pair.partition("=")
    if "%" in pair or "+" in pair:
        return unquote_plus(name), unquote_plus(value)
    return name, value


@dataclass(slots=True)
class _QueryParser:
    """A search while its parameters are read one by one."""

    resource_type: str
    strict: bool
    now: datetime | None
    base_url: str = ""
    terms: list[Term] = field(default_factory=list)
    sort: tuple[Sort, ...] = ()
    count: int | None = None
    total: str | None = None
    summary_count: bool = False
    ignored: list[tuple[str, str]] = field(default_factory=list)
    includes: list[Include] = field(default_factory=list)
    left: Budget = field(default_factory=search_budget)

    def query(self, page_sizes: tuple[int, int] | None) -> Query:
        """What was read."""
        count = self.count
        if page_sizes is not None:
            count = min(page_sizes[0] if count is None else count, page_sizes[1])
        return Query(
            resource_type=self.resource_type,
            terms=tuple(self.terms),
            sort=self.sort,
            count=count,
            total=self.total,
            summary_count=self.summary_count,
            ignored=tuple(self.ignored),
            includes=tuple(self.includes),
            canonical=_canonical(self.resource_type, list(dict.fromkeys(term.test for term in self.terms))),
        )

    def add(self, name: str, value: str) -> None:
        """Read one parameter."""
        result = _RESULT.get(name)
        if result is not None:
            result(self, value)
            return
        try:
            if name.partition(":")[0] in ("_include", "_revinclude"):
                self._add_include(name, value)
                return
            reader = TermReader(self.now, name, base_url=self.base_url, left=self.left)
            if name == FILTER:
                test = read_filter(reader, self.resource_type, value)
            else:
                test = reader.read(self.resource_type, name, value)
        except Unsupported as refused:
            self.leave_out(name, value, refused.why, refused.category)
        else:
            self.terms.append(Term(name, value, test))

    def _add_include(self, name: str, value: str) -> None:
        try:
            self.includes.append(read_include(name, value, self.resource_type))
        except UnknownInclude:
            if self.strict:
                raise
            self.ignored.append((name, value))

    def leave_out(self, name: str, value: str, why: str, category: Category = Category.NOT_SUPPORTED) -> None:
        """Strict: refuse.  Lenient: note that it was ignored."""
        if self.strict:
            raise Problem(category, f"search parameter {name[:200]} {why}", name[:200])
        self.ignored.append((name, value))

    def set_count(self, value: str) -> None:
        """`_count`: zero requests the total alone."""
        if not (value.isascii() and value.isdigit()) or len(value) > 9:
            raise Problem(Category.VALUE, "search parameter _count: write a number, zero or more", "_count")
        self.count = int(value)
        self.summary_count = self.summary_count or self.count == 0

    def set_total(self, value: str) -> None:
        """`_total`."""
        if value not in ("none", "estimate", "accurate"):
            raise Problem(Category.VALUE, "search parameter _total: write none, estimate or accurate", "_total")
        self.total = value

    def set_summary(self, value: str) -> None:
        """`_summary`: of its forms, `count` and `false`."""
        if value == "count":
            self.summary_count = True
        elif value != "false":
            self.leave_out("_summary", value, f"={value} is not supported; use count or false")

    def set_contained(self, value: str) -> None:
        """`_contained`: of its values `false`, the default; `contained.py` reads the others."""
        if read_contained([(WHICH, value)])[0] is not None:
            text = f"search parameter {WHICH}={value} is supported in searches of one type alone: GET [base]/[type]"
            raise Problem(Category.NOT_SUPPORTED, text, WHICH)

    def set_contained_type(self, value: str) -> None:
        """`_containedType`: it has no effect without `_contained`."""
        read_contained([(RETURNED, value)])

    def set_sort(self, value: str) -> None:
        """`_sort`: parameters in order, a minus before the descending ones."""
        keys = [self._sort_key(one) for one in value.split(",") if one]
        self.sort = tuple(one for one in keys if one is not None)

    def _sort_key(self, text: str) -> Sort | None:
        code, descending = text.removeprefix("-"), text.startswith("-")
        if code == "_id":
            return Sort(code, "id", descending)
        if code == _LAST_UPDATED:
            return Sort(code, "last_updated", descending)
        parameter: SearchParameter | None = definitions().search_parameters(self.resource_type).get(code)
        source = sources(self.resource_type).get(code)
        if parameter is None or source is None or parameter.type == "composite":
            self.leave_out("_sort", text, f"by {code[:80]} is not supported")
            return None
        return Sort(source.codes[0], kind_of(parameter), descending, source.codes[1:])


_RESULT: dict[str, Callable[[_QueryParser, str], None]] = {
    "_count": _QueryParser.set_count,
    "_total": _QueryParser.set_total,
    "_summary": _QueryParser.set_summary,
    WHICH: _QueryParser.set_contained,
    RETURNED: _QueryParser.set_contained_type,
    "_sort": _QueryParser.set_sort,
}
