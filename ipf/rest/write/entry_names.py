"""References between entries of one transaction, replaced by `Type/id` once the ids are known.

For converted messages the positions of the references are known (`Unit.references`), and they are completed in place.
For other transactions the resources are searched (`links.rewrite`).

Source: https://hl7.org/fhir/R4/http.html#trules, https://hl7.org/fhir/R4/bundle.html#references
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ipf.fhir.model.reference import relative_form
from ipf.ports.queries.entries import Entry, Link
from ipf.rest.write.links import Links
from ipf.rest.write.second_look import Key
from ipf.rest.write.unit import EntryResult

_RESTFUL = re.compile(r"(?<=/)[A-Z][A-Za-z]+/[A-Za-z0-9.-]{1,64}$")


class KeyedResource(Protocol):
    """A resource that will be written."""

    @property
    def key(self) -> Key:
        """The key of the resource."""


EntryOutcome = EntryResult | KeyedResource
"""The result of an entry, or the resource that it will write."""


def restore_names(links: Sequence[Link], entries: Sequence[Entry]) -> None:
    """Restore the names of entries in references that an earlier attempt completed."""
    holder, name, number = links[0]
    if holder[name] == entries[number].full_url:
        return
    for holder, name, number in links:
        holder[name] = entries[number].full_url


def complete_references(links: Sequence[Link], outcomes: Sequence[EntryOutcome]) -> None:
    """Replace references to entries by `Type/id`; references to deleted resources keep the name."""
    references: list[str | None] = [None] * len(outcomes)
    for holder, name, number in links:
        reference = references[number]
        if reference is None:
            reference = references[number] = reference_to(outcomes[number])
        if reference:
            holder[name] = reference


def reference_to(outcome: EntryOutcome) -> str:
    """`Type/id` of the resource of an entry; empty when there is none."""
    if not isinstance(outcome, EntryResult):
        return f"{outcome.key[1]}/{outcome.key[2]}"
    version = outcome.version
    return "" if version is None else f"{version.resource_type}/{version.id}"


@dataclass(slots=True)
class EntryNames:
    """The names of entries and the `Type/id` to replace them.

    `links`: what is replaced.  `search_bytes`: JSON without any of them contains no name.
    """

    links: Links
    search_bytes: tuple[bytes, ...]

    def with_searches(self, searches: Mapping[str, str]) -> Links:
        """The links with conditional references."""
        return replace(self.links, searches=searches) if searches else self.links


def names_of(entries: Sequence[Entry], outcomes: Sequence[EntryOutcome]) -> EntryNames:
    """The names of entries with a `full_url`, and their resources."""
    full_urls: dict[str, str] = {}
    canonical = set[str]()
    relative_references: dict[str, str] = {}
    for entry, outcome in zip(entries, outcomes, strict=True):
        name = entry.full_url
        if name is None:
            continue
        reference = reference_to(outcome)
        if not reference:
            continue
        full_urls[name] = reference
        if is_canonical(entry):
            canonical.add(name)
        for relative in other_names(entry):
            if relative != reference:
                relative_references[relative] = reference
    uris = {name: to for name, to in full_urls.items() if name not in canonical} if canonical else full_urls
    links = Links({**full_urls, **relative_references}, uris, full_urls)
    return EntryNames(links, _search_bytes([*links.references]))


def is_canonical(entry: Entry) -> bool:
    """Whether the `fullUrl` of an entry is the canonical URL of its resource."""
    return entry.resource is not None and entry.full_url is not None and entry.resource.get("url") == entry.full_url


def other_names(entry: Entry) -> Sequence[str]:
    """The relative reference that means an entry, by its `fullUrl`; there is at most one."""
    found = None if entry.full_url is None or entry.full_url.startswith("urn:") else _RESTFUL.search(entry.full_url)
    return () if found is None else (found[0],)


def names_elsewhere(entries: Sequence[Entry], base_url: str) -> frozenset[str]:
    """The relative references that mean entries whose `fullUrl` is that of another server."""
    urls = [one.full_url for one in entries if one.full_url is not None and one.full_url.startswith("http")]
    found = (_RESTFUL.search(one) for one in urls if relative_form(one, base_url) == one)
    return frozenset(one[0] for one in found if one is not None)


def _search_bytes(names: Sequence[str]) -> tuple[bytes, ...]:
    """The common prefix of all names when it is long enough (`urn:uuid:`), else the names."""
    first, last = min(names, default=""), max(names, default="")
    start = first[: next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]
    return (start.encode(),) if len(start) > 8 else tuple(name.encode() for name in names)
