"""Erasure of one patient, in both databases: what it would remove, and the removal.

    1. note the erasure, without a signature          FHIR database
    2. messages, rejects, queues of operators         inbox, one transaction
    3. resources, versions, events, exports; receipt  FHIR database, one transaction

The inbox comes before the resources, so that no open message creates the patient again; until the last transaction
commits, FHIR clients see all of him.  What is written about him after the search makes it begin again, `ROUNDS` times
at most.  After a crash, an erasure that begins with a new dry run finds what is left, and continues the noted receipt:
its counts are the larger ones of both runs.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ipf.errors import Category, Problem
from ipf.pipeline.maintenance.erasure_messages import (
    FoundMessages,
    find_messages,
    find_rejects,
    find_searches,
)
from ipf.pipeline.maintenance.erasure_search import ErasureRequest, FoundResources, check_holds, find_resources
from ipf.ports import Clock
from ipf.ports.fhir.erasure import (
    ErasedMessages,
    ErasedResources,
    ErasureReceipt,
    ErasureStore,
    FhirCounts,
    InboxCounts,
    MentioningResource,
    MessageErasure,
)
from ipf.security.audit.chain import SigningKey
from ipf.security.audit.erasure_receipt import begun_receipt, concerns, signed

ROUNDS = 10  # searches of one erasure, while messages of the patient arrive
_MOST_NAMED = 20
_OF_INBOX = (
    "messages", "dead_letters", "conversions", "errors", "unmapped_codes", "identity_conflicts", "rejects",
    "operator_jobs", "saved_views",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ErasurePlan:
    """What an erasure would remove.  `confirm`: digest of what an operator decides on."""

    resources: ErasedResources
    messages: ErasedMessages
    found: FoundResources
    found_messages: FoundMessages
    counts: Mapping[str, int]
    subscriptions: Sequence[str]
    open_jobs: Sequence[int]
    confirm: str


class Erasure:
    """`plan` changes nothing; `forget` removes.  `key` None: there is no key for receipts, and nothing is removed.

    `holds`: patients who must not be erased, as Patient/1 (in every tenant) or tenant:Patient/1.
    """

    def __init__(
        self,
        fhir: ErasureStore,
        inbox: MessageErasure,
        key: SigningKey | None,
        now: Clock,
        holds: Collection[str] = (),
    ) -> None:
        self._fhir = fhir
        self._holds = holds
        self._inbox = inbox
        self._key = key
        self._now = now

    async def plan(self, wanted: ErasureRequest, numbers: Collection[str] = ()) -> ErasurePlan:
        """What `forget` would remove.  Problem NOT_FOUND when nothing mentions the Patient, CONFLICT for a hold.

        `numbers`: known to be his from messages that are removed already.
        """
        began, tenant = self._now(), wanted.tenant
        found = await find_resources(self._fhir, wanted, self._holds)
        if not found.own and not found.shared and not found.redacted:
            raise Problem(Category.NOT_FOUND, f"nothing is stored about Patient/{wanted.id}")
        values = found.values
        found_messages = await find_messages(self._fhir, self._inbox, tenant, found, numbers)
        ids = sorted(_removed(found_messages, wanted))
        references = frozenset({*found.patients, *found.own})
        removed = {id_: found_messages.stored[id_] for id_ in ids}
        searches = await find_searches(self._inbox, tenant, found.texts, removed)
        messages = ErasedMessages(
            tenant, ids, await find_rejects(self._inbox, tenant, values), values, references, searches.jobs,
            searches.views, frozenset(searches.known),
        )  # fmt: skip
        resources = ErasedResources(
            tenant, _versions(found.own), references, _versions(found.redacted),
            frozenset(found_messages.correlations[id_] for id_ in ids), began, values, found.texts,
            found.identifiers,
        )  # fmt: skip
        counted = await self._fhir.count(resources)
        counts = _counts(found, counted, messages, found_messages, await self._inbox.count(messages))
        confirm = _digest(wanted, found, found_messages)
        return ErasurePlan(
            resources, messages, found, found_messages, counts, counted.subscriptions, searches.open_jobs, confirm
        )

    async def forget(self, wanted: ErasureRequest) -> ErasureReceipt:
        """Remove what the plan says, and what is his alone and came since.

        Problem CONFLICT when it is another plan, something stands in the way, or he is written about all the time.
        """
        if self._key is None:
            raise Problem(Category.UNAVAILABLE, "there is no key to sign a receipt with: see IPF_AUDIT_KEY")
        removed: Counter[str] = Counter()
        numbers: Collection[str] = ()
        for round_ in range(1, ROUNDS + 1):
            plan = await self.plan(wanted, numbers)
            numbers = plan.found_messages.numbers
            _check(
                wanted, plan, "the messages are removed, the resources are not" if removed else "nothing was removed"
            )
            others = plan.found.others | (plan.found_messages.others if wanted.shared_messages else set())
            check_holds(self._holds, wanted.tenant, others)
            try:
                return await self._remove(wanted, plan, self._key, removed)
            except Problem as problem:
                if problem.category is not Category.CONFLICT or round_ == ROUNDS:
                    raise
        raise AssertionError("unreachable")

    async def _remove(
        self, wanted: ErasureRequest, plan: ErasurePlan, key: SigningKey, removed: Counter[str]
    ) -> ErasureReceipt:
        """Both databases.  `removed`: counts of the inbox in earlier rounds.  Problem CONFLICT for a write since."""
        if plan.found_messages.busy:
            raise Problem(Category.CONFLICT, "messages of the patient are being converted: repeat in a moment")
        receipt = await self._begin(wanted, plan, removed)
        await self._inbox.remove(plan.messages)
        removed.update({name: plan.counts[name] for name in _OF_INBOX})
        receipt = signed(receipt._replace(at=self._instant()), key)
        await self._fhir.remove(plan.resources, receipt)
        return receipt

    async def receipts(self, tenant: str, limit: int, offset: int) -> tuple[int, Sequence[ErasureReceipt]]:
        """Receipts of a tenant, newest first."""
        return await self._fhir.receipts(tenant, limit, offset)

    async def _begin(self, wanted: ErasureRequest, plan: ErasurePlan, removed: Counter[str]) -> ErasureReceipt:
        """Note that the erasure begins; the receipt of an earlier one that was not finished goes on."""
        patients, now = plan.found.patients, {name: count + removed[name] for name, count in plan.counts.items()}
        for one in await self._fhir.unfinished(wanted.tenant):
            if len(one.digests) == len(patients) and all(concerns(one, reference) for reference in patients):
                counts = {name: max(one.counts.get(name, 0), now.get(name, 0)) for name in {**one.counts, **now}}
                return await self._fhir.begin(one._replace(actor=wanted.actor, reason=wanted.reason, counts=counts))
        receipt = begun_receipt(wanted.tenant, patients, wanted.actor, wanted.reason)
        return await self._fhir.begin(receipt._replace(at=self._instant(), counts=now))

    def _instant(self) -> str:
        return self._now().replace(microsecond=0).isoformat()


def _versions(resources: Mapping[str, MentioningResource]) -> dict[int, int]:
    return {one.rid: one.version_id for one in resources.values()}


def _removed(found: FoundMessages, wanted: ErasureRequest) -> set[int]:
    """The messages that the operator's decisions remove."""
    ids = set(found.own)
    if wanted.shared_messages:
        ids |= found.shared
    if wanted.uncertain_messages == "remove":
        ids |= found.uncertain
    return ids


