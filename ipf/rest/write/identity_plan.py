"""The stored resource of each entry of a converted message: candidates, survivors, subjects and answers of operators.

Arrives: the entries with an identity, and the planned state of the store.  Leaves: the key of the match, or None for a
new resource; `IdentityConflict` when only an operator can decide; `MoreNeeded` when something must be read first.

A Patient that was merged into another one stands for its survivor, unless the message itself says that it was merged.
An answer of an operator counts where there would be a conflict, for each message with that first key.  Where the
message names another person than the Patient, or another Patient than the resource has, it counts only until that
resource is written again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NoReturn

from ipf.fhir.model.identifier import identifiers_of, key_of, keys_in_use
from ipf.mapping.bundle.contents import RELATED_PERSON, is_numbered
from ipf.mapping.bundle.identity import DERIVED
from ipf.ports import Json
from ipf.ports.identity import (
    ConflictKind,
    Identity,
    IdentityAnswer,
    IdentityConflict,
    IdentityFinding,
    IdentityKey,
    Role,
    Service,
)
from ipf.ports.queries.entries import Entry
from ipf.rest.identity.conflict_text import conflict_text
from ipf.rest.identity.decisions import (
    EXACT,
    WITHOUT_SUBJECT,
    Candidate,
    Decision,
    decide_auxiliary,
    decide_patient,
    decide_principal,
    is_nearest,
    is_of,
    level,
    of_same_content,
    patient_id,
    persons_differ,
    results_of,
    strongest,
    subject_references,
    survivor_reference,
)
from ipf.rest.identity.orders import meant_orders
from ipf.rest.write.candidates import Candidates
from ipf.rest.write.prefetch import PreparedUnit
from ipf.rest.write.second_look import Key, MoreNeeded, SecondLook
from ipf.rest.write.snapshot import State, StoreSnapshot

_MOST_HOPS = 8


class IdentityPlan:
    """The matches of one unit.  `warnings`: resource type and sentence of each match that was not clear.

    `further`: by the number of an entry, what it updates beside its match.  `orders`: and reports, by their names.
    """

    def __init__(self, prepared: PreparedUnit, snapshot: StoreSnapshot) -> None:
        self.warnings: list[tuple[str, str]] = []
        self.differences: list[IdentityFinding] = []
        self._prepared, self._snapshot = prepared, snapshot
        self._tenant = prepared.unit.tenant
        self._patients: dict[str, str] = {}
        self._sent: dict[str, Json] = {}
        self.orders: dict[str, str] = {}
        self._results: tuple[int, set[str]] = (0, set())
        self._meant: set[str] = set()
        self._stored_with = Candidates(prepared, snapshot, self._people)
        self._is_merge = any(one.resource_type == "Patient" and _is_merged(one) for one in prepared.unit.entries)
        self.further: dict[int, list[Key]] = {}

    @property
    def patients(self) -> Collection[str]:
        """The ids of the Patients of the message."""
        return self._sent

    def order(self, entries: Sequence[Entry]) -> list[int]:
        """The entries of Patients; those that the message says were merged come first."""
        numbers = [number for number, entry in enumerate(entries) if entry.resource_type == "Patient"]
        return sorted(numbers, key=lambda number: not _is_merged(entries[number]))

    def add_patient(self, entry: Entry, id: str) -> None:
        """Record the resource of a Patient entry, for the entries that refer to it."""
        if entry.full_url is not None:
            self._patients[entry.full_url] = id
        if entry.resource is not None:
            self._sent[id] = entry.resource

    def match(self, number: int, identity: Identity) -> Key | None:
        """The key of the resource that an entry means; None: it is new."""
        entry = self._prepared.unit.entries[number]
        if identity.role is Role.SUBJECT:
            return self._match_patient(number, entry, identity)
        if identity.role is Role.AUXILIARY and entry.resource_type in WITHOUT_SUBJECT:
            return self._match_shared(number, entry, identity)
        is_person = entry.resource_type == RELATED_PERSON  # its computed key has the number alone
        plain = None if is_person else self._plain_match(number, entry, identity)
        if plain is not None:
            return plain
        _, found = strongest(identity, self._stored_with.of(number))
        if not found:
            return None
        people = self._with_people(entry, found)
        if identity.service is not None:
            found = self._orders(number, entry, identity, identity.service, people, found)
            if not found:
                return None
        elif is_numbered(entry.resource_type):
            fitting = of_same_content(entry.resource or {}, people, found, self.orders, self._reported)
            if not fitting:
                self._warn(entry, len(found), "the content contradicts; a new one is made")
                return None
            found = fitting
        if identity.role is Role.AUXILIARY:
            return self._auxiliary(entry, decide_auxiliary(people, found), len(found))
        decision = decide_principal(identity, people, self._sent, found)
        if decision.conflict is None:
            if decision.several:
                self._warn(entry, len(found), "the one of the same patient is used")
            return self._key_of(entry, decision)
        answered = self._answered_principal(entry, identity, decision.conflict, people)
        return answered or self._conflict(entry, identity, decision.conflict, found, people)

    def _orders(
        self,
        number: int,
        entry: Entry,
        identity: Identity,
        service: Service,
        people: Collection[str],
        found: list[Candidate],
    ) -> list[Candidate]:
        """The order that an entry means among those of its number; none: a new one.

        Orders of another patient alone are left to the decision about their subject.  An update of all orders of a
        number (ORC alone) is decided on the oldest, and `further` has the others.
        """
        own = [one for one in found if is_of(one, people)]
        if not own:
            return found
        is_mentioned = identity.role is Role.AUXILIARY
        free = [one for one in own if is_mentioned or one.id not in self._meant]
        meant = meant_orders(service, entry.resource or {}, free, is_mentioned=is_mentioned)
        if is_mentioned:
            return meant
        self._meant.update(one.id for one in meant)
        self.further[number] = [(self._tenant, entry.resource_type, one.id) for one in meant[1:]]
        return meant[:1]

    def check_subject(self, entry: Entry, key: Key) -> None:
        """Refuse an update of a converted message, found by a condition or an id, that would change the subject."""
        state = self._snapshot.state(key)
        stored = state.resource if state is not None else None
        if stored is None or state is None or entry.resource is None:
            return
        candidate = Candidate(key[2], state.version.rid, stored, frozenset())
        if entry.resource_type == "Patient":
            self._check_person(entry, key, candidate)
            return
        people = self._with_people(entry, [candidate])
        if is_of(candidate, people):
            return
        keys = tuple([key_of(one) for one in identifiers_of(entry.resource)][:1])
        identity = Identity(keys or (IdentityKey("", "", f"{key[1]}/{key[2]}"),), Role.PRINCIPAL)
        if self._answered_principal(entry, identity, ConflictKind.SUBJECT, people) != key:
            self._conflict(entry, identity, ConflictKind.SUBJECT, [candidate], people)

    # -- Patients

    def _check_person(self, entry: Entry, key: Key, candidate: Candidate) -> None:
        """Refuse a match with another person that a condition or an id of a map found."""
        patient = entry.resource or {}
        numbers = tuple(keys_in_use(patient)) or (IdentityKey("", "", f"{key[1]}/{key[2]}"),)
        candidate.held = frozenset(numbers)
        identity = Identity(numbers, Role.SUBJECT, is_declared=self._is_merge)
        decision = decide_patient(identity, patient, EXACT, [candidate])
        if decision.conflict is None:
            self._warn_of_differences(entry, identity, decision)
        elif self._answered_patient(entry, identity, [candidate]) != key:
            self._conflict(entry, identity, decision.conflict, [candidate], ())

    def _match_patient(self, number: int, entry: Entry, identity: Identity) -> Key | None:
        found, candidates = strongest(identity, self._stored_with.of(number))
        if self._is_merge:
            identity = replace(identity, is_declared=True)
        if _is_merged(entry):
            candidates = [one for one in candidates if not self._is_survivor(one)]
        else:
            candidates = self._survivors(candidates)
        decision = decide_patient(identity, entry.resource or {}, found, candidates)
        if decision.conflict is None:
            self._warn_of_differences(entry, identity, decision)
            return self._key_of(entry, decision)
        return self._answered_patient(entry, identity, candidates) or self._conflict(
            entry, identity, decision.conflict, candidates, ()
        )

    def _answered_patient(self, entry: Entry, identity: Identity, candidates: Sequence[Candidate]) -> Key | None:
        """The Patient of an answer.

        Of another person only until it is written again (a number may be given anew), and so where two persons share
        the number since an answer and the message does not tell them apart.
        """
        answer = self._answer(entry, identity)
        if answer is None:
            return None
        key = self._tenant, "Patient", self._followed(answer.resource_id)
        state = self._state(key[1:])
        stored = None if state is None else state.resource
        patient = entry.resource or {}
        if state is None or stored is None:
            return key
        if not persons_differ(patient, stored) and is_nearest(patient, key[2], candidates):
            return key
        is_new = answer.answered_at is not None and state.version.last_updated <= answer.answered_at
        return key if is_new else None

    def _is_survivor(self, candidate: Candidate) -> bool:
        """Whether the first number of another Patient of the message, one that is in use, is a number of this one."""
        return any(
            other.identity is not None
            and not _is_merged(other)
            and level(other.identity.keys[0], candidate.held) == EXACT
            for other in self._prepared.unit.entries
            if other.resource_type == "Patient"
        )

    def _survivors(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Each candidate, or the Patient that replaces it; each once."""
        found: dict[str, Candidate] = {}
        for one in candidates:
            id = self._followed(one.id)
            if id != one.id and id not in self._sent:
                state = self._state(("Patient", id))
                if state is not None and state.resource is not None:
                    held = one.held | frozenset(keys_in_use(state.resource))
                    one = Candidate(id, state.version.rid, state.resource, held, prior=[one.resource])
            if one.id in found:
                found[one.id].held |= one.held
                found[one.id].prior += one.prior
            else:
                found[one.id] = one
        return sorted(found.values(), key=lambda one: one.rid)

    def _followed(self, id: str) -> str:
        """The id of the Patient that stands for this one now."""
        seen = [id]
        while len(seen) <= _MOST_HOPS:
            resource = self._sent.get(seen[-1])
            links = [survivor_reference(one) for one in (resource, self._stored(seen[-1])) if one is not None]
            reference = next((one for one in links if one is not None), None)
            following = None if reference is None else self._patients.get(reference) or patient_id(reference)
            if following is None or following in seen:
                break
            if following not in self._sent and self._stored(following) is None:
                break
            seen.append(following)
        return seen[-1]

    def _stored(self, id: str) -> Json | None:
        """The stored Patient; None when there is none.  MoreNeeded when it was not read."""
        state = self._state(("Patient", id))
        return None if state is None else state.resource

    # -- other types

    def _match_shared(self, number: int, entry: Entry, identity: Identity) -> Key | None:
        """A practitioner, a place, an organization: by its numbers alone."""
        _, found = strongest(identity, self._stored_with.shared(number))
        return self._auxiliary(entry, decide_auxiliary((), found), len(found))

    def _plain_match(self, number: int, entry: Entry, identity: Identity) -> Key | None:
        """The only resource with a computed key, when its bytes refer to no other Patient than the entry.

        A computed key has no type and no use, so that the search by system and value suffices.  Most entries are such.
        """
        if len(identity.keys) != 1 or identity.keys[0].system != DERIVED:
            return None
        found, people = self._stored_with.keys(number), self._people(entry)
        if len(found) != 1 or len(people) != 1:
            return None
        state = self._snapshot.state(found[0])
        if state is None or not state.exists:
            return None
        body, (person,) = state.version.body, people
        return found[0] if body.count(b"Patient/") == body.count(b'"Patient/%b"' % person.encode()) else None

    def _people(self, entry: Entry) -> set[str]:
        """The Patients that are the subject of an entry."""
        return {id for one in subject_references(entry.resource or {}) if (id := self._patient(one)) is not None}

    def _auxiliary(self, entry: Entry, decision: Decision, count: int) -> Key | None:
        if decision.several:
            self._warn(entry, count, "the newest is used" if decision.match is not None else "a new one is made")
        return self._key_of(entry, decision)

    def _with_people(self, entry: Entry, candidates: Sequence[Candidate]) -> set[str]:
        """The Patients of an entry; sets those of the candidates.  Merged Patients count as one person."""
        own = self._people(entry)
        differs = False
        for one in candidates:
            one.people = frozenset(id for text in subject_references(one.resource) if (id := patient_id(text)))
            differs = differs or not is_of(one, own)
        if differs:
            own |= {self._followed(id) for id in own}
            for one in candidates:
                if not is_of(one, own):
                    one.people |= {self._followed(id) for id in one.people}
        return own

    def _patient(self, reference: str) -> str | None:
        return self._patients.get(reference) or patient_id(reference)

    def _answered_principal(
        self, entry: Entry, identity: Identity, conflict: ConflictKind, people: set[str]
    ) -> Key | None:
        """The resource of an answer: of another Patient only until it is written again."""
        answer = self._answer(entry, identity)
        if answer is None:
            return None
        key = self._tenant, entry.resource_type, answer.resource_id
        state = self._state(key[1:])
        stored = None if state is None else state.resource
        if state is None or stored is None:
            return key
        candidate = Candidate(key[2], state.version.rid, stored, frozenset())
        people = people | self._with_people(entry, [candidate])
        is_new = answer.answered_at is not None and state.version.last_updated <= answer.answered_at
        return key if is_of(candidate, people) or is_new else None

    # -- reading

    def _reported(self) -> set[str]:
        """The ids of the results of stored reports that the message updates."""
        count, known = self._results
        if count != len(self.orders):
            ids = [one.rpartition("/")[2] for one in self.orders.values() if one.startswith("DiagnosticReport/")]
            states = [self._snapshot.state((self._tenant, "DiagnosticReport", id)) for id in ids]
            known = results_of([one.resource for one in states if one is not None])
            self._results = len(self.orders), known
        return known

    def _state(self, key: tuple[str, str]) -> State | None:
        """The state of a resource; None when there is none.  MoreNeeded when it was not read."""
        whole = self._tenant, *key
        state = self._snapshot.state(whole)
        is_new = key[0] == "Patient" and key[1] in self._sent
        if state is None and not is_new and whole not in self._snapshot.prefetch.absent:
            raise MoreNeeded(SecondLook(ids={whole: None}))
        return state

    def _answer(self, entry: Entry, identity: Identity) -> IdentityAnswer | None:
        """The answer of an operator for the first key of an entry.  MoreNeeded when it was not read."""
        key = self._tenant, entry.resource_type, identity.keys[0].text
        answers = self._snapshot.prefetch.answers
        if key not in answers:
            raise MoreNeeded(SecondLook(answers={key: None}))
        return answers[key]

    # -- results

    def _key_of(self, entry: Entry, decision: Decision) -> Key | None:
        return None if decision.match is None else (self._tenant, entry.resource_type, decision.match.id)

    def _warn(self, entry: Entry, count: int, consequence: str) -> None:
        text = f"{entry.place}: {count} resources of type {entry.resource_type} match; {consequence}"
        self.warnings.append((entry.resource_type, text))

    def _warn_of_differences(self, entry: Entry, identity: Identity, decision: Decision) -> None:
        """A person of another name, birth date or sex, which is not enough for a conflict."""
        if decision.match is not None and decision.differing:
            text = f"{entry.place}: Patient/{decision.match.id} has another {' and another '.join(decision.differing)}"
            self.warnings.append((entry.resource_type, f"{text}; the number decides"))
            found = f"Patient/{decision.match.id}"
            finding = IdentityFinding(ConflictKind.DIFFERENCE, "Patient", identity.keys, (found,), found, entry.place)
            self.differences.append(finding)

    def _conflict(
        self, entry: Entry, identity: Identity, kind: ConflictKind, found: Sequence[Candidate], people: Iterable[str]
    ) -> NoReturn:
        """Raise the conflict."""
        ids = tuple([f"{entry.resource_type}/{one.id}" for one in sorted(found, key=lambda one: one.rid)])
        subject = next((f"Patient/{id}" for id in sorted(people)), None)
        finding = IdentityFinding(kind, entry.resource_type, identity.keys, ids, subject, entry.place)
        raise IdentityConflict(finding, conflict_text(finding))


def _is_merged(entry: Entry) -> bool:
    """Whether a message says that this Patient was merged into another one."""
    return entry.resource is not None and survivor_reference(entry.resource) is not None
