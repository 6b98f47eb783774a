"""A FHIR server for tests: a store, a clock that stands still until moved, and requests as one-liners.

A suite is written once, on the world's ports.  It runs on the stores in memory (`OnMemory`); where SQL decides the
outcome, on PostgreSQL as well: `OnSharedPostgres`, or `OnPostgres` where a test looks across tenants.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qsl

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import dumps, loads
from ipf.fhir.search.language.query import parse_criteria
from ipf.ports import DEFAULT_TENANT, OPEN, Answer, Caller, FhirStore, Json, Request, Terminology, Version
from ipf.ports.fhir.exports import Exports
from ipf.ports.fhir.expunge import ExpungeStore
from ipf.ports.fhir.history import Histories
from ipf.ports.fhir.integrity import Referrers
from ipf.ports.jobs import Jobs
from ipf.rest.http.job_limit import JobLimit
from ipf.rest.router import handler
from ipf.rest.write.commit import commit
from ipf.rest.write.conformance import Conformance
from ipf.rest.write.integrity import Integrity
from ipf.rest.write.repository import Fetch, Repository
from ipf.rest.write.unit import Entry, Method, Unit
from ipf.security.deident.resource import Deidentification
from ipf.security.vault import Vault
from ipf.store.erasure.expunge import PostgresExpungeStore
from ipf.store.postgres.database import Database
from ipf.store.resources.exports import PostgresExports
from ipf.store.resources.history import PostgresHistories
from ipf.store.resources.integrity import PostgresReferrers
from ipf.store.resources.jobs import PostgresJobs
from ipf.store.resources.resources import PostgresFhirStore
from ipf.subscriptions.endpoint_names import EndpointNames
from ipf.subscriptions.matching import MatchingIndex
from ipf.subscriptions.policy import ChannelPolicy
from tests import postgres
from tests.fakes import MemoryFhirStore
from tests.fakes.exports import MemoryExports
from tests.fakes.expunge import MemoryExpungeStore
from tests.fakes.history import MemoryHistories
from tests.fakes.integrity import MemoryReferrers
from tests.fakes.jobs import MemoryJobs

BASE = "http://localhost:8090/fhir"
CORRELATION_ID = "0190f7a4-2b6e-7cc0-8a11-2f6d3c1b9e55"


@dataclass
class World:
    """One server."""

    store: Any = field(default_factory=MemoryFhirStore)
    now: datetime = datetime(2026, 1, 31, 8, 5, 9, 120_456, UTC)
    policy: ChannelPolicy = field(default_factory=ChannelPolicy)
    names: EndpointNames | None = None
    matcher: MatchingIndex = field(default_factory=MatchingIndex)
    database: Any = None
    memory_exports: MemoryExports | None = None
    memory_jobs: MemoryJobs | None = None
    fetch: Fetch | None = None
    export_hours: float = 24.0
    deletes_many: bool = False
    deident: Deidentification | None = None
    integrity: bool = False
    expunges: bool = False
    holds: tuple[str, ...] = ()
    terminology: Terminology | None = None
    closures: Any = None
    reindex: Any = None
    conformance: Conformance | None = None
    deliveries: Any = None
    bindings: Any = None
    vault: Vault = field(default_factory=Vault)
    caller: Caller = OPEN
    max_page_size: int = 1000
    job_limit: JobLimit | None = None
    suffix: str = ""  # of the names of tenants, where several tests share a database
    tenant: str = DEFAULT_TENANT

    @property
    def histories(self) -> Histories:
        """The history of many resources."""
        return MemoryHistories(self.store) if self.database is None else PostgresHistories(self.database)

    @property
    def exports(self) -> Exports:
        """Bulk export."""
        if self.database is not None:
            return PostgresExports(self.database)
        if self.memory_exports is None:
            self.memory_exports = MemoryExports(self.store, lambda: self.now)
        return self.memory_exports

    @property
    def jobs(self) -> Jobs:
        """Work after the answer."""
        if self.database is not None:
            return PostgresJobs(self.database)
        if self.memory_jobs is None:
            self.memory_jobs = MemoryJobs(self.store, lambda: self.now)
        return self.memory_jobs

    @property
    def expunge(self) -> ExpungeStore:
        """`$expunge`."""
        if self.database is None:
            exports, jobs = self.exports, self.jobs
            assert isinstance(exports, MemoryExports) and isinstance(jobs, MemoryJobs)
            return MemoryExpungeStore(self.store, exports, jobs, self.holds)
        return PostgresExpungeStore(self.database, BASE, self.holds)

    @property
    def referrers(self) -> Referrers:
        """The references to a resource."""
        return MemoryReferrers(self.store) if self.database is None else PostgresReferrers(self.database)

    @property
    def repository(self) -> Repository:
        """The Repository of the server."""
        store: FhirStore = self.store
        parts = store, self.matcher, lambda: self.now, self.histories, self.policy
        return Repository(
            *parts,
            names=self.names,
            terminology=self.terminology,
            closures=self.closures,
            deliveries=self.deliveries,
            bindings=self.bindings,
            reindex=self.reindex,
            exports=self.exports,
            jobs=self.jobs,
            job_limit=self.job_limit,
            deletes_many=self.deletes_many,
            fetch=self.fetch,
            expunge=self.expunge if self.expunges else None,
            export_hours=self.export_hours,
            deident=self.deident,
            max_page_size=self.max_page_size,
            conformance=self.conformance,
            vault=self.vault,
            integrity=Integrity(store, self.referrers) if self.integrity else None,
            referrers=self.referrers,
        )

    def pass_time(self, seconds: float = 1.0) -> None:
        """Move the clock."""
        self.now += timedelta(seconds=seconds)

    async def send(self, method: str, url: str, body: Any = None, tenant: str = "", **headers: str) -> Answer:
        """One request; see `request`."""
        return await handler(self.repository)(self.request(method, url, body, tenant, **headers))

    def request(self, method: str, url: str, body: Any = None, tenant: str = "", **headers: str) -> Request:
        """A request of the world's tenant; header names with `_` for `-`; a body that is no bytes is sent as JSON."""
        path, _, query = url.partition("?")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = b"" if body is None else body if isinstance(body, bytes) else dumps(body)
        pairs = tuple(parse_qsl(query, keep_blank_values=True))
        segments = tuple(path.split("/")) if path else ()
        return Request(method, segments, pairs, named, sent, BASE, CORRELATION_ID, tenant or self.tenant, self.caller)

    async def commit(self, *units: Unit) -> list[Any]:
        """Store units, as the convert stage does; those of the default tenant are the world's."""
        repository = self.repository
        mine = [replace(one, tenant=self.tenant) if one.tenant == DEFAULT_TENANT else one for one in units]
        return await commit(mine, repository.store, repository.matcher, repository.clock)

    async def body(self, reference: str) -> Json:
        """The current resource, parsed."""
        resource_type, _, id = reference.partition("/")
        version = await self.repository.store.read(self.tenant, resource_type, id)
        resource: Json = loads(version.body if version else b"{}")
        return resource

    async def versions(self, reference: str) -> list[Version]:
        """All versions, oldest first."""
        resource_type, _, id = reference.partition("/")
        found = await self.repository.store.history(self.tenant, resource_type, id, 100, None)
        return found[::-1]


