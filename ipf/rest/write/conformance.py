"""Conformance resources for validation and terminology: from the store, from packages, and built in, in that order.

A process has one object, which loads on first use.  Stored definitions (profiles, value sets, code systems) are checked
for changes after a write of such a type by this process, and after REFRESH_SECONDS, since other processes write too.
Each tenant has its own.

Contract: `SUBSCRIPTION_SERVICE_VALIDATION_MODE` off | warn | enforce (interface specification, "Profile validation").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from ipf.errors import Category, Issue, Problem
from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.model.packages import Packages
from ipf.fhir.profiles.catalog import KINDS, Catalog, url_id
from ipf.fhir.profiles.library import Structures
from ipf.fhir.search.evaluation.match import matches
from ipf.fhir.search.language.query import parse_query
from ipf.fhir.search.predicate import parameters_that_need_store, query_needs_resource
from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.codings import Coded, coded_in
from ipf.fhir.validation.findings import Finding, failed
from ipf.ports import Clock, FhirStore, Json, Request, SearchPage, Version
from ipf.ports.fhir.terminology import CodeSystems, Facts, ImportedSystem
from ipf.ports.queries.search import Query
from ipf.ports.threads import LARGE, RunInThread, run_by_size, run_inline
from ipf.rest.http.exchange import sent_resource

if TYPE_CHECKING:
    from ipf.fhir.validation.validator import Validator

OFF, WARN, ENFORCE = "off", "warn", "enforce"
REFRESH_SECONDS = 10
MAX_STORED = 5000
_AT_ONCE = 2000  # codes that one statement looks up
DEFINITIONS = ("StructureDefinition", "ValueSet", "CodeSystem", "ConceptMap", "Questionnaire")
"""The resource types loaded from packages and from the store."""

_STATED = datetime.fromisoformat("2026-11-21T00:00:00+00:00")  # the date of the built-in tables
_LONG_AGO = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_NARROWING = frozenset({"url", "_id", "name", "identifier", "derivation", "base", "type", "version"})

State = tuple[tuple[str, int, datetime | None], ...]


@dataclass(slots=True)
class Definitions:
    """The definitions of one tenant; rebuilt when its stored definitions change."""

    validator: Validator
    terminology: Terminology
    stored: dict[tuple[str, str], Json] = field(default_factory=dict)
    """(type, canonical) -> resource: by its URL the one that changed last, by `url|version` that version."""


@dataclass(slots=True)
class _CachedDefinitions:
    definitions: Definitions
    state: State
    checked_at: datetime


class Conformance:
    """Validators and terminologies by tenant; built-in definitions for reads and searches.  `mode`: see above."""

    def __init__(
        self,
        load_packages: Callable[[], Packages],
        store: FhirStore,
        clock: Clock,
        mode: str = OFF,
        run_in_thread: RunInThread = run_inline,
        systems: CodeSystems | None = None,
    ) -> None:
        self.mode = mode
        self.systems = systems
        self._imported: tuple[ImportedSystem, ...] = ()
        self._run_in_thread = run_in_thread
        self._load_packages = load_packages
        self._store = store
        self._clock = clock
        self._packages: Packages | None = None
        self._catalog: Catalog | None = None
        self._shared: Definitions | None = None
        self._cache: dict[str, _CachedDefinitions] = {}
        self._entries: dict[str, list[tuple[str, Any]]] = {}

    @property
    def packages(self) -> Packages:
        """The packages, loaded on first use.  Problem MALFORMED for an invalid one."""
        if self._packages is None:
            self._packages = self._load_packages()
        return self._packages

    @property
    def catalog(self) -> Catalog:
        """Built-in definitions and those of packages."""
        if self._catalog is None:
            self._catalog = Catalog(self.packages, Structures(self._in_packages))
        return self._catalog

    async def current_definitions_of(self, tenant: str) -> Definitions:
        """As `definitions_of`, with the code systems that are imported now."""
        await self._load_imported()
        return await self.definitions_of(tenant)

    async def _load_imported(self) -> None:
        if self.systems is None or (found := tuple(await self.systems.imported())) == self._imported:
            return
        self._imported, self._shared = found, None
        self._cache.clear()

    async def definitions_of(self, tenant: str) -> Definitions:
        """The current definitions of a tenant; checks for changes in the store."""
        cached, now = self._cache.get(tenant), self._clock()
        if cached is not None and now - cached.checked_at < timedelta(seconds=REFRESH_SECONDS):
            return cached.definitions
        await self._load_imported()
        cached = self._cache.get(tenant)
        state = await self._state(tenant)
        if cached is None or cached.state != state:
            stored = await self._stored(tenant, state)
            cached = self._cache[tenant] = _CachedDefinitions(self._make(stored) if stored else self.shared, state, now)
        cached.checked_at = now
        return cached.definitions

    @property
    def shared(self) -> Definitions:
        """The definitions of tenants without stored ones."""
        if self._shared is None:
            self._shared = self._make({})
        return self._shared

    async def prepare(self, request: Request) -> None:
        """Before a write: load the definitions for `check` and `warnings`, and the codes of its body."""
        if self.mode == OFF:
            return
        known = (await self.definitions_of(request.tenant)).terminology
        if known.imported_systems:
            await self.recall(known, await run_by_size(len(request.body), self._run_in_thread, lambda: _codes(request)))

    async def recall(self, terminology: Terminology, codes: Iterable[Coded]) -> None:
        """Look up what imported systems have of these codes; the system may be a canonical with version.

        Many codes, and codes that are still to be searched in a resource, are gone through in a thread.
        """
        if not terminology.imported_systems:
            return
        if isinstance(codes, Sequence) and len(codes) < LARGE:
            wanted = _lacking(terminology, codes)
        else:
            wanted = await self._run_in_thread(lambda: _lacking(terminology, codes))
        for imported, asked in wanted.items():
            for start in range(0, len(asked), _AT_ONCE) if self.systems is not None else ():
                await self._remember(terminology, imported, asked[start : start + _AT_ONCE])

    async def _remember(self, terminology: Terminology, imported: ImportedSystem, asked: list[str]) -> None:
        assert self.systems is not None, "the caller has looked"
        try:
            terminology.remember(imported, asked, await _facts(self.systems, imported, set(asked)))
        except Problem:  # another import may have replaced the system: the next request looks again
            for cached in self._cache.values():
                cached.checked_at = _LONG_AGO
            raise

    def note_write(self, request: Request) -> None:
        """After a write that may have changed definitions: check for changes on next use."""
        cached = self._cache.get(request.tenant)
        if cached is not None and (not request.path or request.path[0] in ("", *DEFINITIONS)):
            cached.checked_at = _LONG_AGO

    def check(self, resource: Json, tenant: str) -> None:
        """In mode `enforce`, Problem INVALID for a resource with an error; uses the definitions loaded last."""
        if self.mode != ENFORCE:
            return
        cached = self._cache.get(tenant)
        findings = (cached.definitions if cached is not None else self.shared).validator.validate(resource)
        if failed(findings):
            raise refusal(findings)

    def warnings(self, version: Version, tenant: str) -> list[Finding]:
        """In mode `warn`, the findings of a stored version."""
        if self.mode != WARN or version.deleted:
            return []
        cached = self._cache.get(tenant)
        return (cached.definitions if cached is not None else self.shared).validator.validate(loads(version.body))

    def read(self, resource_type: str, id: str) -> Version | None:
        """A built-in definition as a version; None when there is none."""
        if resource_type not in KINDS:
            return None
        found = self.catalog.by_id(resource_type, id)
        return _version(found) if found is not None else None

    def with_own_definitions(self, query: Query, page: SearchPage) -> SearchPage:
        """The first page of a search with matching built-in definitions, unless the store has the same canonical.

        Only selective searches (by url, id, name, type ...) include them, since there are thousands.
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
        """Canonical URLs of the built-in definitions that match a query."""
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
            found = self._summary(resource_type, url)
            if found is not None:
                yield url, extract(found)

    def _summary(self, resource_type: str, url: str) -> Json | None:
        """A definition without its large elements, for searches."""
        found = self._in_packages(url) if resource_type == "StructureDefinition" else None
        if resource_type == "StructureDefinition":
            found = found or self.shared.validator.structures.get(url)
        else:
            found = self.catalog.by_url(resource_type, url)
        return None if found is None else {name: value for name, value in found.items() if name not in _BULK}

    def _make(self, stored: dict[tuple[str, str], Json]) -> Definitions:
        def structure(url: str) -> Json | None:
            return stored.get(("StructureDefinition", url)) or self._in_packages(url)

        def term(resource_type: str, url: str) -> Json | None:
            found = stored.get((resource_type, url))
            if found is None and (entry := self.packages.find(url, resource_type)) is not None:
                found = entry.resource()
            return found

        from ipf.fhir.validation.validator import Validator  # imported on first use: it is large

        systems = [one for (kind, url), one in stored.items() if kind == "CodeSystem" and "|" not in url]
        supplements = [one for one in systems if "supplements" in one]
        terminology = Terminology(term, self._imported, supplements)
        questionnaire = partial(term, "Questionnaire")
        return Definitions(Validator(Structures(structure), terminology, questionnaire), terminology, stored)

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
        number = 0
        for kind, _, _ in state:
            query, cursor = parse_query(kind, [("_count", "200"), ("_sort", "_lastUpdated")]), None
            while number < MAX_STORED:
                page = await self._store.search(tenant, query, cursor)
                number += len(page.matches)
                found |= await self._run_in_thread(partial(_by_canonical, page.matches))
                cursor = page.next
                if cursor is None:
                    break
        return found


