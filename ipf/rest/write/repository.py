"""The parts of the FHIR server, given to every interaction: store, matcher, clock and settings.

The composition root builds it once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ipf.errors import Problem
from ipf.fhir.model.json import loads
from ipf.fhir.topics.basic import TOPIC_TYPES
from ipf.fhir.topics.unsupported import unsupported_in
from ipf.fhir.validation import Finding
from ipf.mapping.language.identity_table import IdentityTable
from ipf.ports import (
    DEFAULT_TENANT,
    OPEN,
    BindingTokens,
    Caller,
    Clock,
    DeliveryQueue,
    FhirStore,
    FhirTransaction,
    Json,
    Matcher,
    ReindexQueue,
    Request,
    Terminology,
)
from ipf.ports.fhir.exports import Exports
from ipf.ports.fhir.expunge import ExpungeStore
from ipf.ports.fhir.history import Histories
from ipf.ports.fhir.integrity import Referrers
from ipf.ports.fhir.terminology import ClosureTables
from ipf.ports.jobs import Jobs
from ipf.ports.threads import RunInThread, run_by_size, run_inline
from ipf.rest.http.job_limit import JobLimit
from ipf.rest.http.page_tokens import PageTokens
from ipf.rest.write.commit import Reads, commit, refresh
from ipf.rest.write.conformance import OFF, Conformance
from ipf.rest.write.group_commit import WriteGroup
from ipf.rest.write.import_sources import ImportSources
from ipf.rest.write.integrity import Integrity
from ipf.rest.write.unit import EntryResult, Unit, UnitResult
from ipf.security.deident.resource import Deidentification
from ipf.security.vault import Vault
from ipf.subscriptions.endpoint_names import EndpointNames
from ipf.subscriptions.missing_scopes import is_missing_scopes
from ipf.subscriptions.policy import ChannelPolicy

T = TypeVar("T")

Fetch = Callable[[str], Awaitable[bytes]]
"""Reads a URL.  Problem UPSTREAM, or TOO_LARGE."""

SIGNALS = "the token's scopes do not allow to search {0}: each notification tells that a {0} meets the criteria"


@dataclass(frozen=True, slots=True)
class Repository:
    """The parts of the FHIR server.  `page_size`, `max_page_size`: default and maximum size of a page.

    `max_bundle_entries`: a larger transaction or batch is refused with 413.  `terminology`: value sets; None = searches
    with `:in` are refused.  `closures`: closure tables; None = not supported.  `reindex`: reindex jobs.  `smart`: the
    SMART configuration when authentication is on, else None.  `exports`: bulk export; its jobs are kept for
    `export_hours`.  `jobs`: work after the answer, kept as long; None = requests are performed at once.  `deident`: of
    exports; None = not supported, without a key.  `conformance`: profiles, validation and terminology; None = not
    supported.  `integrity`: the reference check; None = off.  `referrers`: for
    merges of Patients; None = not supported.  `tenant`: of the request; the
    router sets it.  `deliveries`, `bindings`: for operations on subscriptions.  `run_in_thread`: runs the parsing and
    planning of large Bundles.  `fetch`, `import_sources`: of the inputs of imports; None = there are only
    those in bodies.  `vault`: encrypts the secrets of Subscriptions.  `strict_search`: searches refuse
    unknown parameters unless the request says `handling=lenient`.  `page_mark`: begins the page
    tokens that are given out.  `is_within`: it reads within a transaction.  `deletes_many`: a
    conditional delete deletes all matches.  `expunge`: None = not supported.
    `names`: looks up the hosts of endpoints; None = not looked up.
    `identity_table`: which identifiers identify a Patient.  `job_limit`: of unknown callers; None = no limit.
    """

    store: FhirStore
    matcher: Matcher
    clock: Clock
    histories: Histories
    policy: ChannelPolicy = field(default_factory=ChannelPolicy)
    names: EndpointNames | None = None
    software_version: str = "0"
    page_size: int = 50
    strict_search: bool = False
    deletes_many: bool = False
    identity_table: IdentityTable = field(default_factory=IdentityTable)
    max_page_size: int = 1000
    max_bundle_entries: int = 10_000
    terminology: Terminology | None = None
    closures: ClosureTables | None = None
    reindex: ReindexQueue | None = None
    smart: Callable[[], Awaitable[Json]] | None = None
    exports: Exports | None = None
    export_hours: float = 24.0
    deident: Deidentification | None = None
    expunge: ExpungeStore | None = None
    jobs: Jobs | None = None
    job_limit: JobLimit | None = None
    conformance: Conformance | None = None
    integrity: Integrity | None = None
    referrers: Referrers | None = None
    tenant: str = DEFAULT_TENANT
    deliveries: DeliveryQueue | None = None
    bindings: BindingTokens | None = None
    fetch: Fetch | None = None
    import_sources: ImportSources = field(default_factory=ImportSources)
    vault: Vault = field(default_factory=Vault)
    run_in_thread: RunInThread = run_inline
    write_group: WriteGroup = field(default_factory=WriteGroup, compare=False)
    page_tokens: PageTokens = field(default_factory=PageTokens, compare=False)
    page_mark: str = ""
    is_within: bool = False

    async def parsed(self, request: Request, parse: Callable[[], T]) -> T:
        """What `parse` makes of the body of a request; in a thread when it is large."""
        return await run_by_size(len(request.body), self.run_in_thread, parse)

    async def sealed(self, token: str | None) -> str | None:
        """A page token of the store as clients get it; None stays None."""
        sealed = await self.page_tokens.sealed(self.store, self.tenant, token)
        return None if sealed is None else f"{self.page_mark}{sealed}"

    async def opened(self, token: str | None) -> str | None:
        """The page token of the store that a client sends back; Problem VALUE for any other text."""
        return await self.page_tokens.opened(self.store, self.tenant, token and token.rpartition(".")[2])

    @property
    def validates(self) -> bool:
        """Whether writes are validated, which is done in a thread: a value set may have to be expanded for it."""
        return self.conformance is not None and self.conformance.mode != OFF

    def warnings(self, result: EntryResult, caller: Caller = OPEN) -> list[Finding]:
        """Findings of a written version: parts of a topic without effect, and in mode `warn` those of validation.

        Of a Subscription also what its writer `caller` learns without the right to search, which scopes its creator
        lacks, and why it is not notified.
        """
        return self._signals(result, caller) + self._findings(result)

    async def warnings_of(self, result: EntryResult, caller: Caller) -> list[Finding]:
        """`warnings`, in a thread where validation may find some."""
        if not self.validates:
            return self.warnings(result, caller)
        found: list[Finding] = await self.run_in_thread(lambda: self._findings(result))
        return self._signals(result, caller) + found

    def _findings(self, result: EntryResult) -> list[Finding]:
        version = result.version
        if version is None:
            return []
        found: list[Finding] = []
        if version.resource_type in TOPIC_TYPES and not version.deleted:
            parts = unsupported_in(loads(version.body))
            found += [Finding("warning", "not-supported", reason, place) for place, reason in parts]
        if version.resource_type == "Subscription" and not version.deleted:
            texts = self.policy.warnings(loads(version.body))
            found += [Finding("warning", "not-supported", text, "Subscription.channel.type") for text in texts]
        return found + (self.conformance.warnings(version, self.tenant) if self.conformance is not None else [])

    def _signals(self, result: EntryResult, caller: Caller) -> list[Finding]:
        version = result.version
        if version is None or version.deleted or version.resource_type != "Subscription" or caller.is_unlimited:
            return []
        subscription = loads(version.body)
        names = self.matcher.signals(self.tenant, subscription, caller)
        texts, error = [SIGNALS.format(name) for name in names], subscription.get("error")
        texts += [error] if is_missing_scopes(error) else []
        return [Finding("warning", "security", text, "Subscription.criteria") for text in texts]

    def within(self, transaction: FhirTransaction) -> Repository:
        """This repository for the reads of a transaction, which see what it writes."""
        store, histories = self.store.within(transaction), self.histories.within(transaction)
        return replace(self, store=store, histories=histories, is_within=True)

    async def refresh(self) -> bool:
        """`commit.refresh`; a transaction has done it before its reads."""
        return not self.is_within and await refresh(self.store, self.matcher)

    async def commit_one(self, unit: Unit, *, is_large: bool = False, reads: Reads | None = None) -> UnitResult:
        """Store one unit; raises its Problem.  `is_large`: its entries are few but large.  `reads`: see `commit`."""
        if self.integrity is not None:
            await self.integrity.check(unit, self.run_in_thread)

        async def alone() -> UnitResult | Problem:
            run_in_thread = self.run_in_thread
            parts = [unit], self.store, self.matcher, self.clock
            return (
                await commit(*parts, run_in_thread=run_in_thread, is_large=is_large, reads=reads, names=self.names)
            )[0]

        if reads is not None:
            result = await self.write_group.store_and_read(alone)
        elif is_large or unit.changes_subscriptions:  # which may wait for names of endpoints
            result = await alone()
        else:
            result = await self.write_group.store(unit, self._commit)
        if isinstance(result, Problem):
            raise result
        return result

    async def _commit(self, units: Sequence[Unit]) -> list[UnitResult | Problem]:
        parts = units, self.store, self.matcher, self.clock
        return await commit(*parts, run_in_thread=self.run_in_thread, names=self.names)
