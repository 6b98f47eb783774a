"""What this server judges and explains with: definitions of the store, of packages, and our own, in that order.

One object for the process.  Nothing is read before the first question.  Definitions that clients store (profiles, value
sets, code systems) are looked up again when they may have changed: after a write of such a type by this process, and
after LOOK_SECONDS in any case, since other processes write too.  A tenant sees its own.

Contract: `SUBSCRIPTION_SERVICE_VALIDATION_MODE` off | warn | enforce (interface specification, "Profile validation").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ipf.errors import Category, Issue, Problem
from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.model.packages import Packages
from ipf.fhir.profiles.catalog import KINDS, Catalog, url_id
from ipf.fhir.profiles.library import Structures
from ipf.fhir.search.match import matches
from ipf.fhir.search.predicate import parameters_that_need_store, query_needs_resource
from ipf.fhir.search.query import parse_query
from ipf.fhir.terminology import Terminology
from ipf.fhir.validation.findings import Finding, failed
from ipf.ports import Clock, FhirStore, Json, Request, SearchPage, Version
from ipf.ports.search import Query

if TYPE_CHECKING:
    from ipf.fhir.validation.validator import Validator

OFF, WARN, ENFORCE = "off", "warn", "enforce"
LOOK_SECONDS = 10
MOST_STORED = 5000
DEFINITIONS = ("StructureDefinition", "ValueSet", "CodeSystem", "ConceptMap")
"""The resource types that are taken from packages and from the store."""

_STATED = datetime.fromisoformat("2026-11-21T00:00:00+00:00")  # when our tables were made
_LONG_AGO = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_NARROWING = frozenset({"url", "_id", "name", "identifier", "derivation", "base", "type", "version"})

State = tuple[tuple[str, int, datetime | None], ...]


@dataclass(slots=True)
class Known:
    """What one tenant's server knows: made anew when its stored definitions changed."""

    validator: Validator
    terminology: Terminology
    stored: dict[tuple[str, str], Json] = field(default_factory=dict)  # (type, canonical) -> resource


@dataclass(slots=True)
class _Seen:
    known: Known
    state: State
    looked: datetime


