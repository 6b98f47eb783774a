"""The stored resources that an entry of a converted message may mean: those with one of its numbers.

Arrives: an entry with an identity.  Leaves: the candidates for `rest.identity.decisions`; `MoreNeeded` when they must
be read first.

A search for a number reads the newest MATCH_LIMIT.  A number of orders, results and the like may cover more: then those
of the patient are read for all such entries of a unit at once, at most MOST_OF_A_NUMBER, and MOST_OF_A_UNIT of all
numbers.  Of them an entry gets those that say something in common with it, or nothing, so that the work of many entries
grows with their number.  Others count where the patient has none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ipf.fhir.model.identifier import keys_in_use
from ipf.fhir.search.language.query import parse_criteria
from ipf.mapping.bundle.contents import is_numbered, names_of
from ipf.mapping.bundle.identity import token
from ipf.mapping.bundle.orders import ORDER, service_codes
from ipf.ports import MATCH_LIMIT, Json
from ipf.ports.queries.entries import Entry
from ipf.ports.queries.search import Query
from ipf.rest.identity.decisions import Candidate, held_in
from ipf.rest.write.prefetch import ConditionKey, PreparedUnit, condition_key
from ipf.rest.write.second_look import Key, MoreNeeded, SecondLook
from ipf.rest.write.snapshot import StoreSnapshot

MOST_OF_A_NUMBER = 2000
"""Resources of one patient under one number that are read."""
MOST_OF_A_UNIT = 10_000
"""The same of all numbers of a message, which share it: each may cover as many, and all are in memory at once."""

People = Callable[[Entry], Collection[str]]
"""The ids of the Patients that are the subject of an entry."""


class Candidates:
    """The candidates for the entries of one unit.  `people`: see `People`; called when the Patients are known."""

    def __init__(self, prepared: PreparedUnit, snapshot: StoreSnapshot, people: People) -> None:
        self._prepared, self._snapshot, self._people = prepared, snapshot, people
        self._tenant = prepared.unit.tenant
        self._many: dict[tuple[ConditionKey, ...], _ByContent] = {}
        self._share: int | None = None

    def keys(self, number: int) -> Sequence[Key]:
        """The keys of the resources that the conditions of an entry find, each once; of many, the newest."""
        lookups = self._prepared.lookups[number]
        if len(lookups) == 1:
            return self._snapshot.matching(*lookups[0])
        return list(dict.fromkeys(key for one in lookups for key in self._snapshot.matching(*one)))

    def of(self, number: int) -> list[Candidate]:
        """The stored resources with one of the numbers of an entry."""
        entry, keys = self._prepared.unit.entries[number], self.keys(number)
        if len(keys) < MATCH_LIMIT or not _has_content(entry):
            return self._candidates(keys)
        further = self._of_patient(entry)
        if any(key not in self._snapshot.prefetch.matches for key in further):
            raise MoreNeeded(SecondLook(conditions=self._unread()))
        known = (*(key for key, _ in self._prepared.lookups[number]), *further)
        if known not in self._many:
            own = dict.fromkeys(key for one in further.items() for key in self._snapshot.matching(*one))
            self._many[known] = _ByContent(self._candidates(own))
        if not self._many[known].all:
            return self._candidates(keys)
        return self._many[known].like(entry.resource or {})

    def shared(self, number: int) -> list[Candidate]:
        """The same of what many messages share, without its content."""
        found = []
        for key in self.keys(number):
            state = self._snapshot.state(key)
            if state is not None and state.exists:
                found.append(Candidate(key[2], state.version.rid, {}, held_in(state.version.body)))
        return found

    def _candidates(self, keys: Iterable[Key]) -> list[Candidate]:
        found = []
        for key in keys:
            state = self._snapshot.state(key)
            resource = None if state is None else state.resource
            if state is not None and resource is not None:
                found.append(Candidate(key[2], state.version.rid, resource, frozenset(keys_in_use(resource))))
        return found

    def _unread(self) -> dict[ConditionKey, tuple[str, Query]]:
        """What all entries of the unit need."""
        found = {key: (self._tenant, query) for one in self._crowded() for key, query in self._of_patient(one).items()}
        return {key: one for key, one in found.items() if key not in self._snapshot.prefetch.matches}

    def _crowded(self) -> list[Entry]:
        """The entries with a number that covers more than a search reads."""
        entries = self._prepared.unit.entries
        return [one for n, one in enumerate(entries) if _has_content(one) and len(self.keys(n)) >= MATCH_LIMIT]

    @property
    def _most(self) -> int:
        """How many resources are read under each number."""
        if self._share is None:
            numbers = {key for one in self._crowded() if one.identity is not None for key in one.identity.keys}
            share = MOST_OF_A_UNIT // max(len(numbers), 1)
            self._share = max(MATCH_LIMIT, min(MOST_OF_A_NUMBER, share))
        return self._share

    def _of_patient(self, entry: Entry) -> Mapping[ConditionKey, Query]:
        """The searches for the resources of a stored patient with a number of an entry."""
        if entry.identity is None:
            return {}
        stored = [one for one in self._people(entry) if self._snapshot.state((self._tenant, "Patient", one))]
        found = {}
        for person in sorted(stored):
            for key in entry.identity.keys:
                number = token({"system": key.system, "value": key.value})
                text = f"{entry.resource_type}?identifier={number}&patient=Patient/{person}"
                query = replace(parse_criteria(text), count=self._most)
                found[condition_key(self._tenant, query)] = query
        return found


class _ByContent:
    """Many candidates, by what they say of themselves."""

    def __init__(self, candidates: list[Candidate]) -> None:
        self.all = candidates
        self._silent: list[Candidate] = []
        self._by_name: dict[str, list[Candidate]] = {}
        for one in candidates:
            names = _names(one.resource)
            for name in names:
                self._by_name.setdefault(name, []).append(one)
            if not names:
                self._silent.append(one)

    def like(self, resource: Json) -> list[Candidate]:
        """Those that may be one with a resource, else some that are not; all, when it says nothing."""
        names = _names(resource)
        if not names:
            return list(self.all)
        found = {one.id: one for name in names for one in self._by_name.get(name, ())}
        return [*found.values(), *self._silent] or self.all[-2:]


def _has_content(entry: Entry) -> bool:
    """Whether the content of an entry tells what is meant of several resources with its number."""
    identity = entry.identity
    return identity is not None and (identity.service is not None or is_numbered(entry.resource_type))


def _names(resource: Json) -> frozenset[str]:
    if resource["resourceType"] == ORDER:
        return frozenset(code for _, code in service_codes(resource))
    return names_of(resource)
