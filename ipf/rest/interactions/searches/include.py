"""Included resources of a page: referenced by its matches (`_include`), or referencing them (`_revinclude`).

References are taken from the index entries of the resources on the page; references to other servers are ignored.
Canonical URLs are looked for among the resources with such a URL (`canonical.py`).
With `:iterate` an include is followed from included resources too, step by step, until nothing new is found.

Source: https://hl7.org/fhir/R4/search.html#revinclude
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ipf.fhir.index.extract import extract
from ipf.fhir.model.element_types import objects
from ipf.fhir.model.json import loads
from ipf.fhir.model.reference import local_reference
from ipf.fhir.search.language.includes import reference_codes
from ipf.fhir.search.predicate import tests_equal
from ipf.fhir.search.values.parameter import any_of
from ipf.ports import OPEN, Caller, FhirStore, Json, Version
from ipf.ports.queries.predicates import Test
from ipf.ports.queries.search import Include, Query, Term
from ipf.rest.interactions.searches.canonical import canonical_codes, url_codes, urls_in, urls_of
from ipf.rest.write.permission import found_by, visible

_MOST_STEPS = 10
_TRAIL = "AuditEvent"  # refers to nearly everything: `_revinclude=*` does not mean it

Key = tuple[str, str]
"""(resource type, id)"""


@dataclass(slots=True)
class Included:
    """Included resources in order of discovery.

    `is_truncated`: there were more than `limit`.  `is_deep`: more than ten steps of `:iterate` would find more.

    Resources that the `caller` may not see are left out, and their references are not followed.
    """

    store: FhirStore
    tenant: str
    base_url: str
    limit: int
    caller: Caller = OPEN
    versions: list[Version] = field(default_factory=list)
    is_truncated: bool = False
    is_deep: bool = False
    known: set[Key] = field(default_factory=set)

    async def add(self, includes: Sequence[Include], matches: Sequence[Version]) -> None:
        """Follow the includes from the matches; those with `iterate` also from included resources."""
        self.known.update((one.resource_type, one.id) for one in matches)
        wanted, last, found = list(dict.fromkeys(includes)), list(matches), 0
        for _ in range(_MOST_STEPS + 1):
            if not wanted or not last or self.is_truncated:
                return
            found = len(self.versions)
            for include in wanted:
                await self._follow(include, last)
            last = self.versions[found:]
            wanted = [include for include in wanted if include.iterate]
        self.is_deep = bool(last)
        del self.versions[found:]  # of the step beyond the last one

    @property
    def left_out(self) -> list[str]:
        """What was left out, in words."""
        texts = [f"more than {self.limit} resources would be included; further ones are left out"] * self.is_truncated
        deep = f"the includes with :iterate end after {_MOST_STEPS} steps; what further ones would find is left out"
        return [*texts, deep] if self.is_deep else texts

    async def _follow(self, include: Include, versions: Sequence[Version]) -> None:
        if include.reverse:
            await self._referring(include, versions)
        else:
            await self.refer(self._references(include, versions))
            await self._meant(include, versions)

    async def _meant(self, include: Include, versions: Sequence[Version]) -> None:
        """Add the resources that canonical URLs mean."""
        wanted: dict[str, set[str]] = {}
        stored: Sequence[str] | None = None
        for version in versions:
            kind = version.resource_type
            codes = canonical_codes(kind, include.code) if include.source in ("", kind) else {}
            for code in codes:
                urls = urls_in(version, (code,))
                if not urls:
                    continue
                stored = stored if stored is not None else await self.store.types(self.tenant)
                for target in stored:
                    if target in (codes[code] or stored) and include.target in ("", target):
                        wanted.setdefault(target, set()).update(urls)
        for target, urls in wanted.items():
            bare = {one.partition("|")[0] for one in urls}
            tests = [tests_equal(code, bare) for code in url_codes(target)]
            await self._find(target, tests, partial(_is_meant, urls))

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
        """Add these resources; known and missing ones are skipped."""
        wanted = [key for key in dict.fromkeys(keys) if key not in self.known]
        self.known.update(wanted)
        self._keep(await self.store.read_many(self.tenant, wanted))

    async def _referring(self, include: Include, versions: Sequence[Version]) -> None:
        sources = [include.source] if include.source else await self.store.types(self.tenant)
        for source in sources:
            if source != _TRAIL or include.source:
                await self._referring_from(replace(include, source=source), versions)

    async def _referring_from(self, include: Include, versions: Sequence[Version]) -> None:
        pairs = reference_codes(include.source, include.code)
        values = [f"{one.resource_type}/{one.id}" for one in versions if include.target in ("", one.resource_type)]
        tests = [
            tests_equal(code, allowed)
            for code, refers_to in pairs
            if (allowed := [value for value in values if not refers_to or value.startswith(f"{refers_to}/")])
        ]
        codes = canonical_codes(include.source, include.code)
        urls = {url for one in versions if codes and include.target in ("", one.resource_type) for url in urls_of(one)}
        if not urls:
            await self._find(include.source, tests)
            return
        tests += [tests_equal(code, urls) for code in codes]
        known, meant = {code for code, _ in pairs}, urls.union(values)
        await self._find(include.source, tests, lambda one: not meant.isdisjoint(urls_in(one, known)))

    async def _find(
        self, resource_type: str, tests: list[Test], is_meant: Callable[[Version], bool] = lambda one: True
    ) -> None:
        """Add the resources that pass one of the tests and are meant."""
        if not tests:
            return
        asked = Query(resource_type, (Term("", "", any_of(tests)),), count=self.limit, total="none")
        query = found_by(asked, self.caller)  # hidden ones must neither fill the page nor cause a warning
        if query is None:
            return
        page = await self.store.search(self.tenant, query)
        new = [one for one in page.matches if (one.resource_type, one.id) not in self.known and is_meant(one)]
        self.known.update((one.resource_type, one.id) for one in new)
        self.is_truncated = self.is_truncated or page.next is not None
        self._keep(new)

    def _keep(self, versions: Sequence[Version]) -> None:
        versions = visible(versions, self.caller)
        room = self.limit - len(self.versions)
        self.is_truncated = self.is_truncated or len(versions) > room
        self.versions += versions[:room]


def _is_meant(urls: set[str], one: Version) -> bool:
    return not urls.isdisjoint(urls_of(one))


def references(version: Version, base_url: str) -> Iterator[tuple[Key, str]]:
    """The references of a resource to this server, each with its index code, in the order of the resource."""
    resource = loads(version.body)
    found = []
    for code, value in extract(resource).texts:  # in no order
        if "\t" in value or "/" not in value:
            continue
        literal = local_reference(value, base_url)
        if literal is not None:
            found.append(((literal.resource_type, literal.id), code))
    places = _places(resource, base_url) if len(found) > 1 else {}
    yield from sorted(found, key=lambda one: (places.get(one[0], len(places)), one))


def _places(resource: Json, base_url: str) -> dict[Key, int]:
    """The place of the first Reference to each resource."""
    places: dict[Key, int] = {}
    for kind, value in objects(resource):
        text = value.get("reference") if kind == "Reference" else None
        literal = local_reference(text, base_url) if type(text) is str else None
        if literal is not None:
            places.setdefault((literal.resource_type, literal.id), len(places))
    return places