def _lacking(terminology: Terminology, codes: Iterable[Coded]) -> dict[ImportedSystem, list[str]]:
    """The codes of imported systems that nobody has asked for."""
    wanted: dict[ImportedSystem, set[str]] = {}
    for system, code in codes:
        imported = terminology.imported(system)
        if imported is not None and terminology.lacks(imported, code):
            wanted.setdefault(imported, set()).add(code)
    return {imported: sorted(asked) for imported, asked in wanted.items()}


def _by_canonical(versions: Sequence[Version]) -> dict[tuple[str, str], Json]:
    """The resources of these versions that have a canonical URL, by it with and without their version."""
    found: dict[tuple[str, str], Json] = {}
    for kind, one in ((version.resource_type, loads(version.body)) for version in versions):
        if isinstance(one.get("url"), str):
            found[kind, one["url"]] = one
            if one.get("version"):
                found[kind, f"{one['url']}|{one['version']}"] = one
    return found


def _codes(request: Request) -> set[Coded]:
    """The codes of the resource in a body; none of a body that is no resource."""
    if not request.body:
        return set()
    try:
        return set(coded_in(sent_resource(request)))
    except Problem:
        return set()


async def _facts(systems: CodeSystems, imported: ImportedSystem, codes: set[str]) -> dict[str, Facts]:
    """The facts of these codes, by the code as it was asked for."""
    if imported.is_case_sensitive:
        return dict(await systems.facts(imported, codes))
    found = await systems.facts(imported, {form for code in codes for form in (code, code.upper(), code.lower())})
    named = {code: found.get(code) or found.get(code.upper()) or found.get(code.lower()) for code in codes}
    return {code: facts for code, facts in named.items() if facts is not None}


_BULK = ("snapshot", "differential", "concept", "compose")


def refusal(findings: list[Finding]) -> Problem:
    """The Problem (422) of an invalid resource, with one issue per error."""
    errors = [one for one in findings if one.severity == "error"]
    issues = tuple(Issue(one.words, one.location or None, Category.INVALID, one.code) for one in errors)
    return Problem(Category.INVALID, "the resource is not valid", issues=issues)


def _id(packages: Packages, resource_type: str, url: str) -> str:
    entry = packages.find(url, resource_type)
    return entry.id if entry is not None else url_id(url)


def _version(resource: Json) -> Version:
    whole = {**resource, "meta": {**resource.get("meta", {}), "versionId": "1", "lastUpdated": _STATED.isoformat()}}
    return Version(0, resource["resourceType"], resource["id"], 1, _STATED, dumps(whole))
