"""What both databases have of one patient, and what stands in the way of its erasure.

The search finds the Patient and those that are merged with it, all resources of their compartment, and what refers to
these, in every version.  Messages are his when they wrote one of these resources, or when an identifier in PID-3 or
MRG-1 with its assigning authority is one that such messages have.  Nothing that also concerns another patient is
removed or changed without a decision:

- a resource that mentions another Patient, or is of a type outside of the compartment: `redact` or `remove`;
- a message that also concerns another patient: `shared_messages`;
- one of which only the number fits, or whose patient is in dispute: `uncertain_messages`.

Source: https://hl7.org/fhir/R4/compartmentdefinition-patient.html
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ipf.errors import Category, Problem
from ipf.fhir.search.parameters.compartments import compartments
from ipf.hl7.words import folded, patients_of, read
from ipf.ports.fhir.erasure import ErasureStore, MentioningResource, MessageErasure, StoredMessage

ALL = "*"
_ALSO = frozenset(("MessageHeader",))  # not in the compartment, made of one message
_BREAKS = re.compile(r"[\s|^~&\\]+")
_PERSON = re.compile(r"(?:^|[\r\n])(?:PID|MRG)[^A-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """One patient, and what the operator decided.  `confirm`: of the plan that he saw.

    `redact`, `remove`: references of resources that also concern others, or `*`: all that the other does not name.
    `uncertain_messages`: keep or remove; empty: not decided.
    """

    tenant: str
    id: str
    actor: str = ""
    reason: str = ""
    confirm: str = ""
    redact: frozenset[str] = frozenset()
    remove: frozenset[str] = frozenset()
    shared_messages: bool = False
    uncertain_messages: str = ""

    def removes(self, reference: str) -> bool:
        """Whether a resource that also concerns others is removed.  A Patient never is."""
        return self._chooses(self.remove, self.redact, reference) and not reference.startswith("Patient/")

    def redacts(self, reference: str) -> bool:
        """Whether it stays without its references to the patient."""
        return self._chooses(self.redact, self.remove, reference)

    def _chooses(self, chosen: Collection[str], others: Collection[str], reference: str) -> bool:
        return reference in chosen or (ALL in chosen and reference not in others)


@dataclass(slots=True)
class FoundResources:
    """Resources by reference.  `patients`: the merged ones; `own`: removed; `shared`: it is not decided on them.

    `decided`: those of `own` that are removed by a decision.  `others`: the Patients whom other than his own concern.
    """

    patients: set[str]
    own: dict[str, MentioningResource] = field(default_factory=dict)
    redacted: dict[str, MentioningResource] = field(default_factory=dict)
    shared: dict[str, MentioningResource] = field(default_factory=dict)
    decided: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)

    @property
    def values(self) -> frozenset[str]:
        """The numbers of the patients."""
        return frozenset().union(*(self.own[name].values for name in self.patients if name in self.own))


@dataclass(slots=True)
class FoundMessages:
    """Messages by what is known of them: ids.  `busy`: being converted.  `correlations`: of all of them, by id.

    `others`: the Patients whom shared ones concern, too.  `numbers`: his numbers with their authority.
    """

    own: set[int] = field(default_factory=set)
    shared: set[int] = field(default_factory=set)
    uncertain: set[int] = field(default_factory=set)
    busy: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    correlations: dict[int, str] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    numbers: set[str] = field(default_factory=set)


async def find_resources(fhir: ErasureStore, wanted: ErasureRequest, holds: Collection[str]) -> FoundResources:
    """His resources, and those that concern others too.  Problem CONFLICT when a hold names one of the Patients."""
    reference = f"Patient/{wanted.id}"
    found = FoundResources({reference})
    check_holds(holds, wanted.tenant, found.patients)
    mentioning: dict[str, MentioningResource] = {}
    sought, new = set(), {reference}
    while new:
        mentioning |= {one.reference: one for one in await fhir.mentioning(wanted.tenant, frozenset(new))}
        sought |= new
        found.patients = _merged(reference, mentioning)
        check_holds(holds, wanted.tenant, found.patients)
        found.own = {
            name: one for name, one in mentioning.items() if wanted.removes(name) or _is_his(one, found.patients)
        }
        new = {*found.own, *found.patients} - sought
    await _set_apart(fhir, wanted, found, mentioning)
    return found


def check_holds(holds: Collection[str], tenant: str, patients: Iterable[str]) -> None:
    """Problem CONFLICT when a hold names one of the Patients."""
    for reference in sorted(patients):
        for hold in (reference, f"{tenant}:{reference}"):
            if hold in holds:
                raise Problem(Category.CONFLICT, f"IPF_LEGAL_HOLDS has {hold}: the patient must not be erased")


def _merged(reference: str, mentioning: dict[str, MentioningResource]) -> set[str]:
    """The Patient, and those that links call the same one, in either direction."""
    patients, before = {reference}, 0
    while len(patients) > before:
        before = len(patients)
        for name, one in mentioning.items():
            if name in patients or one.merged_with & patients:
                patients |= {name, *one.merged_with}
    return patients


async def _set_apart(
    fhir: ErasureStore, wanted: ErasureRequest, found: FoundResources, mentioning: dict[str, MentioningResource]
) -> None:
    """Of what is left, and of what mentions a stored resource of a patient that is not his: what becomes of it."""
    mentioned = set().union(*(one.mentioned for one in found.own.values()))
    foreign = await fhir.existing(wanted.tenant, sorted(one for one in mentioned - set(found.own) if is_clinical(one)))
    for name, one in mentioning.items():
        if name in found.patients or (_is_his(one, found.patients) and not one.mentioned & foreign):
            continue
        found.others |= _other_patients(one.mentioned, found.patients)
        if wanted.removes(name):
            found.decided.add(name)
            continue
        found.own.pop(name, None)
        (found.redacted if wanted.redacts(name) else found.shared)[name] = one


async def find_messages(
    fhir: ErasureStore, inbox: MessageErasure, tenant: str, resources: FoundResources, numbers: Collection[str]
) -> FoundMessages:
    """The messages that concern him.  `numbers`: known to be his, with their authority."""
    rids, values = {one.rid for one in resources.own.values()}, resources.values
    correlations = await fhir.correlations(tenant, sorted(rids))
    known = {one.id: one for one in await inbox.by_correlation(tenant, sorted(correlations))}
    others = {one.id: one for one in await inbox.containing(tenant, values) if one.id not in known}
    written = {one.correlation_id for one in (*known.values(), *others.values())}
    found, mixed = FoundMessages(numbers=set(numbers)), set()
    for one in await fhir.written_together(tenant, sorted(written)):
        strangers = _other_patients({one.reference, *one.mentioned}, resources.patients)
        if one.rid not in rids and strangers:
            mixed.add(one.correlation_id)
            found.others |= strangers
    for message in known.values():
        (found.shared if message.correlation_id in mixed else found.own).add(message.id)
    found.numbers |= {number for id_ in found.own for number in _qualified(known[id_])}
    bare = {folded(value) for value in values}
    for message in others.values():
        if found.numbers & _qualified(message) and not message.disputed:
            is_shared = message.correlation_id in mixed or _names_others(message, found.numbers)
            (found.shared if is_shared else found.own).add(message.id)
        elif (bare | found.numbers) & patients_of(message.raw, message.charset):
            found.uncertain.add(message.id)
    _note(found, known | others)
    return found


def _note(found: FoundMessages, every: dict[int, StoredMessage]) -> None:
    """The states of the messages that concern him."""
    concerned = found.own | found.shared | found.uncertain
    found.busy = {id_ for id_ in concerned if every[id_].status == "TRANSFORMING"}
    found.dead = {id_ for id_ in concerned if every[id_].status == "DEAD_LETTER"}
    found.correlations = {id_: every[id_].correlation_id for id_ in concerned}


async def find_rejects(inbox: MessageErasure, tenant: str, values: frozenset[str]) -> list[int]:
    """Rejects in which one of his numbers stands as a whole field or component."""
    found = await inbox.rejects(tenant, values)
    return [one.id for one in found if values & set(_BREAKS.split(read(one.raw, "utf-8")))]


def _is_his(one: MentioningResource, patients: Collection[str]) -> bool:
    """Whether a resource concerns him and no other patient.  What is deleted binds nobody any more."""
    if one.reference in patients:
        return True
    resource_type = one.reference.partition("/")[0]
    if resource_type == "Patient" or _other_patients(one.mentioned, patients):
        return False
    return one.deleted or resource_type in _ALSO or is_clinical(one.reference)


def is_clinical(reference: str) -> bool:
    """Whether resources of this type can be in the compartment of a Patient."""
    return bool(compartments()["Patient"].get(reference.partition("/")[0]))


def _other_patients(references: Iterable[str], patients: Collection[str]) -> set[str]:
    return {one for one in references if one.startswith("Patient/") and one not in patients}


def _names_others(message: StoredMessage, numbers: set[str]) -> bool:
    """Whether a message that wrote nothing has a person beside him."""
    persons = len(_PERSON.findall(read(message.raw, message.charset)))
    return persons > 1 and not _qualified(message) <= numbers


def _qualified(message: StoredMessage) -> set[str]:
    """Identifiers with their authority."""
    return {number for number in patients_of(message.raw, message.charset) if "|" in number}
