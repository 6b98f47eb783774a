"""Erasure of one patient, in both databases: what it would remove, and the removal.

The search finds the Patient and all resources of his compartment, and what refers to these, in every version.  Messages
are his when they wrote one of these resources, or when an identifier in PID-3 or MRG-1 with its assigning authority is
one that such messages have.  Nothing that also concerns another patient is removed without a word:

- a resource that mentions another Patient, or is of a type outside of the compartment, refuses the erasure;
- a message that also concerns another patient needs `shared_messages`, one of which only the number fits
  `uncertain_messages`.

The inbox comes first, so that no open message creates the patient again.  After a crash between the two databases, the
same call finds what is left.

Source: https://hl7.org/fhir/R4/compartmentdefinition-patient.html
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ipf.errors import Category, Problem
from ipf.fhir.search.compartments import compartments
from ipf.hl7.words import folded, patients_of, read
from ipf.ports import Clock
from ipf.ports.erasure import (
    ErasedResources,
    ErasureReceipt,
    ErasureStore,
    FhirCounts,
    MentioningResource,
    MessageErasure,
    StoredMessage,
)
from ipf.security.audit_chain import SigningKey
from ipf.security.erasure_receipt import new_receipt

_MOST_NAMED = 20
_ALSO = frozenset(("MessageHeader",))  # not in the compartment, made of one message
_BREAKS = re.compile(r"[\s|^~&\\]+")
_PERSON = re.compile(r"(?:^|[\r\n])(?:PID|MRG)[^A-Za-z0-9]")


@dataclass(slots=True)
class FoundMessages:
    """Messages by what is known of them: ids.  `busy`: being converted."""

    own: set[int] = field(default_factory=set)
    shared: set[int] = field(default_factory=set)
    uncertain: set[int] = field(default_factory=set)
    busy: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class ErasurePlan:
    """What an erasure would remove.  `refused`: resources that stand in its way; `confirm`: digest of all of it."""

    erased: ErasedResources
    refused: Sequence[str]
    found: FoundMessages
    rejects: Sequence[int]
    values: frozenset[str]
    counts: Mapping[str, int]
    held_back: Sequence[str]
    confirm: str


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """One patient, and what the operator decided.  `confirm`: of the plan that he saw.

    `uncertain_messages`: keep or remove; empty: not decided.
    """

    tenant: str
    id: str
    actor: str = ""
    reason: str = ""
    confirm: str = ""
    shared_messages: bool = False
    uncertain_messages: str = ""


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

    async def plan(self, wanted: ErasureRequest) -> ErasurePlan:
        """What `forget` would remove.  Problem NOT_FOUND when nothing mentions the Patient, CONFLICT for a hold."""
        began, reference = self._now(), f"Patient/{wanted.id}"
        for hold in (reference, f"{wanted.tenant}:{reference}"):
            if hold in self._holds:
                raise Problem(Category.CONFLICT, f"IPF_LEGAL_HOLDS has {hold}: the patient must not be erased")
        own, refused = await self._resources(wanted.tenant, reference)
        if not own and not refused:
            raise Problem(Category.NOT_FOUND, f"nothing is stored about {reference}")
        rids = {one.rid: one.version_id for one in own.values()}
        correlations = await self._fhir.correlations(wanted.tenant, sorted(rids))
        values = frozenset().union(*(one.values for one in own.values()))
        found = await self._messages(wanted.tenant, reference, set(rids), correlations, values)
        rejects = [
            one.id
            for one in await self._inbox.rejects(wanted.tenant, values)
            if values & set(_BREAKS.split(read(one.raw, "utf-8")))
        ]
        ids = frozenset(_removed(found, wanted))
        erased = ErasedResources(
            wanted.tenant, rids, frozenset({reference, *own}), correlations, ids, began
        )  # fmt: skip
        counted = await self._fhir.count(erased)
        counts = _counts(own, counted, ids, found, len(rejects), await self._inbox.conversions(sorted(ids)))
        confirm = _digest(wanted, erased, rejects, refused)
        return ErasurePlan(erased, refused, found, rejects, values, counts, counted.held_back, confirm)

    async def forget(self, wanted: ErasureRequest) -> ErasureReceipt:
        """Remove what the plan says.  Problem CONFLICT when it is another plan, or something stands in the way."""
        if self._key is None:
            raise Problem(Category.UNAVAILABLE, "there is no key to sign a receipt with: see IPF_AUDIT_KEY")
        plan = await self.plan(wanted)
        _check(wanted, plan)
        await self._inbox.remove(wanted.tenant, sorted(plan.erased.message_ids), plan.rejects, plan.values)
        at = self._now().replace(microsecond=0).isoformat()
        reference = f"Patient/{wanted.id}"
        receipt = new_receipt(self._key, wanted.tenant, reference, at, wanted.actor, wanted.reason, plan.counts)
        return await self._fhir.remove(plan.erased, receipt)

    async def receipts(self, tenant: str, limit: int, offset: int) -> tuple[int, Sequence[ErasureReceipt]]:
        """Receipts of a tenant, newest first."""
        return await self._fhir.receipts(tenant, limit, offset)

    async def _resources(self, tenant: str, reference: str) -> tuple[dict[str, MentioningResource], list[str]]:
        """His resources by reference, and those that mention him or these but are not his alone."""
        own: dict[str, MentioningResource] = {}
        refused: set[str] = set()
        wanted = frozenset((reference,))
        while wanted:
            found = await self._fhir.mentioning(tenant, wanted)
            mine = {one.reference: one for one in found if _is_his(one, reference)}
            refused |= {one.reference for one in found} - set(mine)
            wanted = frozenset(set(mine) - set(own) - {reference})
            own |= mine
        # what mentions a stored resource of a patient that is not his may concern another one
        mentioned = set().union(*(one.mentioned for one in own.values()))
        foreign = await self._fhir.existing(tenant, sorted(one for one in mentioned - set(own) if _is_clinical(one)))
        refused |= {name for name, one in own.items() if one.mentioned & foreign}
        return own, sorted(refused)

    async def _messages(
        self, tenant: str, reference: str, rids: set[int], correlations: frozenset[str], values: frozenset[str]
    ) -> FoundMessages:
        """The messages that concern him."""
        known = {one.id: one for one in await self._inbox.by_correlation(tenant, sorted(correlations))}
        others = {one.id: one for one in await self._inbox.containing(tenant, values) if one.id not in known}
        written = {one.correlation_id for one in (*known.values(), *others.values())}
        mixed = {
            one.correlation_id
            for one in await self._fhir.written_together(tenant, sorted(written))
            if one.rid not in rids and _other_patients({one.reference, *one.mentioned}, reference)
        }
        found = FoundMessages()
        for one in known.values():
            (found.shared if one.correlation_id in mixed else found.own).add(one.id)
        numbers = {number for id_ in found.own for number in _qualified(known[id_])}
        bare = {folded(value) for value in values}
        for one in others.values():
            if numbers & _qualified(one):
                is_shared = one.correlation_id in mixed or len(_PERSON.findall(read(one.raw, one.charset))) > 1
                (found.shared if is_shared else found.own).add(one.id)
            elif bare & patients_of(one.raw, one.charset):
                found.uncertain.add(one.id)
        every = known | others
        concerned = found.own | found.shared | found.uncertain
        found.busy = {id_ for id_ in concerned if every[id_].status == "TRANSFORMING"}
        found.dead = {id_ for id_ in concerned if every[id_].status == "DEAD_LETTER"}
        return found


def _is_his(one: MentioningResource, reference: str) -> bool:
    """Whether a resource concerns him and no other patient.  What is deleted binds nobody any more."""
    if one.reference == reference:
        return True
    resource_type = one.reference.partition("/")[0]
    if resource_type == "Patient" or _other_patients(one.mentioned, reference):
        return False
    return one.deleted or resource_type in _ALSO or _is_clinical(one.reference)


def _is_clinical(reference: str) -> bool:
    """Whether resources of this type can be in the compartment of a Patient."""
    return bool(compartments()["Patient"].get(reference.partition("/")[0]))


def _other_patients(references: Iterable[str], reference: str) -> bool:
    return any(one.startswith("Patient/") and one != reference for one in references)


def _qualified(message: StoredMessage) -> set[str]:
    """Identifiers with their authority."""
    return {number for number in patients_of(message.raw, message.charset) if "|" in number}


def _removed(found: FoundMessages, wanted: ErasureRequest) -> set[int]:
    """The messages that the operator's decisions remove."""
    ids = set(found.own)
    if wanted.shared_messages:
        ids |= found.shared
    if wanted.uncertain_messages == "remove":
        ids |= found.uncertain
    return ids


