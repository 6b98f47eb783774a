"""What was meant: the nearest known name, code or url, for a finding to propose; None when nothing known is near."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import lru_cache

from ipf.fhir import ucum
from ipf.fhir.profiles.library import own_urls
from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.valueset import Membership

_NEAR = 0.65
_LONGEST = 200
_MOST = 1000  # known names that are compared


def nearest(word: str, known: Iterable[str], near: float = _NEAR) -> str | None:
    """The known name that is nearest to a word; None when none is near, or the word is known."""
    if not word or len(word) > _LONGEST:
        return None
    names = [one for one, _ in zip(known, range(_MOST), strict=False)]
    if word in names:
        return None
    folded = word.casefold()
    same = next((one for one in names if one.casefold() == folded), None)
    found = same or next(iter(difflib.get_close_matches(word, names, 1, near)), None)
    if found is None:
        lowered = {one.casefold(): one for one in names}
        found = next((lowered[one] for one in difflib.get_close_matches(folded, lowered, 1, near)), None)
    return found


def code_meant(members: Membership | None, system: str | None, code: str) -> str | None:
    """The code of a value set that is nearest to a code outside of it; also the code whose display this is."""
    if members is None:
        return None
    if system == ucum.SYSTEM and not ucum.is_unit(code):
        meant = ucum.proposal(code)
        return meant if meant and members.contains(system, meant) else None
    listed = [(one, display) for url, one, display in members.members() if system is None or url == system]
    return _of_concepts(code, listed) or _elsewhere(members, system, code)


def code_of_system_meant(terminology: Terminology, system: str, code: str) -> str | None:
    """The code of a code system that is nearest to an unknown one."""
    if system == ucum.SYSTEM:
        return ucum.proposal(code)
    known = terminology.system(system)
    concepts = [] if known is None else [(one.code, one.display) for one in known.concepts.values()]
    return _of_concepts(code, concepts)


def _of_concepts(code: str, concepts: list[tuple[str, str]]) -> str | None:
    displays = {display.casefold(): own for own, display in concepts[:_MOST] if display}
    return displays.get(code.casefold()) or nearest(code, (own for own, _ in concepts))


def _elsewhere(members: Membership, system: str | None, code: str) -> str | None:
    """The same code in the system that the value set takes it from."""
    if system is None:
        return None
    return next((f"{url}|{code}" for url, codes in members.codes.items() if url != system and code in codes), None)


_SYSTEMS = """
http://loinc.org 2.16.840.1.113883.6.1 loinc.com loinc ln lnc
http://snomed.info/sct 2.16.840.1.113883.6.96 snomed.info snomed.info/id snomed.org/sct snomed snomedct snomed-ct sct
http://unitsofmeasure.org 2.16.840.1.113883.6.8 ucum ucum.org unitsofmeasure.org/ucum
http://www.nlm.nih.gov/research/umls/rxnorm 2.16.840.1.113883.6.88 rxnorm rxnav.nlm.nih.gov
http://hl7.org/fhir/sid/icd-10-cm 2.16.840.1.113883.6.90 icd-10-cm icd10cm i10
http://hl7.org/fhir/sid/icd-10 2.16.840.1.113883.6.3 icd-10 icd10
http://hl7.org/fhir/sid/icd-9-cm 2.16.840.1.113883.6.103 icd-9-cm icd9cm i9
http://hl7.org/fhir/sid/cvx 2.16.840.1.113883.12.292 cvx
http://hl7.org/fhir/sid/ndc 2.16.840.1.113883.6.69 ndc
http://www.ama-assn.org/go/cpt 2.16.840.1.113883.6.12 cpt cpt4
"""
"""The url of a code system, its OID, and other ways in which it is written."""
_SCHEME = re.compile(r"(https?://)?(www\.)?")


@lru_cache(maxsize=1000)
def system_meant(system: str) -> str | None:
    """The url of a well-known code system that is written in another way: by its name, its OID, with `https` or `/`."""
    if system in _system_names().values():
        return None
    return _system_names().get(_bare(system))


@lru_cache(maxsize=1)
def _system_names() -> dict[str, str]:
    rows = (row.split() for row in _SYSTEMS.strip().splitlines())
    return {_bare(name): row[0] for row in rows for name in row}


def _bare(url: str) -> str:
    return _SCHEME.sub("", url.lower().removeprefix("urn:oid:"), count=1).rstrip("/")


@lru_cache(maxsize=1000)
def profile_meant(url: str) -> str | None:
    """The profile of the shipped guides whose url is nearest."""
    bare = url.partition("|")[0]
    return nearest(bare, own_urls("r4", "us-core", "backport", "balp"), 0.9) if len(bare) > 20 else None
