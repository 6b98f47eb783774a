"""The entries of an Observation for `$lastn`: its subject, what it is, and its time, as one text.

The texts `subject LF kind LF time` sort by subject, then by kind, then by time.  `kind` is a digest: equal for
Observations with the same codings (without codes with the same text), categories and status, so that a search by these
decides once for all of a kind.  `time` has a fixed length, and is empty for
an Observation without one: the beginning of its effective time, of a Period without a beginning the end.

Source: https://hl7.org/fhir/R4/observation-operation-lastn.html
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

from ipf.fhir.model.dates import FOREVER
from ipf.ports.queries.index import DateEntry, TextEntry

OBSERVATION = "Observation"
LASTN = "$lastn"  # no code of a search parameter
SUBJECT, CODE, DATE = "subject", "code", "date"
OF_KIND = frozenset({CODE, "category", "status"})
"""The search parameters of which all Observations of a kind have the same values."""
SEPARATOR = "\n"


class LastnKey(NamedTuple):
    """What an entry says."""

    subject: str
    kind: str
    time: str


def lastn_entries(resource: dict[str, Any], texts: Iterable[TextEntry], dates: Iterable[DateEntry]) -> list[TextEntry]:
    """The entries of a resource, one for each form of its subject; `texts`, `dates`: its other entries."""
    if resource.get("resourceType") != OBSERVATION:
        return []
    subjects = {value for code, value in texts if code == SUBJECT}
    if not subjects:
        return []
    kind, time = _kind(resource, texts), _time(dates)
    return [(LASTN, SEPARATOR.join(LastnKey(subject, kind, time))) for subject in subjects]


def lastn_key(value: str) -> LastnKey:
    """What the value of an entry says."""
    return LastnKey(*value.split(SEPARATOR))


def lastn_key_of(resource: dict[str, Any], texts: Iterable[TextEntry], dates: Iterable[DateEntry]) -> LastnKey:
    """The key of an Observation by its reference; of one without a subject that of none."""
    subjects = sorted((value for code, value in texts if code == SUBJECT), key=lambda one: ("\t" in one, one))
    return LastnKey(subjects[0] if subjects else "", _kind(resource, texts), _time(dates))


def codes_of(resource: dict[str, Any], texts: Iterable[TextEntry]) -> list[str]:
    """What an Observation is grouped by: its codes with their systems, sorted; without codes its text or display."""
    found = sorted({value for code, value in texts if code == CODE and not value.startswith("\t")})
    if found:
        return found
    text = _text(resource.get("code"))
    return [SEPARATOR + text]  # no code begins with it


def _text(code: Any) -> str:
    """The text of a CodeableConcept, else its first display."""
    if type(code) is not dict:
        return ""
    codings = code.get("coding")
    displays = [one.get("display") for one in codings if type(one) is dict] if type(codings) is list else []
    return next((one for one in (code.get("text"), *displays) if type(one) is str and one), "")


def _kind(resource: dict[str, Any], texts: Iterable[TextEntry]) -> str:
    found = [*codes_of(resource, texts), *sorted(["\0".join(one) for one in texts if one[0] in OF_KIND])]
    return blake2b("\1".join(found).encode(errors="replace"), digest_size=16).hexdigest()


def _time(dates: Iterable[DateEntry]) -> str:
    times = [hi if lo <= -FOREVER else lo for code, lo, hi in dates if code == DATE]
    return time_text(max(times)) if times else ""


def time_text(time: int) -> str:
    """A time in microseconds since 1970 as the entries have it: texts sort as times do."""
    return f"{time + 2 * FOREVER:016x}"