def _counts(
    found: FoundResources,
    counted: FhirCounts,
    messages: ErasedMessages,
    found_messages: FoundMessages,
    inbox: InboxCounts,
) -> dict[str, int]:
    types = Counter(name.partition("/")[0] for name in found.own)
    return {
        **{f"resources.{name}": number for name, number in sorted(types.items())},
        "redacted": len(found.redacted),
        "versions": counted.versions,
        "events": counted.events,
        "delivery_attempts": counted.attempts,
        "exports": counted.exports,
        "jobs": counted.jobs,
        "websocket_tokens": counted.tokens,
        "identity_answers": counted.answers,
        "messages": len(messages.ids),
        "dead_letters": len(found_messages.dead.intersection(messages.ids)),
        "conversions": inbox.conversions,
        "errors": inbox.errors,
        "unmapped_codes": inbox.unmapped_codes,
        "identity_conflicts": inbox.conflicts,
        "rejects": len(messages.rejects),
        "operator_jobs": len(messages.jobs),
        "saved_views": len(messages.views),
    }


def _digest(wanted: ErasureRequest, found: FoundResources, messages: FoundMessages) -> str:
    """What names the plan: all that an operator decides on.  What is his alone may grow without another plan."""
    parts = (
        wanted.tenant, sorted(found.patients), sorted(found.decided), sorted(found.redacted), sorted(found.shared),
        wanted.shared_messages, sorted(messages.shared), wanted.uncertain_messages, sorted(messages.uncertain),
    )  # fmt: skip
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _check(wanted: ErasureRequest, plan: ErasurePlan, so_far: str) -> None:
    """Problem CONFLICT for the first reason not to go on."""
    shared, found = sorted(plan.found.shared), plan.found_messages
    reasons = (
        (shared, f"resources also concern others, and it is not said what becomes of them: {_named(shared)}"),
        (found.shared and not wanted.shared_messages, _undecided("also concern another patient", found.shared)),
        (found.uncertain and not wanted.uncertain_messages, _undecided("may be of another patient", found.uncertain)),
        (plan.subscriptions, f"written with a token of the patient: {_named(plan.subscriptions)}; delete them first"),
        (plan.open_jobs, f"jobs are selected by what is his, and not finished: {_named(plan.open_jobs)}; cancel them"),
        (wanted.confirm != plan.confirm, "this is not what the dry run showed: begin with a dry run again"),
    )
    for applies, reason in reasons:
        if applies:
            raise Problem(Category.CONFLICT, f"{so_far}: {reason}")


def _undecided(what: str, ids: set[int]) -> str:
    return f"messages {what}, and it is not said what becomes of them: {_named(sorted(ids))}"


def _named(items: Sequence[object]) -> str:
    return ", ".join(map(str, items[:_MOST_NAMED]))
