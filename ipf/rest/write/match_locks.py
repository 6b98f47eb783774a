"""What a transaction locks before it creates the resources of conditions that match nothing.

Two clients may word one condition differently: `identifier=s|v` and `identifier=v`, `name=X` and `family=X`.  The
locks therefore conflict by what a condition may find, not by its text:

- A condition on values of identifiers locks these values, and those of the resource that it would create; besides,
  it shares the lock of its resource type.  A resource that it may find has one of the values.
- Any other condition takes the lock of its resource type alone, until its transaction ends.

An entry of a converted message is found by numbers: it locks these.  Creates without a condition lock nothing.

Source: https://hl7.org/fhir/R4/http.html#ccreate, https://hl7.org/fhir/R4/http.html#cond-update
"""

from __future__ import annotations

from collections.abc import Iterable

from ipf.fhir.index.extract import extract
from ipf.ports import Json, MatchLocks
from ipf.ports.queries.index import Entries
from ipf.ports.queries.predicates import AnyOf, Test, TextEquals, TextPrefix
from ipf.ports.queries.search import Query

IDENTIFIER = "identifier"


def locks_of(conditions: Iterable[tuple[str, Query]]) -> MatchLocks:
    """The locks of conditions alone, as (tenant, query)."""
    locks = MatchLocks()
    for tenant, query in conditions:
        _add_condition(locks, tenant, query)
    return locks


def add_resources(locks: MatchLocks, resources: Iterable[tuple[str, Json]]) -> None:
    """Add the identifiers of resources, as (tenant, resource), that conditions may create."""
    for tenant, resource in resources:
        resource_type = resource["resourceType"]
        if not locks.types.get((tenant, resource_type)):  # else nobody else creates one anyway
            locks.values.update([(tenant, resource_type, value) for value in identifiers_of(extract(resource))])


def identifiers_of(entries: Entries) -> set[str]:
    """The identifier values of a resource with these index entries."""
    return {value for code, text in entries.texts if code == IDENTIFIER and (value := _value(text))}


def identifiers_in(query: Query) -> set[str]:
    """Identifier values, one of which every match of a condition has; none when it is about other things."""
    return min(filter(None, (_identifier_values(term.test) for term in query.terms)), key=len, default=set())


def _add_condition(locks: MatchLocks, tenant: str, query: Query) -> None:
    kind, values = (tenant, query.resource_type), identifiers_in(query)
    locks.types[kind] = locks.types.get(kind, False) or not values
    locks.values.update([(*kind, value) for value in values])


def _identifier_values(test: Test) -> set[str]:
    """The values one of which the identifier of every match has; none when a match may have any."""
    match test:
        case TextEquals(code, texts) if code == IDENTIFIER:
            values = [_value(text) for text in texts]
        case TextPrefix(code, prefix, ()) if code == IDENTIFIER and prefix.endswith("\t"):
            values = [_value(prefix)]
        case AnyOf(tests):
            parts = [_identifier_values(one) for one in tests]
            return set().union(*parts) if all(parts) else set()
        case _:
            return set()
    return set(values) if all(values) else set()


def _value(text: str) -> str:
    """The value in an index entry of an identifier: `value TAB system`."""
    return text.partition("\t")[0]
