"""Which stored resource an entry of a converted message means: decided on the resources that have one of its numbers.

What arrives: the identity of the entry, its resource, and the candidates.  What leaves: the match, nothing (the
resource is new), or a conflict, which only people can decide.  No function here reads the store or changes anything.

- A number matches an identifier in use with the same system, value and type.  Where one of the two has no type, the
  match is weak: it counts only when nothing else matches, and for a Patient only when name and birth date agree.
- A Patient that matches by a later number must not have other numbers of the kind of an earlier one; a Patient that
  matches by the first may have others of later kinds (a corrected or new number) when name and birth date agree.
- A Patient of another person (`persons.is_overlay`) is a conflict, also under an equal number.
- Any other resource keeps its subject.  What a message only mentions never fails it: of several, the newest of the same
  subject counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ipf.fhir.model.identifier import keys_in_use
from ipf.fhir.model.json import loads
from ipf.mapping.bundle.contents import contradict
from ipf.ports import Json
from ipf.ports.identity import OVERLAY, ConflictKind, Identity, IdentityKey
from ipf.rest.identity.persons import births_differ, differ, differing, families

EXACT, WEAK, NONE = 2, 1, 0
_NOT_IN_USE = frozenset(("old", "nickname"))

WITHOUT_SUBJECT = frozenset(
    ("Practitioner", "PractitionerRole", "Organization", "Location", "HealthcareService", "Medication", "Substance",
     "Endpoint")
)  # fmt: skip
"""Types that many messages share and that belong to nobody."""


@dataclass(slots=True)
class Candidate:
    """A stored resource with one of the numbers.  `rid`: increases with the age of the store.

    `held`: its keys in use, with those of the records that were merged into it when the match came through one.
    `people`: the Patients that are its subject; of a Patient not used.  `prior`: the records that it stands for.
    """

    id: str
    rid: int
    resource: Json
    held: frozenset[IdentityKey]
    people: frozenset[str] = frozenset()
    prior: list[Json] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Decision:
    """`match`: None = new.  `conflict`: why it cannot be decided.  `several`: the choice deserves a warning.

    `differing`: what a Patient is updated in although it tells persons apart; it deserves a warning too.
    """

    match: Candidate | None = None
    conflict: ConflictKind | None = None
    several: bool = False
    differing: tuple[str, ...] = ()


NEW = Decision()


@lru_cache(maxsize=2048)
def held_in(body: bytes) -> frozenset[IdentityKey]:
    """The keys in use of a resource that many messages share; remembered by its bytes."""
    return frozenset(keys_in_use(loads(body)))


def level(key: IdentityKey, held: Iterable[IdentityKey]) -> int:
    """How an identifier of a message matches those of a resource."""
    best = NONE
    for one in held:
        if one.value == key.value and one.system == key.system:
            if one.type == key.type:
                return EXACT
            if not one.type or not key.type:
                best = WEAK
    return best


def strongest(identity: Identity, candidates: Iterable[Candidate]) -> tuple[int, list[Candidate]]:
    """The candidates that match exactly, or else weakly, oldest first."""
    exact, weak = [], []
    for candidate in candidates:
        found = max(level(key, candidate.held) for key in identity.keys)
        if found == EXACT:
            exact.append(candidate)
        elif found == WEAK:
            weak.append(candidate)
    kept = exact or weak
    return (EXACT if exact else WEAK), sorted(kept, key=lambda one: one.rid)


# ------------------------------------------------------------------------------------------------------- Patients


def decide_patient(identity: Identity, patient: Json, found: int, candidates: Sequence[Candidate]) -> Decision:
    """The Patient that a message means.  `found`, `candidates`: of `strongest`, each standing for its survivor."""
    if not candidates:
        return NEW
    is_unsure = found == WEAK or identity.is_weak
    others = [] if is_unsure else [one for one in candidates if is_overlay(identity, patient, one)]
    fitting = [one for one in candidates if one not in others and not contradicts(identity, patient, one)]
    if len(candidates) == 1:
        (one,) = candidates
        if others:
            return Decision(conflict=ConflictKind.OVERLAY)
        if not fitting or (is_unsure and persons_differ(patient, one.resource)):
            return Decision(conflict=ConflictKind.CONTRADICTION)
        return _found(identity, patient, one)
    first = identity.keys[0]
    if len(fitting) == 1 and level(first, fitting[0].held) == EXACT and not identity.is_weak:
        # The others have another first number, or are other persons under a number that both have since an answer.
        held = _numbers(identity, fitting[0])
        if all(contradicts(identity, patient, one) or _numbers(identity, one) <= held for one in others):
            return _found(identity, patient, fitting[0])
    return Decision(conflict=ConflictKind.OVERLAY if others else ConflictKind.AMBIGUOUS)


def _found(identity: Identity, patient: Json, candidate: Candidate) -> Decision:
    return Decision(candidate, differing=() if identity.is_declared else differences(patient, candidate))


def _numbers(identity: Identity, candidate: Candidate) -> set[IdentityKey]:
    """The numbers of the message that a candidate has."""
    return {key for key in identity.keys if level(key, candidate.held) == EXACT}


def is_overlay(identity: Identity, patient: Json, candidate: Candidate) -> bool:
    """Whether a candidate is another person though it has a number of the message.

    Of several numbers that match, the one that asks for the fewest differences counts.
    """
    if identity.is_declared:
        return False
    limits = identity.overlay or (OVERLAY,) * len(identity.keys)
    matched = [
        limit for key, limit in zip(identity.keys, limits, strict=True) if limit and level(key, candidate.held) == EXACT
    ]
    return bool(matched) and len(differences(patient, candidate)) >= min(matched)


def differences(patient: Json, candidate: Candidate) -> tuple[str, ...]:
    """In what a Patient differs from a candidate, and from each record that was merged into it."""
    return differing(patient, candidate.resource, *candidate.prior)


def is_nearest(patient: Json, meant: str, candidates: Iterable[Candidate]) -> bool:
    """Whether a Patient is nearer to the candidate with the id `meant` than to those that are other persons than it."""
    known = {one.id: one for one in candidates}
    target = known.pop(meant, None)
    if target is None:
        return True
    near = len(differences(patient, target))
    others = [one for one in known.values() if len(differing(target.resource, one.resource)) == OVERLAY]
    return all(near < len(differences(patient, one)) for one in others)


def contradicts(identity: Identity, patient: Json, candidate: Candidate) -> bool:
    """Whether a candidate has other numbers where the message has one of the same authority and type."""
    kinds: dict[tuple[str, str], set[str]] = {}
    for key in identity.keys:
        kinds.setdefault((key.system, key.type), set()).add(key.value)
    best = next(place for place, key in enumerate(identity.keys) if level(key, candidate.held))
    for place, (kind, values) in enumerate(kinds.items()):
        stored = {one.value for one in candidate.held if (one.system, one.type) == kind}
        if not stored or stored & values:
            continue
        is_earlier = place < list(kinds).index((identity.keys[best].system, identity.keys[best].type))
        if is_earlier or persons_differ(patient, candidate.resource):
            return True
    return False


def persons_differ(one: Json, other: Json) -> bool:
    """Whether both name a family in use and none agrees, or both have a birth date and they differ."""
    return differ(families(one, _NOT_IN_USE), families(other, _NOT_IN_USE)) or births_differ(one, other)


# ----------------------------------------------------------------------------------------------------- other types


def decide_principal(
    identity: Identity, people: Collection[str], unit_people: Collection[str], candidates: Sequence[Candidate]
) -> Decision:
    """What a message is about, such as a visit or an order.

    `people`: its subjects in the message.  `unit_people`: all Patients of the message.
    """
    own = [one for one in candidates if is_of(one, people)]
    if len(own) == 1:
        return Decision(own[0], several=len(candidates) > 1)
    if own:
        return Decision(conflict=ConflictKind.AMBIGUOUS)
    if len(candidates) == 1 and identity.may_move and candidates[0].people <= set(unit_people):
        return Decision(candidates[0])
    return Decision(conflict=ConflictKind.SUBJECT) if candidates else NEW


def of_same_content(
    resource: Json,
    people: Collection[str],
    candidates: Sequence[Candidate],
    orders: Mapping[str, str],
    reported: Callable[[], Collection[str]],
) -> list[Candidate]:
    """The candidates that a resource may update by what their number is of; those of other patients if no other is.

    Of several results those of the same time.  `orders`: references to the orders of the message by their names in it.
    `reported`: the ids of the results of stored reports that the message updates; they are of its orders.
    """
    own = [one for one in candidates if is_of(one, people)]
    found = [one for one in own or candidates if not own or not contradict(resource, one.resource, orders)]
    if not found and "basedOn" in resource:
        plain = {name: value for name, value in resource.items() if name != "basedOn"}
        known = reported()
        found = [one for one in own if one.id in known and not contradict(plain, one.resource)]
    time = resource.get("effectiveDateTime")
    if len(found) > 1 and time is not None:
        return [one for one in found if one.resource.get("effectiveDateTime") == time] or found
    return found


def results_of(reports: Iterable[Json | None]) -> set[str]:
    """The ids of the results of reports."""
    held = [one for report in reports if report is not None for one in report.get("result", ())]
    return {text.rpartition("/")[2] for text in _references(held)}


def decide_auxiliary(people: Collection[str], candidates: Sequence[Candidate]) -> Decision:
    """What a message only mentions: the newest of the same subject, or a new one."""
    own = [one for one in candidates if is_of(one, people)]
    is_unclear = len(own) != 1 and len(candidates) > 0
    return Decision(own[-1] if own else None, several=is_unclear)


def is_of(candidate: Candidate, people: Collection[str]) -> bool:
    """Whether a resource is of these Patients; unknown on one side agrees."""
    return not candidate.people or not people or not candidate.people.isdisjoint(people)


SUBJECTS = ("subject", "patient", "beneficiary", "individual")


def subject_references(resource: Json) -> list[str]:
    """The references to the subjects of a resource: of an Appointment its participants."""
    found: list[str] = []
    for name in SUBJECTS:
        if name in resource:
            held = resource[name]
            found += _references(held if type(held) is list else [held])
    if resource.get("resourceType") == "Appointment":
        found += _references([one.get("actor") for one in resource.get("participant", ()) if type(one) is dict])
    return found


def _references(held: Iterable[Any]) -> list[str]:
    texts = [one.get("reference") for one in held if type(one) is dict]
    return [one for one in texts if isinstance(one, str)]


def patient_id(reference: str) -> str | None:
    """The id in a reference to a Patient of this server (`Patient/1`, with or without version or base); else None."""
    path = reference.partition("/_history/")[0].split("/")
    return path[-1] if len(path) > 1 and path[-2] == "Patient" else None


def survivor_reference(patient: Json) -> str | None:
    """The reference to the Patient that replaces this one; None when it is in use."""
    for link in patient.get("link", ()):
        if type(link) is dict and link.get("type") == "replaced-by":
            found = next(iter(_references([link.get("other")])), None)
            if found is not None:
                return found
    return None