def _counts(
    own: Mapping[str, MentioningResource], counted: FhirCounts, ids: frozenset[int], found: FoundMessages,
    rejects: int, conversions: int,
) -> dict[str, int]:  # fmt: skip
    types = Counter(name.partition("/")[0] for name in own)
    return {
        **{f"resources.{name}": number for name, number in sorted(types.items())},
        "versions": counted.versions,
        "events": counted.events,
        "delivery_attempts": counted.attempts,
        "exports": counted.exports,
        "identity_answers": counted.answers,
        "messages": len(ids),
        "dead_letters": len(ids & found.dead),
        "conversions": conversions,
        "rejects": rejects,
    }


def _digest(wanted: ErasureRequest, erased: ErasedResources, rejects: Sequence[int], refused: Sequence[str]) -> str:
    """What names the plan; exports and events may change without another plan."""
    rids, messages = sorted(erased.rids.items()), sorted(erased.message_ids)
    parts = (wanted.tenant, wanted.id, rids, messages, sorted(rejects), list(refused))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _check(wanted: ErasureRequest, plan: ErasurePlan) -> None:
    """Problem CONFLICT for the first reason not to go on."""
    found = plan.found
    reasons = (
        (plan.refused, f"resources that also concern others: {', '.join(plan.refused[:_MOST_NAMED])}"),
        (found.shared and not wanted.shared_messages, _undecided("also concern another patient", found.shared)),
        (found.uncertain and not wanted.uncertain_messages, _undecided("have only his number", found.uncertain)),
        (found.busy, f"messages are being converted: {_named(found.busy)}; repeat in a moment"),
        (plan.held_back, f"{', '.join(plan.held_back)} must deliver its pending events first"),
        (wanted.confirm != plan.confirm, "this is not what the dry run showed: begin with a dry run again"),
    )
    for applies, reason in reasons:
        if applies:
            raise Problem(Category.CONFLICT, f"nothing was removed: {reason}")


def _undecided(what: str, ids: set[int]) -> str:
    return f"messages {what}, and it is not said what becomes of them: {_named(ids)}"


def _named(ids: set[int]) -> str:
    return ", ".join(str(id_) for id_ in sorted(ids)[:_MOST_NAMED])