if TYPE_CHECKING:
    Suite = TestCase
else:
    Suite = object  # a suite is collected only where it is joined with OnMemory or OnPostgres


class OnMemory(TestCase):
    """Runs a suite on the store in memory."""

    async def setUp(self) -> None:
        self.world = World()


class OnPostgres(TestCase):
    """Runs a suite on PostgreSQL, each test in a database of its own."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir")
        self.world = World(PostgresFhirStore(self.database), database=self.database)


class OnSharedPostgres(TestCase):
    """Runs a suite on PostgreSQL, all tests in one database, each with a tenant of its own.

    The pool is of the test alone: trial closes sockets at the end of each.
    """

    _url: ClassVar[str] = ""
    _tenants: ClassVar[Iterator[int]] = itertools.count(1)

    async def setUp(self) -> None:
        if "_url" not in vars(type(self)):
            type(self)._url = await postgres.fresh_url("fhir")
        options = {"statements": postgres.STATEMENTS["fhir"], "prepare_on_use": True, **postgres.PATIENT}
        self.database = Database(self._url, reactor=reactor, size=4, **options)
        self.addCleanup(lambda: Deferred.fromCoroutine(self.database.close()))
        tenant = f"tenant-{next(self._tenants)}"
        self.world = World(PostgresFhirStore(self.database), database=self.database, tenant=tenant)


def unit(*entries: Entry, receipt: str | None = None, tenant: str = DEFAULT_TENANT) -> Unit:
    """A unit of these entries."""
    return Unit(tenant, entries, CORRELATION_ID, receipt)


def create(resource: Json, exist: str | None = None, full_url: str | None = None) -> Entry:
    """A create, with `exist` as its If-None-Exist."""
    condition = parse_criteria(exist) if exist else None
    return Entry(Method.CREATE, resource["resourceType"], None, resource, condition, full_url)


def put(resource: Json, criteria: str | None = None, full_url: str | None = None, if_match: int | None = None) -> Entry:
    """An update by id, or by criteria."""
    condition = parse_criteria(criteria) if criteria else None
    return Entry(
        Method.UPDATE, resource["resourceType"], resource.get("id"), resource, condition, full_url, if_match=if_match
    )


def delete(reference: str) -> Entry:
    """A deletion of `Type/id` or `Type?search`."""
    if "?" in reference:
        return Entry(Method.DELETE, reference.partition("?")[0], condition=parse_criteria(reference))
    resource_type, _, id = reference.partition("/")
    return Entry(Method.DELETE, resource_type, id)


def patient(mrn: str, family: str = "Muster", **members: Any) -> Json:
    """A Patient with one identifier in system `urn:mrn`."""
    identifier = [{"system": "urn:mrn", "value": mrn}]
    return {"resourceType": "Patient", "identifier": identifier, "name": [{"family": family}], **members}


def by_mrn(mrn: str) -> str:
    """The search for that patient."""
    return f"Patient?identifier=urn:mrn|{mrn}"


def issues(answer: Answer) -> list[tuple[str, str, str]]:
    """(code, text, place) of each issue of an OperationOutcome."""
    outcome = loads(answer.body)
    assert outcome["resourceType"] == "OperationOutcome", outcome
    return [(issue["code"], issue["diagnostics"], issue.get("expression", [""])[0]) for issue in outcome["issue"]]
