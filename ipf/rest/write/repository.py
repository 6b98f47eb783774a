"""What every FHIR interaction is given: the store, the matcher, the clock and the rules of this server.

It is built once by the composition root and never changes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from ipf.errors import Problem
from ipf.fhir.validation import Finding
from ipf.ports import (
    DEFAULT_TENANT,
    BindingTokens,
    Clock,
    DeliveryQueue,
    FhirStore,
    Json,
    Matcher,
    ReindexQueue,
    Terminology,
)
from ipf.ports.exports import Exports
from ipf.ports.history import Histories
from ipf.ports.threads import RunInThread, here
from ipf.rest.write.commit import commit
from ipf.rest.write.conformance import Conformance
from ipf.rest.write.group_commit import WriteGroup
from ipf.rest.write.integrity import Integrity
from ipf.rest.write.unit import EntryResult, Unit, UnitResult
from ipf.security.vault import Vault
from ipf.subscriptions.policy import ChannelPolicy


@dataclass(frozen=True, slots=True)
class Repository:
    """The FHIR server's parts.  `page_size` and `max_page_size` bound one page of search or history.

    `max_bundle_entries`: a larger transaction or batch is refused with 413, since it is planned in memory.
    `terminology`: what knows value sets; None = searches with `:in` are refused. `reindex`: its jobs. `smart`: the
    SMART configuration when bearer tokens are asked for, else None. `exports`: bulk export, whose jobs are kept for
    `export_hours`. `conformance`: profiles, validation and terminology; None = none of it. `integrity`: the check of
    references; None = they may point at nothing. `tenant`: whose requests it is used for; the router makes it that of
    the request. `deliveries`, `bindings`: what the operations on subscriptions ask. `run_in_thread`: where large
    Bundles are
    read and planned. `vault`: what seals the secrets of Subscriptions.
    """

    store: FhirStore
    matcher: Matcher
    clock: Clock
    histories: Histories
    policy: ChannelPolicy = field(default_factory=ChannelPolicy)
    software_version: str = "0"
    page_size: int = 50
    max_page_size: int = 1000
    max_bundle_entries: int = 10_000
    terminology: Terminology | None = None
    reindex: ReindexQueue | None = None
    smart: Callable[[], Awaitable[Json]] | None = None
    exports: Exports | None = None
    export_hours: float = 24.0
    conformance: Conformance | None = None
    integrity: Integrity | None = None
    tenant: str = DEFAULT_TENANT
    deliveries: DeliveryQueue | None = None
    bindings: BindingTokens | None = None
    vault: Vault = field(default_factory=Vault)
    run_in_thread: RunInThread = here
    together: WriteGroup = field(default_factory=WriteGroup, compare=False)

    def remarks(self, result: EntryResult) -> list[Finding]:
        """What validation says of what was written, in mode `warn`."""
        if self.conformance is None or result.version is None:
            return []
        return self.conformance.remarks(result.version, self.tenant)

    async def commit_one(self, unit: Unit, *, is_large: bool = False) -> UnitResult:
        """Store one unit; its Problem is raised.  `is_large`: it has few entries, but large ones."""
        if self.integrity is not None:
            await self.integrity.check(unit, self.run_in_thread)
        if is_large:
            result = (
                await commit(
                    [unit], self.store, self.matcher, self.clock, run_in_thread=self.run_in_thread, is_large=True
                )
            )[0]
        else:
            result = await self.together.store(unit, self._commit)
        if isinstance(result, Problem):
            raise result
        return result

    async def _commit(self, units: Sequence[Unit]) -> list[UnitResult | Problem]:
        return await commit(units, self.store, self.matcher, self.clock, run_in_thread=self.run_in_thread)
