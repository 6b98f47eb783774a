"""Conditions that name another entry of the transaction by its `fullUrl`: `ifNoneExist: based-on=urn:uuid:...`.

Such a condition means the resource of that entry, as a reference in a resource does.  An update or a patch by id tells
at once which one it is; any other entry is identified first, and the condition is searched with its `Type/id`.  A
condition on a resource that is new matches nothing that is stored.

A name counts where a stored resource has the link replaced (`links.py`): references, uris, and the system of a token.
Canonicals and texts are searched as they are sent.

Source: https://hl7.org/fhir/R4/http.html#trules, https://hl7.org/fhir/R4/http.html#ccreate
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ipf.errors import Category, Problem
from ipf.fhir.index.sources import sources
from ipf.fhir.model.definitions import SearchParameter, definitions
from ipf.fhir.search.language.query import for_write, parse_query
from ipf.fhir.search.values.parameter import split, unescape
from ipf.ports.queries.entries import Entry, Method
from ipf.ports.queries.search import Query, Term
from ipf.rest.write.entry_names import is_canonical, other_names
from ipf.rest.write.links import LINK_TYPES

_FILTER = "_filter"
_WORDS = re.compile(r'[^\s()"]+').findall


@dataclass(frozen=True, slots=True)
class Names:
    """The names of entries -> their numbers.

    `only_references`: those that uris do not mean, relative references and canonical URLs of the resources themselves.
    """

    numbers: Mapping[str, int] = field(default_factory=dict)
    only_references: frozenset[str] = frozenset()

    @staticmethod
    def of(entries: Sequence[Entry]) -> Names:
        """The names of all entries."""
        numbers: dict[str, int] = {}
        only_references = set[str]()
        for number, entry in enumerate(entries):
            for name in other_names(entry):
                numbers.setdefault(name, number)
                only_references.add(name)
        for number, entry in enumerate(entries):
            if entry.full_url is not None:
                numbers[entry.full_url] = number
                if is_canonical(entry):
                    only_references.add(entry.full_url)
        return Names(numbers, frozenset(only_references))

    def may_be_in(self, value: str) -> bool:
        """Whether one of them is in the value of a parameter, in any way that a parameter uses."""
        for part in split(value, ","):
            texts = (part, part.partition("|")[0], *(part.split("$") if "$" in part else ()))
            if any(unescape(one) in self.numbers for one in texts):
                return True
        return False


@dataclass(frozen=True, slots=True)
class NamedCondition:
    """A condition that names entries which have to be identified first: `query` as sent, and the `names` in it."""

    query: Query
    names: tuple[str, ...]


def with_known_names(entries: Sequence[Entry], base_url: str) -> tuple[tuple[Entry, ...], dict[int, NamedCondition]]:
    """The entries with the names in their conditions replaced where the ids are known, and the other conditions.

    Problem VALUE or NOT_SUPPORTED, with the place, for a condition that cannot be resolved.
    """
    names, found = Names.of(entries), list[Entry]()
    left: dict[int, NamedCondition] = {}
    for number, entry in enumerate(entries):
        query = entry.condition
        used = names_in(query, names, entry.place) if query is not None else ()
        if query is not None and used:
            if any(names.numbers[name] == number for name in used):
                raise refusal(entry, f"{entry.place or 'the entry'} names itself")
            known = {name: known_reference(entries[names.numbers[name]], entry) for name in used}
            if None not in known.values():
                entry = replace(entry, condition=with_names(query, known, names, base_url))
            elif entry.method is Method.DELETE:
                raise refusal(entry, "a deletion is decided before the resources of other entries are known")
            else:
                left[number] = NamedCondition(query, used)
        found.append(entry)
    return tuple(found), left


def with_known_entries(query: Query, entry: Entry, entries: Sequence[Entry], names: Names, base_url: str) -> Query:
    """The search of a conditional reference in `entry`.  Problem VALUE if it names an entry without a known id."""
    used = names_in(query, names, entry.place)
    known = {name: known_reference(entries[names.numbers[name]], entry) for name in used}
    if None in known.values():
        raise refusal(entry, "refer to that entry, or to its resource by id")
    return with_names(query, known, names, base_url) or query if used else query


def refusal(entry: Entry, why: str) -> Problem:
    """The refusal of a condition that names an entry."""
    return Problem(Category.VALUE, f"a condition names another entry of the transaction: {why}", entry.place)


def known_reference(named: Entry, entry: Entry) -> str | None:
    """`Type/id` of an entry with an id; None if it has to be identified.  Problem VALUE if it has no resource."""
    if named.id is not None and named.condition is None and named.method is not Method.CREATE:
        return f"{named.resource_type}/{named.id}"
    if named.method is Method.DELETE:
        raise refusal(entry, f"{named.place or 'the other one'} deletes its resource")
    return None


def names_in(query: Query, names: Names, place: str | None = None) -> tuple[str, ...]:
    """The names of entries in a query.  Problem NOT_SUPPORTED if `_filter` has one."""
    found: dict[str, None] = {}
    for term in query.terms:
        if term.name == _FILTER:
            if any(word in names.numbers for word in _WORDS(term.value)):
                text = "_filter cannot name another entry of the transaction by its fullUrl"
                raise Problem(Category.NOT_SUPPORTED, text, place)
        elif names.may_be_in(term.value):
            use = _use(query.resource_type, term, names)
            pieces = (piece for part in split(term.value, ",") for piece in _pieces(part, use))
            found |= dict.fromkeys(piece for piece in pieces if use.means(piece))
    return tuple(found)


def with_names(query: Query, references: Mapping[str, str | None], names: Names, base_url: str) -> Query | None:
    """The query with names replaced; a None drops the alternative.  None: a parameter has no alternative left."""
    pairs: list[tuple[str, str]] = []
    for term in query.terms:
        value = term.value
        if names.may_be_in(value):
            value = _replaced(value, _use(query.resource_type, term, names), references)
        if not value:
            return None
        pairs.append((term.name, value))
    return for_write(parse_query(query.resource_type, pairs, base_url=base_url))


@dataclass(frozen=True, slots=True)
class _Use:
    """How a parameter uses names.

    `names`: those that it may use.  `keeps`: it has other texts too, which are not replaced.  `separator`: of the
    pieces of a value; of a token (`|`) the system alone is a link.
    """

    names: Mapping[str, int] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    keeps: bool = False
    separator: str = ""

    def means(self, text: str) -> bool:
        """Whether this text is the name of an entry here."""
        return text in self.names and text not in self.left_out


_NO_LINK = _Use()


def _use(resource_type: str, term: Term, names: Names) -> _Use:
    """How the parameter of a term uses the names of entries."""
    code, _, modifier = term.name.partition(":")
    parameter = definitions().search_parameters(resource_type).get(code)
    source = sources(resource_type).get(code)
    if parameter is None or source is None:
        return _NO_LINK
    types = {path.type_path for path in source.paths}
    in_uris = _Use(names.numbers, names.only_references, keeps=bool(types - LINK_TYPES))
    match parameter.type:
        case "reference" if not modifier or modifier in definitions().resource_types:
            is_reference = not types or "Reference" in types
            return _Use(names.numbers) if is_reference else in_uris if types & LINK_TYPES else _NO_LINK
        case "uri" if not modifier and types & LINK_TYPES:
            return in_uris
        case "token" if modifier in ("", "not"):
            return _Use(names.numbers, names.only_references, separator="|")
        case "composite" if _has_reference(resource_type, parameter):
            return _Use(names.numbers, separator="$")
    return _NO_LINK


def _has_reference(resource_type: str, parameter: SearchParameter) -> bool:
    kinds = {one.url: one.type for one in definitions().search_parameters(resource_type).values()}
    return any(kinds.get(url) == "reference" for url, _ in parameter.components)


def _pieces(part: str, use: _Use) -> list[str]:
    """The pieces of a value that may be names."""
    if not use.separator:
        return [unescape(part)]
    pieces = [unescape(one) for one in split(part, use.separator)]
    return pieces if use.separator != "|" else pieces[:1] if len(pieces) > 1 else []


def _replaced(value: str, use: _Use, references: Mapping[str, str | None]) -> str:
    """The value with the names replaced; "" if no alternative is left."""
    found: list[str] = []
    for part in split(value, ","):
        named = [piece for piece in _pieces(part, use) if piece in references and use.means(piece)]
        if not named or use.keeps:
            found.append(part)
        if named and all(references[piece] is not None for piece in named):
            pieces = split(part, use.separator) if use.separator else [part]
            last = 1 if use.separator == "|" else len(pieces)
            found.append(
                use.separator.join(
                    (references.get(unescape(one)) or one) if number < last else one
                    for number, one in enumerate(pieces)
                )
            )
    return ",".join(found)