class Conformance:
    """Validators and terminologies by tenant; own definitions for reads and searches.  `mode`: see the contract."""

    def __init__(self, load_packages: Callable[[], Packages], store: FhirStore, clock: Clock, mode: str = OFF) -> None:
        self.mode = mode
        self._load_packages = load_packages
        self._store = store
        self._clock = clock
        self._packages: Packages | None = None
        self._catalog: Catalog | None = None
        self._shared: Known | None = None
        self._seen: dict[str, _Seen] = {}
        self._entries: dict[str, list[tuple[str, Any]]] = {}

    @property
    def packages(self) -> Packages:
        """The packages, read when they are first asked for.  Problem MALFORMED for a broken one."""
        if self._packages is None:
            self._packages = self._load_packages()
        return self._packages

    @property
    def catalog(self) -> Catalog:
        """Own definitions and those of packages."""
        if self._catalog is None:
            self._catalog = Catalog(self.packages, Structures(self._in_packages))
        return self._catalog

    async def known(self, tenant: str) -> Known:
        """What is known now; looks whether the tenant's stored definitions changed."""
        seen, now = self._seen.get(tenant), self._clock()
        if seen is not None and now - seen.looked < timedelta(seconds=LOOK_SECONDS):
            return seen.known
        state = await self._state(tenant)
        if seen is None or seen.state != state:
            stored = await self._stored(tenant, state)
            seen = self._seen[tenant] = _Seen(self._make(stored) if stored else self.shared, state, now)
        seen.looked = now
        return seen.known

    @property
    def shared(self) -> Known:
        """What is known where nothing is stored."""
        if self._shared is None:
            self._shared = self._make({})
        return self._shared

    async def ready(self, tenant: str) -> None:
        """Before a write: have what `check` and `remarks` need."""
        if self.mode != OFF:
            await self.known(tenant)

    def wrote(self, request: Request) -> None:
        """After a write: when it may have changed definitions, look again at the next question."""
        seen = self._seen.get(request.tenant)
        if seen is not None and (not request.path or request.path[0] in ("", *DEFINITIONS)):
            seen.looked = _LONG_AGO

    def check(self, resource: Json, tenant: str) -> None:
        """In mode `enforce`, Problem INVALID for a resource with an error; by what `known` last saw."""
        if self.mode != ENFORCE:
            return
        seen = self._seen.get(tenant)
        findings = (seen.known if seen is not None else self.shared).validator.validate(resource)
        if failed(findings):
            raise refusal(findings)

    def remarks(self, version: Version, tenant: str) -> list[Finding]:
        """In mode `warn`, what is to be said of a version that was stored."""
        if self.mode != WARN or version.deleted:
            return []
        seen = self._seen.get(tenant)
        return (seen.known if seen is not None else self.shared).validator.validate(loads(version.body))

    def read(self, resource_type: str, id: str) -> Version | None:
        """A definition that is not in the store, as the version that it always is."""
        if resource_type not in KINDS:
            return None
        found = self.catalog.by_id(resource_type, id)
        return _version(found) if found is not None else None

    def beside(self, query: Query, page: SearchPage) -> SearchPage:
        """The first page of a search with the own definitions that match, unless the store has the same canonical.

        Only searches that narrow (by url, id, name, type ...) find them: they would drown all others.
        """
        if (
            query.resource_type not in KINDS
            or page.next is not None
            or query_needs_resource(query)
            or parameters_that_need_store(query)
        ):
            return page
        if not _NARROWING & {term.name.partition(":")[0] for term in query.terms}:
            return page
        stored = {loads(one.body).get("url") for one in page.matches}
        found = [one for one in self._matching(query) if one not in stored]
        versions = [one for one in map(self._served(query.resource_type), found[:200]) if one is not None]
        total = None if page.total is None else page.total + len(versions)
        return SearchPage(total, (*page.matches, *(() if query.summary_count else versions)), None)

    def _served(self, resource_type: str) -> Callable[[str], Version | None]:
        def version(url: str) -> Version | None:
            found = self.catalog.by_url(resource_type, url)
            return _version(found) if found is not None else None

        return version

    def _matching(self, query: Query) -> list[str]:
        """Canonicals of the own definitions that a query finds."""
        indexed = self._entries.get(query.resource_type)
        if indexed is None:
            indexed = self._entries[query.resource_type] = list(self._index(query.resource_type))
        return [
            url
            for url, entries in indexed
            if matches(query, entries, id=_id(self.packages, query.resource_type, url), last_updated=_STATED)
        ]

    def _index(self, resource_type: str) -> Any:
        for url in self.catalog.urls(resource_type):
            found = self._short(resource_type, url)
            if found is not None:
                yield url, extract(found)

    def _short(self, resource_type: str, url: str) -> Json | None:
        """A definition without its bulk: what searches look at."""
        found = self._in_packages(url) if resource_type == "StructureDefinition" else None
        if resource_type == "StructureDefinition":
            found = found or self.shared.validator.structures.get(url)
        else:
            found = self.catalog.by_url(resource_type, url)
        return None if found is None else {name: value for name, value in found.items() if name not in _BULK}

    def _make(self, stored: dict[tuple[str, str], Json]) -> Known:
        def structure(url: str) -> Json | None:
            return _of(stored, "StructureDefinition", url) or self._in_packages(url)

        def term(resource_type: str, url: str) -> Json | None:
            found = _of(stored, resource_type, url)
            if found is None and (entry := self.packages.find(url, resource_type)) is not None:
                found = entry.resource()
            return found

        from ipf.fhir.validation.validator import Validator  # for the first who asks: it is no small part of a server

        terminology = Terminology(term)
        return Known(Validator(Structures(structure), terminology), terminology, stored)

    def _in_packages(self, url: str) -> Json | None:
        entry = self.packages.find(url, "StructureDefinition")
        return entry.resource() if entry is not None else None

    async def _state(self, tenant: str) -> State:
        """How many definitions of each type are stored, and when the last one changed."""
        present = set(await self._store.types(tenant))
        found = []
        for kind in DEFINITIONS:
            if kind in present:
                query = parse_query(kind, [("_sort", "-_lastUpdated"), ("_count", "1"), ("_total", "accurate")])
                page = await self._store.search(tenant, query)
                found.append((kind, page.total or 0, page.matches[0].last_updated if page.matches else None))
        return tuple(found)

    async def _stored(self, tenant: str, state: State) -> dict[tuple[str, str], Json]:
        found: dict[tuple[str, str], Json] = {}
        for kind, _, _ in state:
            query, cursor = parse_query(kind, [("_count", "200"), ("_sort", "_lastUpdated")]), None
            while len(found) < MOST_STORED:
                page = await self._store.search(tenant, query, cursor)
                for version in page.matches:
                    resource = loads(version.body)
                    if isinstance(resource.get("url"), str):
                        found[kind, resource["url"]] = resource
                cursor = page.next
                if cursor is None:
                    break
        return found


_BULK = ("snapshot", "differential", "concept", "compose")


def refusal(findings: list[Finding]) -> Problem:
    """The Problem (422) of a resource that is not valid: its errors first, then what else was found."""
    errors = [one for one in findings if one.severity == "error"]
    issues = tuple(Issue(one.text, one.place or None, Category.INVALID, one.code) for one in errors)
    return Problem(Category.INVALID, "the resource is not valid", issues=issues)


def _of(stored: dict[tuple[str, str], Json], resource_type: str, url: str) -> Json | None:
    bare, _, version = url.partition("|")
    found = stored.get((resource_type, bare))
    return found if found is not None and version in ("", found.get("version", "")) else None


def _id(packages: Packages, resource_type: str, url: str) -> str:
    entry = packages.find(url, resource_type)
    return entry.id if entry is not None else url_id(url)


def _version(resource: Json) -> Version:
    whole = {**resource, "meta": {**resource.get("meta", {}), "versionId": "1", "lastUpdated": _STATED.isoformat()}}
    return Version(0, resource["resourceType"], resource["id"], 1, _STATED, dumps(whole))
