"""References by number (`Entry.numbered`) of a converted message, replaced by the reference to the one stored resource.

A parent order (OBR-29, ORC-8) is the order of the patient with this number.  A parent result (OBR-26) is that of the
code and sub-ID among the results of the reports with the number of its order; without a report of the same authority
those of any, since code, sub-ID and patient have to agree as well.  Where none fits or several do, the
number stays: a logical reference.

Arrives: the entries of a unit and their outcomes, before the writes.  `MoreNeeded`: results of a stored report must be
read first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ipf.fhir.model.identifier import identifiers_of, key_of
from ipf.ports import Json
from ipf.ports.identity import IdentityKey
from ipf.ports.queries.entries import Entry, NumberedLink
from ipf.rest.write.entry_names import EntryOutcome, reference_to
from ipf.rest.write.prefetch import condition_key, link_query
from ipf.rest.write.second_look import Key, MoreNeeded, SecondLook
from ipf.rest.write.snapshot import StoreSnapshot

SUB_ID = "http://hl7.org/fhir/StructureDefinition/observation-v2-subid"
_MOST_RESULTS = 300
"""Results of a report among which a parent is looked for."""


class NumberedLinks:
    """The links of one unit.

    What the unit writes itself is found by an index, and all results that must be read are asked for at once: the work
    of a message with many links grows with the message.
    """

    def __init__(self, tenant: str, snapshot: StoreSnapshot) -> None:
        self._tenant = tenant
        self._snapshot = snapshot
        self._own: dict[str, Json] = {}
        self._by_number: dict[tuple[str, str | None, object], dict[str, Json]] = {}
        self._unread: dict[Key, None] = {}

    def complete(self, entries: Sequence[Entry], outcomes: Sequence[EntryOutcome]) -> None:
        """Complete the references in place; an earlier attempt may have done so."""
        if not any(entry.numbered for entry in entries):
            return
        both = list(zip(entries, outcomes, strict=True))
        self._own = {reference_to(end): entry.resource for entry, end in both if entry.resource is not None}
        self._index(entry.numbered for entry in entries)
        for entry, end in both:
            for link in entry.numbered:
                link.holder.pop("reference", None)
                found = self._found(link, entry.resource or {}) - {reference_to(end)}
                if len(found) == 1:
                    link.holder["reference"] = found.pop()
        if self._unread:
            raise MoreNeeded(SecondLook(ids=self._unread))

    def _index(self, links: Iterable[Sequence[NumberedLink]]) -> None:
        """The unit's own resources of the types that links search, by patient and number."""
        types = {link_query(link).resource_type for some in links for link in some}
        for name, resource in self._own.items():
            kind = name.partition("/")[0]
            for key in map(key_of, identifiers_of(resource)) if kind in types else ():
                for number in (key, _without_authority(key)):
                    self._by_number.setdefault((kind, _subject(resource), number), {})[name] = resource

    def _found(self, link: NumberedLink, resource: Json) -> set[str]:
        """The resources that a link may mean, of the same patient."""
        query, subject = link_query(link), _subject(resource)
        keys = self._snapshot.matching(condition_key(self._tenant, query), query)
        stored = {f"{key[1]}/{key[2]}": self._stored(key) for key in keys}
        of_patient = {name: one for name, one in stored.items() if name not in self._own and _subject(one) == subject}
        kind = query.resource_type
        same = {name: one for name, one in of_patient.items() if _has(one, link.key)}
        same |= self._by_number.get((kind, subject, link.key), {})
        if link.resource_type == kind:
            return set(same)
        if not same:
            same = {name: one for name, one in of_patient.items() if _has_value(one, link.key)}
            same |= self._by_number.get((kind, subject, _without_authority(link.key)), {})
        return self._results(link, same)

    def _results(self, link: NumberedLink, reports: Mapping[str, Json]) -> set[str]:
        """The results of reports with the code and the sub-ID of a link; those that were not read yet are noted."""
        names = [one.get("reference", "") for report in reports.values() for one in report.get("result", ())]
        names = [one for one in dict.fromkeys(names) if one.startswith("Observation/")][:_MOST_RESULTS]
        keys = {one: (self._tenant, "Observation", one.partition("/")[2]) for one in names if one not in self._own}
        missing = [key for key in keys.values() if self._is_unread(key)]
        if missing:
            self._unread.update(dict.fromkeys(missing))
            return set()
        return {one for one in names if _is_meant(link, self._own.get(one) or self._stored(keys[one]))}

    def _is_unread(self, key: Key) -> bool:
        return self._snapshot.state(key) is None and key not in self._snapshot.prefetch.absent

    def _stored(self, key: Key) -> Json:
        state = self._snapshot.state(key)
        return (state.resource if state is not None else None) or {}


def with_parents(order: Json | None, entry: Entry) -> Json | None:
    """A stored order with the parents of an entry, if it names none, or only their numbers.  None: it stays."""
    parents = [dict(one.holder) for one in entry.numbered]
    numbers = [{name: one for name, one in parent.items() if name != "reference"} for parent in parents]
    if order is None or order.get("basedOn", numbers) != numbers or order.get("basedOn") == parents:
        return None
    return {**order, "basedOn": parents}


def _subject(resource: Json) -> str | None:
    found: str | None = resource.get("subject", {}).get("reference")
    return found


def _without_authority(key: IdentityKey) -> tuple[str, str]:
    return key.value, key.type


def _has(resource: Json, key: IdentityKey) -> bool:
    return key in map(key_of, identifiers_of(resource))


def _has_value(resource: Json, key: IdentityKey) -> bool:
    """Whether a resource has the number, of whatever authority: senders name it in one place and not in another."""
    found = map(key_of, identifiers_of(resource))
    return any(one.value == key.value and one.type == key.type for one in found)


def _is_meant(link: NumberedLink, observation: Json) -> bool:
    """Whether a result has the code and the sub-ID; without a code of the link none has."""
    codes = {one.get("code") for one in observation.get("code", {}).get("coding", ())}
    return bool(link.code) and link.code in codes and _sub_id(observation) == link.sub_id


def _sub_id(observation: Json) -> str:
    """OBX-4 as sent; empty: it has none."""
    for one in observation.get("extension", ()):
        if one.get("url") == SUB_ID:
            parts = {part.get("url"): part.get("valueString", part.get("valueDecimal")) for part in one["extension"]}
            return str(parts.get("original-sub-identifier", ""))
    return ""
