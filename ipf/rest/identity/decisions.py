"""Which stored resource an entry of a converted message means: decided on the resources that have one of its numbers.

What arrives: the identity of the entry, its resource, and the candidates.  What leaves: the match, nothing (the
resource is new), or a conflict, which only people can decide.  No function here reads the store or changes anything.

- A number matches an identifier in use with the same system, value and type.  Where one of the two has no type, the
  match is weak: it counts only when nothing else matches, and for a Patient only when name and birth date agree.
- A Patient that matches by a later number must not have other numbers of the kind of an earlier one; a Patient that
  matches by the first may have others of later kinds (a corrected or new number) when name and birth date agree.
- Any other resource keeps its subject.  What a message only mentions never fails it: of several, the newest of the same
  subject counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ipf.fhir.index.entries import normalise
from ipf.ports import Json
from ipf.ports.identity import ConflictKind, Identity, IdentityKey

EXACT, WEAK, NONE = 2, 1, 0

WITHOUT_SUBJECT = frozenset(
    ("Practitioner", "PractitionerRole", "Organization", "Location", "HealthcareService", "Medication", "Substance",
     "Endpoint")
)  # fmt: skip
"""Types that many messages share and that belong to nobody."""


@dataclass(slots=True)
class Candidate:
    """A stored resource with one of the numbers.  `rid`: increases with the age of the store.

    `held`: its keys in use, with those of the records that were merged into it when the match came through one.
    `people`: the Patients that are its subject; of a Patient not used.  `names`: ids of the records that stand for it.
    """

    id: str
    rid: int
    resource: Json
    held: frozenset[IdentityKey]
    people: frozenset[str] = frozenset()
    names: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Decision:
    """`match`: None = new.  `conflict`: why it cannot be decided.  `several`: the choice deserves a warning."""

    match: Candidate | None = None
    conflict: ConflictKind | None = None
    several: bool = False


NEW = Decision()


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
    fitting = [one for one in candidates if not contradicts(identity, patient, one)]
    if len(candidates) == 1:
        (one,) = candidates
        is_unsure = found == WEAK or identity.is_weak
        if not fitting or (is_unsure and persons_differ(patient, one.resource)):
            return Decision(conflict=ConflictKind.CONTRADICTION)
        return Decision(one)
    first = identity.keys[0]
    if len(fitting) == 1 and level(first, fitting[0].held) == EXACT and not identity.is_weak:
        return Decision(fitting[0])  # the others share a later number and have another first one
    return Decision(conflict=ConflictKind.AMBIGUOUS)


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
    """Whether both name a family and none agrees, or both have a birth date and they differ."""
    families, others = _families(one), _families(other)
    if families and others and not families & others:
        return True
    born, birth = one.get("birthDate"), other.get("birthDate")
    if not isinstance(born, str) or not isinstance(birth, str):
        return False
    return not (born.startswith(birth) or birth.startswith(born))  # one may be the year alone


def _families(patient: Json) -> set[str]:
    names = patient.get("name", ())
    texts = [one.get("family") for one in names if type(one) is dict and one.get("use") not in ("old", "nickname")]
    plain = ("".join(filter(str.isalnum, normalise(one))) for one in texts if isinstance(one, str))
    return {one for one in plain if one}


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
