"""What was meant: the nearest known name, code or url, as the end of a finding's text.

Each function returns `; did you mean 'x'?`, or "" when nothing known is near.  Case does not matter.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ipf.fhir import ucum
from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.valueset import Membership

_NEAR = 0.65
_LONGEST = 200
_MOST = 5000  # known names that are compared


def did_you_mean(found: str | None) -> str:
    """The end of a text that names `found`."""
    return f"; did you mean '{found}'?" if found else ""


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


def code_meant(members: Membership | None, system: str | None, code: str) -> str:
    """The code of a value set that is nearest to a code outside of it; also the code whose display this is."""
    if members is None:
        return ""
    if system == ucum.SYSTEM and not ucum.is_unit(code):
        meant = ucum.proposal(code)
        return did_you_mean(meant if meant and members.contains(system, meant) else None)
    listed = [(one, display) for url, one, display in members.members() if system is None or url == system]
    return did_you_mean(_of_concepts(code, listed) or _elsewhere(members, system, code))


def code_of_system_meant(terminology: Terminology, system: str, code: str) -> str:
    """The code of a code system that is nearest to an unknown one."""
    if system == ucum.SYSTEM:
        return did_you_mean(ucum.proposal(code))
    known = terminology.system(system)
    concepts = [] if known is None else [(one.code, one.display) for one in known.concepts.values()]
    return did_you_mean(_of_concepts(code, concepts))


def _of_concepts(code: str, concepts: list[tuple[str, str]]) -> str | None:
    displays = {display.casefold(): own for own, display in concepts[:_MOST] if display}
    return displays.get(code.casefold()) or nearest(code, (own for own, _ in concepts))


def _elsewhere(members: Membership, system: str | None, code: str) -> str | None:
    """The same code in the system that the value set takes it from."""
    if system is None:
        return None
    return next((f"{url}|{code}" for url, codes in members.codes.items() if url != system and code in codes), None)
