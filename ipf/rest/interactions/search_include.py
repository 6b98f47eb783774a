"""What is added to a page of matches: resources that they refer to (`_include`), or that refer to them (`_revinclude`).

References are read from the index entries of the resources on the page; no reference leaves this server.

Source: https://hl7.org/fhir/R4/search.html#revinclude
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import loads
from ipf.fhir.model.reference import parse_reference
from ipf.fhir.search.includes import reference_codes
from ipf.fhir.search.parameter import any_of
from ipf.fhir.search.predicate import tests_equal
from ipf.ports import OPEN, Caller, FhirStore, Version
from ipf.ports.search import Include, Query, Term
from ipf.rest.write.permission import visible

_MOST_ROUNDS = 10

Key = tuple[str, str]
"""(resource type, id)"""


@dataclass(slots=True)
class Included:
    """What was found, in the order in which it was; `cut_off`: there was more than `most`.

    What the `caller` may not see is left out, and nothing is followed from there.
    """

    store: FhirStore
    tenant: str
    base_url: str
    most: int
    caller: Caller = OPEN
    versions: list[Version] = field(default_factory=list)
    cut_off: bool = False
    known: set[Key] = field(default_factory=set)

    async def add(self, includes: Sequence[Include], matches: Sequence[Version]) -> None:
        """Follow the includes from the matches; those with `iterate` also from what they find."""
        self.known.update((one.resource_type, one.id) for one in matches)
        wanted, last = list(includes), list(matches)
        for _ in range(_MOST_ROUNDS):
            if not wanted or not last or self.cut_off:
                return
            found = len(self.versions)
            for include in wanted:
                await self._follow(include, last)
            last = self.versions[found:]
            wanted = [include for include in wanted if include.iterate]
        self.cut_off = self.cut_off or bool(wanted and last)

    async def _follow(self, include: Include, versions: Sequence[Version]) -> None:
        if include.reverse:
            await self._referring(include, versions)
        else:
            await self.refer(self._references(include, versions))

    def _references(self, include: Include, versions: Sequence[Version]) -> Iterator[Key]:
        by_type: dict[str, dict[str, str]] = {}
        for version in versions:
            kind = version.resource_type
            if include.source in ("", kind):
                codes = by_type.get(kind)
                if codes is None:
                    codes = by_type[kind] = dict(reference_codes(kind, include.code))
                for key, code in references(version, self.base_url):
                    refers_to = codes.get(code)
                    if refers_to is not None and refers_to in ("", key[0]) and include.target in ("", key[0]):
                        yield key

    async def refer(self, keys: Iterable[Key]) -> None:
        """Add these resources, unless they are known or not there."""
        wanted = [key for key in dict.fromkeys(keys) if key not in self.known]
        self.known.update(wanted)
        self._keep(await self.store.read_many(self.tenant, wanted))

    async def _referring(self, include: Include, versions: Sequence[Version]) -> None:
        pairs = reference_codes(include.source, include.code)
        values = [f"{one.resource_type}/{one.id}" for one in versions if include.target in ("", one.resource_type)]
        tests = [
            tests_equal(code, allowed)
            for code, refers_to in pairs
            if (allowed := [value for value in values if not refers_to or value.startswith(f"{refers_to}/")])
        ]
        if not tests:
            return
        query = Query(include.source, (Term("", "", any_of(tests)),), count=self.most, total="none")
        page = await self.store.search(self.tenant, query)
        new = [one for one in page.matches if (one.resource_type, one.id) not in self.known]
        self.known.update((one.resource_type, one.id) for one in new)
        self.cut_off = self.cut_off or page.next is not None
        self._keep(new)

    def _keep(self, versions: Sequence[Version]) -> None:
        versions = visible(versions, self.caller)
        room = self.most - len(self.versions)
        self.cut_off = self.cut_off or len(versions) > room
        self.versions += versions[:room]


def references(version: Version, base_url: str) -> Iterator[tuple[Key, str]]:
    """What a resource refers to on this server, and under which code of the index."""
    for code, value in extract(loads(version.body)).texts:
        if "\t" in value or "/" not in value:
            continue
        literal = parse_reference(value.removeprefix(f"{base_url}/"))
        if literal is not None and not literal.base:
            yield (literal.resource_type, literal.id), code
