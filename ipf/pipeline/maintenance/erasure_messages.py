"""The messages, the rejects and the searches of operators that an erasure removes.

Messages are his when they wrote one of his resources, or when an identifier in PID-3 or MRG-1 with its assigning
authority is one that such messages have.  One that also concerns another patient, or of which only the number fits, or
whose patient is in dispute, is set apart for a decision.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ipf.fhir.index.erased_texts import ErasedTexts
from ipf.hl7.words import contains_words, folded, patients_of, query_words, read
from ipf.pipeline.maintenance.erasure_search import FoundResources, other_patients
from ipf.ports.fhir.erasure import ErasureStore, MessageErasure, StoredMessage

_BREAKS = re.compile(r"[\s|^~&\\]+")
_BREAKS_OF_JSON = re.compile(r'[\s{}\[\],"]+')
_PERSON = re.compile(r"(?:^|[\r\n])(?:PID|MRG)[^A-Za-z0-9]")


@dataclass(slots=True)
class FoundMessages:
    """Messages by what is known of them: ids.  `busy`: being converted.  `correlations`: of all of them, by id.

    `others`: the Patients whom shared ones concern, too.  `numbers`: his numbers with their authority.  `stored`: all
    of them, by id.
    """

    own: set[int] = field(default_factory=set)
    shared: set[int] = field(default_factory=set)
    uncertain: set[int] = field(default_factory=set)
    busy: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    correlations: dict[int, str] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    numbers: set[str] = field(default_factory=set)
    stored: dict[int, StoredMessage] = field(default_factory=dict)


@dataclass(slots=True)
class FoundSearches:
    """Ids of what was searched for him: removed `jobs` and `views`; `open_jobs` that are not finished stand in the way.

    `known`: kind and id of all searches.
    """

    jobs: list[int] = field(default_factory=list)
    views: list[int] = field(default_factory=list)
    open_jobs: list[int] = field(default_factory=list)
    known: set[tuple[str, int]] = field(default_factory=set)


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
        strangers = other_patients({one.reference, *one.mentioned}, resources.patients)
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
    found.stored = {id_: every[id_] for id_ in concerned}


async def find_rejects(inbox: MessageErasure, tenant: str, values: frozenset[str]) -> list[int]:
    """Rejects in which one of his numbers stands as a whole field or component."""
    found = await inbox.rejects(tenant, values)
    return [one.id for one in found if values & _parts_of(read(one.raw, "utf-8"))]


def _parts_of(text: str) -> set[str]:
    """Fields and components of a frame, or texts of an item of a polled source, which is JSON."""
    breaks = _BREAKS_OF_JSON if text.lstrip()[:1] in ("{", "[") else _BREAKS
    return set(breaks.split(text))


async def find_searches(
    inbox: MessageErasure, tenant: str, texts: frozenset[str], messages: Mapping[int, StoredMessage]
) -> FoundSearches:
    """Searches that name him, or that find nothing but the messages that are removed."""
    names, found = ErasedTexts(texts), FoundSearches()
    for one in await inbox.searches(tenant):
        found.known.add((one.kind, one.id))
        if any(map(names.found_in, one.texts)) or await _finds_only(inbox, tenant, one.words, messages):
            kept = found.views if one.kind == "view" else found.jobs if one.ended else found.open_jobs
            kept.append(one.id)
    return found


async def _finds_only(inbox: MessageErasure, tenant: str, words: str, messages: Mapping[int, StoredMessage]) -> bool:
    """Whether these words are in one of the messages, and in no other."""
    wanted = query_words(words)
    if not wanted or not any(contains_words(one.raw, one.charset, wanted) for one in messages.values()):
        return False
    return not await inbox.finds_others(tenant, words, messages.keys())


def _names_others(message: StoredMessage, numbers: set[str]) -> bool:
    """Whether a message that wrote nothing has a person beside him."""
    persons = len(_PERSON.findall(read(message.raw, message.charset)))
    return persons > 1 and not _qualified(message) <= numbers


def _qualified(message: StoredMessage) -> set[str]:
    """Identifiers with their authority."""
    return {number for number in patients_of(message.raw, message.charset) if "|" in number}
