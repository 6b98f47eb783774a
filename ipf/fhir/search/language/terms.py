"""The parser of one search parameter (`name:modifier=value`, a chain, `_has`) into its test.

Source: https://hl7.org/fhir/R4/search.html#modifiers, #chaining, #has
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from ipf.errors import Category, Problem
from ipf.fhir.budget import Budget
from ipf.fhir.index.positions import NEAR
from ipf.fhir.index.sources import Source, sources
from ipf.fhir.index.words import CONTENT, TEXT
from ipf.fhir.model.definitions import SearchParameter, definitions
from ipf.fhir.search.predicate import needs_resource
from ipf.fhir.search.values.full_text import full_text
from ipf.fhir.search.values.near import near
from ipf.fhir.search.values.parameter import RequestedParameter, any_of, split
from ipf.fhir.search.values.parser import build, last_updated
from ipf.ports.queries.predicates import Has, IdIn, Linked, ListMember, Test

_DEEPEST = 8  # links of one chain
_MOST_READ = 1000  # parameters that one chain is read as, over all types that its references may point at
MOST_STEPS = 12_000
"""Of all parameters of a search: five for each that is read, also of each type that a chain goes over, one for each
value.  It is read by the reactor: about 50 ms."""
_READ = 5
_ID, _LAST_UPDATED, _LIST, _HAS = "_id", "_lastUpdated", "_list", "_has"
_FULL_TEXT = frozenset({TEXT, CONTENT})
_FILTER = "_filter"
_LOCATION = "Location"
_REFUSED = {
    _FILTER: "filter expressions are no part of chains",
    "_query": "named queries are not supported",
}


class Unsupported(Exception):
    """A parameter that is not known or not served: strict parsing refuses it, lenient parsing leaves it out."""

    def __init__(self, why: str, category: Category = Category.NOT_SUPPORTED) -> None:
        super().__init__(why)
        self.why = why
        self.category = category


def served(resource_type: str) -> list[str]:
    """The search parameters of a type, in order; those of all types last."""
    known = definitions().search_parameters(resource_type).keys() & sources(resource_type).keys()
    known |= {NEAR} if resource_type == _LOCATION else set()
    of_all = {_ID, _LAST_UPDATED, _LIST, _FILTER, *_FULL_TEXT}
    return sorted(known | of_all, key=lambda code: (code.startswith("_"), code))


def search_budget() -> Budget:
    """The steps of one search."""
    return Budget(MOST_STEPS, "reading the search parameters")


@dataclass(frozen=True, slots=True)
class TermReader:
    """Reads one parameter of a search; `name` is the whole parameter as written, for messages.

    `depth`: links of the chain so far.  `spent`: types that it went over.  `base_url`: of this server.  `left`: the
    budget of the whole search.
    """

    now: datetime | None
    name: str
    depth: int = 0
    spent: list[str] = field(default_factory=list)
    base_url: str = ""
    left: Budget = field(default_factory=search_budget)

    def read(self, resource_type: str, name: str, value: str) -> Test:
        """The test; Unsupported for a parameter that may be left out, Problem for one that cannot be understood."""
        self.spend(resource_type, value)
        if name.startswith(f"{_HAS}:"):
            return self._has(resource_type, name, value)
        head, dot, rest = name.partition(".")
        if dot:
            return self.follow(resource_type, head, lambda inner, target: inner.read(target, rest, value))
        code, _, modifier = name.partition(":")
        if code in (_ID, _LAST_UPDATED, _LIST) or code in _FULL_TEXT:
            return self._special(resource_type, code, modifier, value)
        if code == NEAR and resource_type == _LOCATION:
            parameter = definitions().search_parameters(resource_type)[code]
            return near(RequestedParameter(self.name, modifier, parameter, Source((code,)), self.now, code), value)
        requested = replace(self.requested(resource_type, code), modifier=modifier)
        if not value.strip(","):
            raise Unsupported("has no value", Category.VALUE)
        return build(requested, value)

    def spend(self, resource_type: str, value: str) -> None:
        """Count one more type that chains go over.  Problem VALUE when these are very many, COSTLY for the search."""
        self.left.spend(_READ + value.count(","))
        self.spent.append(resource_type)
        if len(self.spent) > _MOST_READ:
            raise self._refused("the chain goes over too many types; name them, as in subject:Patient.name")

    def requested(self, resource_type: str, code: str) -> RequestedParameter:
        """One parameter of a type, without a modifier; Unsupported for one that is unknown."""
        if code in (_ID, _LAST_UPDATED, _LIST):
            parameter, source = SearchParameter(code, "special", "", (), ""), Source((code,))
        else:
            parameter, source = self._known(resource_type, code)
        return RequestedParameter(self.name, "", parameter, source, self.now, resource_type, self.base_url)

    def _known(self, resource_type: str, code: str) -> tuple[SearchParameter, Source]:
        parameter = definitions().search_parameters(resource_type).get(code)
        source = sources(resource_type).get(code)
        if parameter is None or source is None:
            if code in _REFUSED:
                raise Unsupported(f"is not supported: {_REFUSED[code]}")
            what = f"is {'not supported' if parameter else 'unknown'} for {resource_type}"
            able = "" if self.depth else f", which has {', '.join(served(resource_type))}"
            raise Unsupported(what + able)
        return parameter, source

    def _special(self, resource_type: str, code: str, modifier: str, value: str) -> Test:
        if not value.strip(","):
            raise Unsupported("has no value", Category.VALUE)
        parameter = definitions().search_parameters(resource_type).get(code)
        if parameter is None:  # `_list` has no definition of its own, `_text` and `_content` those of other types
            parameter = SearchParameter(code, "special", "", (), "")
        requested = RequestedParameter(self.name, modifier, parameter, Source((code,)), self.now, resource_type)
        if code in _FULL_TEXT:
            return full_text(requested, value)
        if modifier:
            raise requested.unsupported()
        return self.special(requested, value)

    def special(self, requested: RequestedParameter, value: str) -> Test:
        """The test of `_id`, `_lastUpdated` or `_list`."""
        code, resource_type = requested.parameter.code, requested.resource_type
        if code == _LAST_UPDATED:
            return last_updated(requested, value)
        if code == _LIST:
            if value.startswith("$"):
                raise requested.refuse(f"the list {value[:40]} is not maintained here")
            return ListMember(value.removeprefix("List/"))
        return IdIn(tuple(sorted({one.removeprefix(f"{resource_type}/") for one in split(value, ",") if one})))

    # -- chains

    def _deeper(self) -> TermReader:
        if self.depth >= _DEEPEST:
            raise self._refused("the chain is too long")
        return TermReader(self.now, self.name, self.depth + 1, self.spent, self.base_url, self.left)

    def follow(self, resource_type: str, head: str, read: Callable[[TermReader, str], Test]) -> Test:
        """`subject:Patient`, `subject`: the test that `read` makes, on every type that the reference may point at."""
        code, _, modifier = head.partition(":")
        parameter, source = self._known(resource_type, code)
        targets = self._targets(parameter, source, modifier)
        inner = self._deeper()
        found: list[Test] = []
        first: Unsupported | None = None
        for target in targets:
            try:
                test = self._of_others(read(inner, target))
            except Unsupported as refused:
                first = first or refused
                continue
            found += [Linked(one, target, (test,)) for one in source.codes]
        if not found:
            raise first if first is not None else Unsupported("refers to nothing")
        return any_of(found)

    def _targets(self, parameter: SearchParameter, source: Source, modifier: str) -> list[str]:
        if parameter.type != "reference":
            raise self._refused(f"{parameter.code} is no reference, and cannot be followed")
        able = (source.refers_to,) if source.refers_to else parameter.targets or definitions().resource_types
        if not modifier:
            return sorted(able)
        if modifier not in definitions().resource_types:
            raise self._refused(f"{modifier[:60]} is not a resource type of R4", Category.NOT_SUPPORTED)
        if modifier not in able:
            raise self._refused(f"{parameter.code} never refers to {modifier}")
        return [modifier]

    def _has(self, resource_type: str, name: str, value: str) -> Test:
        """`_has:Observation:patient:code`: resources that are referred to."""
        parts = name.split(":", 3)
        if len(parts) != 4 or not parts[3]:
            raise self._refused("write _has:Type:reference:parameter")
        _, other, code, rest = parts
        if other not in definitions().resource_types:
            raise self._refused(f"{other[:60]} is not a resource type of R4", Category.NOT_SUPPORTED)
        parameter, source = self._known(other, code)
        if resource_type not in self._targets(parameter, source, ""):
            raise self._refused(f"{other}.{code} never refers to {resource_type}")
        test = self._of_others(self._deeper().read(other, rest, value))
        return any_of([Has(other, one, (test,)) for one in source.codes])

    def _of_others(self, test: Test) -> Test:
        if needs_resource(test):
            text = "near, _text, _content and the modifiers :text and :of-type are not supported in chains"
            raise self._refused(text, Category.NOT_SUPPORTED)
        return test

    def _refused(self, why: str, category: Category = Category.VALUE) -> Problem:
        return Problem(category, f"search parameter {self.name[:200]}: {why}", self.name[:200])
