"""In what two records of a Patient name different persons: family name, birth date, sex.

What arrives: the Patient of a message and a stored one.  What leaves: the names of what differs, without values.  Only
what both of them say is compared.  A family name is compared without case, accents, blanks and hyphens; a previous one
(use `old` or `maiden`) counts too.  A birth date may be the year alone.  An unknown sex says nothing.

Source: https://hl7.org/fhir/R4/patient.html, docs/explanation/identity.md
"""

from __future__ import annotations

from collections.abc import Collection

from ipf.fhir.index.entries import normalise
from ipf.ports import Json

FAMILY_NAME, BIRTH_DATE, SEX = "family name", "birth date", "sex"
_UNKNOWN = "unknown"


def differing(patient: Json, *records: Json) -> tuple[str, ...]:
    """In what a Patient differs from another one, of which there may be several records: none of them agrees."""
    found = (
        (FAMILY_NAME, differ(families(patient), set().union(*map(families, records)))),
        (BIRTH_DATE, _differs_from_each(_birth(patient), [one for one in map(_birth, records) if one])),
        (SEX, differ(_sex(patient), set().union(*map(_sex, records)))),
    )
    return tuple([name for name, is_other in found if is_other])


def differ(one: Collection[str], other: Collection[str]) -> bool:
    """Whether both sides say something, and nothing of it agrees."""
    return bool(one) and bool(other) and not set(one) & set(other)


def births_differ(one: Json, other: Json) -> bool:
    """Whether both have a birth date and they differ."""
    return _differs_from_each(_birth(one), [birth] if (birth := _birth(other)) else [])


def _birth(patient: Json) -> str:
    """The birth date; empty when there is none."""
    birth = patient.get("birthDate")
    return birth if isinstance(birth, str) else ""


def _differs_from_each(birth: str, others: list[str]) -> bool:
    """Whether a birth date is known, and no other one agrees; one of two may be the year alone."""
    if not birth or not others:
        return False
    return not any(one.startswith(birth) or birth.startswith(one) for one in others)


def families(patient: Json, without: Collection[str] = ()) -> set[str]:
    """The family names in a form to compare; `without`: uses of names that do not count."""
    names = patient.get("name")
    texts = [
        one.get("family")
        for one in (names if type(names) is list else ())
        if type(one) is dict and one.get("use") not in without
    ]
    plain = ("".join(filter(str.isalnum, normalise(one))) for one in texts if isinstance(one, str))
    return {one for one in plain if one}


def _sex(patient: Json) -> set[str]:
    gender = patient.get("gender")
    return {gender} if isinstance(gender, str) and gender != _UNKNOWN else set()
