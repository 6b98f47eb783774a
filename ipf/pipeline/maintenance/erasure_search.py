"""The resources that concern one patient, and those that stand in the way of an erasure.

The search finds the Patient and those that are merged with it, all resources of their compartment, and what refers to
these, in every version, also by an identifier alone.  A Binary is his when its security context is, or when only his
resources name it.  Nothing that also concerns another patient is removed or changed without a decision (`redact` or
`remove`):

- a resource that mentions another Patient, or is of a type outside of the compartment;
- a Binary that his resources and those of others name;
- a Subscription or topic whose criteria have one of his numbers or names.

`erasure_messages.py` finds the messages.
Source: https://hl7.org/fhir/R4/compartmentdefinition-patient.html
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from ipf.errors import Category, Problem
from ipf.fhir.index.erased_texts import ErasedTexts
from ipf.fhir.search.parameters.compartments import compartments
from ipf.ports.fhir.erasure import ErasureStore, Identifier, MentioningResource

ALL = "*"
_ALSO = frozenset(("MessageHeader",))  # not in the compartment, made of one message


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
        """Whether a resource that also concerns others is removed.  A Patient never is, a Binary only by its name."""
        if reference.startswith(("Patient/", "Binary/")):
            return _is_binary(reference) and reference in self.remove
        return self._chooses(self.remove, self.redact, reference)

    def redacts(self, reference: str) -> bool:
        """Whether it stays without its references to the patient."""
        return self._chooses(self.redact, self.remove, reference)

    def _chooses(self, chosen: Collection[str], others: Collection[str], reference: str) -> bool:
        return reference in chosen or (ALL in chosen and reference not in others)


@dataclass(slots=True)
class FoundResources:
    """Resources by reference.  `patients`: the merged ones; `own`: removed; `shared`: it is not decided on them.

    `decided`: those of `own` that are removed by a decision.  `others`: the Patients whom other than his own concern.
    `texts`: what names him in free texts: numbers, names, addresses, telephone numbers.
    """

    patients: set[str]
    own: dict[str, MentioningResource] = field(default_factory=dict)
    redacted: dict[str, MentioningResource] = field(default_factory=dict)
    shared: dict[str, MentioningResource] = field(default_factory=dict)
    decided: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)
    texts: frozenset[str] = frozenset()

    @property
    def identifiers(self) -> frozenset[Identifier]:
        """The numbers of the patients, with their systems."""
        return frozenset().union(*(self.own[name].identifiers for name in self.patients if name in self.own))

    @property
    def values(self) -> frozenset[str]:
        """The numbers of the patients."""
        return frozenset().union(*(self.own[name].values for name in self.patients if name in self.own))

    def decide(self, wanted: ErasureRequest, one: MentioningResource) -> None:
        """What becomes of a resource that also concerns others."""
        name = one.reference
        self.others |= other_patients(one.mentioned, self.patients)
        if wanted.removes(name):
            self.decided.add(name)
            self.own[name] = one
            return
        self.own.pop(name, None)
        (self.redacted if wanted.redacts(name) else self.shared)[name] = one


async def find_resources(fhir: ErasureStore, wanted: ErasureRequest, holds: Collection[str]) -> FoundResources:
    """His resources, and those that concern others too.  Problem CONFLICT when a hold names one of the Patients."""
    reference = f"Patient/{wanted.id}"
    found = FoundResources({reference})
    check_holds(holds, wanted.tenant, found.patients)
    seen: dict[str, MentioningResource] = {}
    sought, new = set(), {reference}
    identifiers, known = frozenset[Identifier](), -1
    while new or len(identifiers) > known:
        known = len(identifiers)
        mentioning = await fhir.mentioning(wanted.tenant, frozenset(new), identifiers)
        seen |= {one.reference: one for one in mentioning}
        sought |= new
        found.patients = _merged(reference, seen)
        check_holds(holds, wanted.tenant, found.patients)
        identifiers = frozenset().union(*(seen[name].identifiers for name in found.patients if name in seen))
        owners = _Owners(wanted, _resolved(seen, identifiers), found.patients)
        found.own = owners.own
        new = {*found.own, *found.patients, *owners.binaries} - sought
    await _set_apart(fhir, wanted, found, owners)
    found.texts = found.values | await fhir.texts(wanted.tenant, sorted(one.rid for one in found.own.values()))
    await _set_searches_apart(fhir, wanted, found)
    return found


def check_holds(holds: Collection[str], tenant: str, patients: Iterable[str]) -> None:
    """Problem CONFLICT when a hold names one of the Patients."""
    for reference in sorted(patients):
        for hold in (reference, f"{tenant}:{reference}"):
            if hold in holds:
                raise Problem(Category.CONFLICT, f"IPF_LEGAL_HOLDS has {hold}: the patient must not be erased")


def _merged(reference: str, seen: Mapping[str, MentioningResource]) -> set[str]:
    """The Patient, and those that links call the same one, in either direction."""
    patients, before = {reference}, 0
    while len(patients) > before:
        before = len(patients)
        for name, one in seen.items():
            if name in patients or one.merged_with & patients:
                patients |= {name, *one.merged_with}
    return patients


def _resolved(
    seen: Mapping[str, MentioningResource], identifiers: frozenset[Identifier]
) -> dict[str, MentioningResource]:
    """The resources with mentions of Patients instead of References by an identifier.

    An identifier that two Patients have mentions both.  Another number of the same system mentions somebody else, who
    need not be stored; a number of another system may be a practitioner's.
    """
    holders: dict[Identifier, set[str]] = {one: set() for one in identifiers}
    for resource in seen.values():
        for one in resource.identifiers & identifiers:
            holders[one].add(resource.reference)
    systems = {system for system, _ in identifiers if system}
    resolved = {}
    for name, resource in seen.items():
        others = {
            f"Patient/{quote('|'.join(one), safe='')}" for one in resource.named - identifiers if one[0] in systems
        }
        mentioned = resource.mentioned.union(others, *(holders[one] for one in resource.named & identifiers))
        resolved[name] = resource._replace(mentioned=mentioned)
    return resolved


class _Owners:
    """Whose the resources are that a search has seen.

    `own`: those that belong to what is his and to nobody else, and those that are removed by a decision.  `concerned`:
    all that belong to what is his.  `binaries`: those that are his or that his resources name.
    """

    def __init__(
        self, wanted: ErasureRequest, seen: Mapping[str, MentioningResource], patients: Collection[str]
    ) -> None:
        self.own: dict[str, MentioningResource] = {}
        self._patients = patients
        self._users = _users(seen.values())
        size = -1
        while len(self.own) > size:
            size = len(self.own)
            for name, one in seen.items():
                if name not in self.own and self._belongs(one) and (wanted.removes(name) or self.is_his(one)):
                    self.own[name] = one
        self.concerned = [one for one in seen.values() if self._belongs(one)]
        named = {name for one in self.own.values() for name in one.mentioned}
        self.binaries = {name for name in (*named, *(one.reference for one in self.concerned)) if _is_binary(name)}

    def is_his(self, one: MentioningResource) -> bool:
        """Whether a resource concerns him and no other patient.  What is deleted binds nobody any more."""
        if one.reference in self._patients:
            return True
        resource_type = one.reference.partition("/")[0]
        if resource_type == "Patient" or other_patients(one.mentioned, self._patients):
            return False
        if resource_type == "Binary":
            return self._mentions(one) or self._users[one.reference] <= set(self.own)
        return one.deleted or resource_type in _ALSO or is_clinical(one.reference)

    def _belongs(self, one: MentioningResource) -> bool:
        """Whether a resource is a Patient, mentions one or what is his, or is a Binary that his resources name."""
        users = self._users.get(one.reference, ())
        return one.reference in self._patients or self._mentions(one) or any(user in self.own for user in users)

    def _mentions(self, one: MentioningResource) -> bool:
        return any(name in self._patients or name in self.own for name in one.mentioned)


def _users(resources: Iterable[MentioningResource]) -> dict[str, set[str]]:
    """For each Binary the other resources that name it."""
    users: dict[str, set[str]] = {}
    for one in resources:
        for name in one.mentioned:
            if _is_binary(name) and name != one.reference:
                users.setdefault(name, set()).add(one.reference)
    return users


async def _set_apart(fhir: ErasureStore, wanted: ErasureRequest, found: FoundResources, owners: _Owners) -> None:
    """Of what is left, and of what mentions a stored resource of a patient that is not his: what becomes of it."""
    mentioned = set().union(*(one.mentioned for one in found.own.values()))
    foreign = await fhir.existing(wanted.tenant, sorted(one for one in mentioned - set(found.own) if is_clinical(one)))
    his = {one.reference for one in owners.concerned if owners.is_his(one) and not one.mentioned & foreign}
    for one in owners.concerned:
        if one.reference not in found.patients and one.reference not in his:
            found.decide(wanted, one)


async def _set_searches_apart(fhir: ErasureStore, wanted: ErasureRequest, found: FoundResources) -> None:
    """Subscriptions and topics that name him in a text; what is deleted binds nobody any more."""
    names = ErasedTexts(found.texts)
    for one in await fhir.searching(wanted.tenant):
        if one.reference in found.own or not any(map(names.found_in, one.texts)):
            continue
        if one.deleted and not other_patients(one.mentioned, found.patients):
            found.own[one.reference] = one
        else:
            found.decide(wanted, one)


def is_clinical(reference: str) -> bool:
    """Whether resources of this type can be in the compartment of a Patient."""
    return bool(compartments()["Patient"].get(reference.partition("/")[0]))


def other_patients(references: Iterable[str], patients: Collection[str]) -> set[str]:
    """The Patients among these references that are not his."""
    return {one for one in references if one.startswith("Patient/") and one not in patients}


def _is_binary(reference: str) -> bool:
    return reference.startswith("Binary/")
