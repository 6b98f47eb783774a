"""Rules of R4 that a kept element must not break together with what the message says.

Source: https://hl7.org/fhir/R4/condition.html#invs (con-4, con-5), allergyintolerance.html#invs (ait-2),
encounter-definitions.html#Encounter.location.status
"""

from __future__ import annotations

from typing import Any

from ipf.ports import Json

_LEFT = frozenset(("finished", "cancelled", "entered-in-error"))
_IN_USE = frozenset(("active", "planned", "reserved"))
_ABATED = frozenset(("inactive", "resolved", "remission"))


def consistent(made: Json, sent: Json) -> Json:
    """The result of an update; `sent`: what the message says of it, which wins."""
    kind = made["resourceType"]
    if kind == "Encounter":
        return _without_bed(made, sent)
    if kind in ("Condition", "AllergyIntolerance"):
        return _without_status(made, sent)
    return made


def _without_bed(made: Json, sent: Json) -> Json:
    """A visit that has ended holds no bed."""
    if made.get("status") not in _LEFT or "location" not in made:
        return made
    said = sent.get("location", [])
    places = [one if one in said or one.get("status") not in _IN_USE else {**one, "status": "completed"}
              for one in made["location"]]  # fmt: skip
    return {**made, "location": places} if places != made["location"] else made


def _without_status(made: Json, sent: Json) -> Json:
    """What was entered in error has no clinical status; what has abated is not active."""
    error = "entered-in-error" in _codes(made.get("verificationStatus"))
    abated = [name for name in made if name.startswith("abatement")]
    drop: list[str] = []
    if error:
        drop.append("clinicalStatus")
    elif abated and not _codes(made.get("clinicalStatus")) & _ABATED:
        drop += ["clinicalStatus"] if "clinicalStatus" not in sent else [one for one in abated if one not in sent]
    return {name: value for name, value in made.items() if name not in drop} if drop else made


def _codes(concept: Any) -> set[str]:
    return {one.get("code", "") for one in concept.get("coding", ())} if type(concept) is dict else set()
