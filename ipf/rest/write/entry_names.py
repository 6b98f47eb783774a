"""The names by which entries of one transaction refer to each other, replaced by `Type/id` once these are known.

Where references stand is known of converted messages (`Unit.references`): they are completed in place.  In other
transactions they are looked for (`references.rewrite`).

Source: https://hl7.org/fhir/R4/http.html#trules, https://hl7.org/fhir/R4/bundle.html#references
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ipf.ports.entries import Entry, Link
from ipf.rest.write.prefetch import Key
from ipf.rest.write.unit import EntryResult

_RESTFUL = re.compile(r"(?<=/)[A-Z][A-Za-z]+/[A-Za-z0-9.-]{1,64}$")


class Keyed(Protocol):
    """A resource that will be written."""

    @property
    def key(self) -> Key:
        """Which one."""


End = EntryResult | Keyed
"""How an entry ended, or the resource that it is about."""


def restore(links: Sequence[Link], entries: Sequence[Entry]) -> None:
    """Put the names of entries where an attempt before this one has completed the references."""
    holder, name, number = links[0]
    if holder[name] == entries[number].full_url:
        return
    for holder, name, number in links:
        holder[name] = entries[number].full_url


def complete(links: Sequence[Link], ends: Sequence[End]) -> None:
    """Put `Type/id` where references to entries stand; what is not there any more keeps its name."""
    texts: list[str | None] = [None] * len(ends)
    for holder, name, number in links:
        text = texts[number]
        if text is None:
            text = texts[number] = reference_to(ends[number])
        if text:
            holder[name] = text


def reference_to(end: End) -> str:
    """`Type/id` of what an entry is about; empty for nothing."""
    if not isinstance(end, EntryResult):
        return f"{end.key[1]}/{end.key[2]}"
    version = end.version
    return "" if version is None else f"{version.resource_type}/{version.id}"


@dataclass(slots=True)
class Names:
    """What entries are called by others, and the `Type/id` to put in its place.

    `anywhere`: full URLs, replaced wherever they stand.  `references`: relative forms, only in `Reference.reference`.
    """

    anywhere: dict[str, str]
    references: dict[str, str]
    known_marks: list[tuple[bytes, ...]]

    def marks(self) -> tuple[bytes, ...]:
        """A resource whose JSON has none of these bytes holds none of the names; only HTTP transactions ask."""
        if not self.known_marks:
            self.known_marks.append(_marks([*self.anywhere, *self.references]))
        return self.known_marks[0]


def names_of(entries: Sequence[Entry], ends: Sequence[End]) -> Names:
    """How entries with a `full_url` are called, and what they are about."""
    anywhere: dict[str, str] = {}
    references: dict[str, str] = {}
    for entry, end in zip(entries, ends, strict=True):
        name = entry.full_url
        if name is None:
            continue
        reference = reference_to(end)
        if not reference:
            continue
        anywhere[name] = reference
        relative = None if name.startswith("urn:") else _RESTFUL.search(name)
        if relative is not None and relative[0] != reference:
            references[relative[0]] = reference
    return Names(anywhere, references, [])


def _marks(names: Sequence[str]) -> tuple[bytes, ...]:
    """What all names begin with, when that tells enough (`urn:uuid:`), else the names."""
    first, last = min(names, default=""), max(names, default="")
    start = first[: next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]
    return (start.encode(),) if len(start) > 8 else tuple(name.encode() for name in names)
