"""What the sets of segments of a message replace: stored sets, and the resources that no set has any more.

The sources of a Patient (or an Encounter) say for each segment and sender, and for each account or visit of its own,
which resources the set has.  A set of all replaces those of accounts and visits of its sender.  A resource that a
sender leaves out ends when no other sender has it in a set.  It keeps its content: a Coverage becomes `cancelled`, an
allergy or a diagnosis `inactive`.  Told again it is active again.

Source: HL7 v2.9 section 2.10.4, https://hl7.org/fhir/R4/valueset-fm-status.html
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ipf.ports import Json
from ipf.ports.queries.field_sources import SegmentSet
from ipf.rest.identity.elements import at
from ipf.rest.identity.stored_sources import SETS, read_sources, text_of

Sets = Mapping[str, list[str]]
"""By segment and sender (`IN1 HIS`), and scope (`IN1 HIS|visit V1`), the ids of the resources."""

MOST_MEMBERS = 200
"""Resources that a set remembers.  Further ones are stored, and never end by omission."""

_CLINICAL = "http://terminology.hl7.org/CodeSystem/{}-clinical"
_ENDED: Mapping[str, tuple[str, str, Any, str]] = {
    "Coverage": ("beneficiary", "status", "cancelled", ""),
    "AllergyIntolerance": ("patient", "clinicalStatus", _CLINICAL.format("allergyintolerance"), ""),
    "Condition": ("encounter", "clinicalStatus", _CLINICAL.format("condition"), "DG1-21"),
}
"""By type: the element that names what it is of, its status, the value (or the code system of `inactive`), and the
field of which a later message takes the status back."""


def sets_in(sources: str) -> dict[str, list[str]]:
    """The sets of stored sources."""
    found: dict[str, list[str]] = read_sources(sources).get(SETS) or {} if f'"{SETS}"' in sources else {}
    return found


def with_sets(sources: str, sets: Sets) -> str:
    """Stored sources with these sets."""
    return text_of(read_sources(sources) | {SETS: {name: ids for name, ids in sets.items() if ids}})


def name_of(told: SegmentSet) -> str:
    """The name of a set in stored sources."""
    return f"{told.segment} {told.sender}|{told.scope}" if told.scope else f"{told.segment} {told.sender}"


def replaced(sets: Sets, told: SegmentSet, ids: Iterable[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The sets after a message told one, with the resources `ids`; and the ids that no set of the segment has now."""
    name, before, now = name_of(told), dict[str, None](), list(dict.fromkeys(ids))
    others = dict(sets)
    for other in [one for one in sets if one == name or (told.is_whole and one.startswith(f"{name}|"))]:
        before.update(dict.fromkeys(others.pop(other)))
    if not told.is_whole:
        now = list(dict.fromkeys([*before, *now]))
    held = {one for other, ids in others.items() if other.startswith(f"{told.segment} ") for one in ids} | {*now}
    return {**others, name: now[-MOST_MEMBERS:]}, [one for one in before if one not in held]


def together(sets: Sets, further: Sets) -> dict[str, list[str]]:
    """The sets of a Patient into which another one was merged."""
    names = dict.fromkeys((*sets, *further))
    both = {name: list(dict.fromkeys([*further.get(name, ()), *sets.get(name, ())])) for name in names}
    return {name: ids[-MOST_MEMBERS:] for name, ids in both.items()}


def apart(sets: Sets, others: Sets) -> dict[str, list[str]]:
    """The sets without the resources of a Patient that was merged into this one, and is no longer."""
    left = {one for ids in others.values() for one in ids}
    return {name: [one for one in ids if one not in left] for name, ids in sets.items()}


def ended(resource: Json, sources: str, owner: str) -> tuple[Json, str] | None:
    """The resource with the status of one that ended, and its sources; None: it is of another owner or not active.

    `owner`: `Patient/1`, `Encounter/1`.
    """
    of, status, value, field = _ENDED[resource["resourceType"]]
    if at(resource, f"{of}.reference") != owner or not _is_active(resource, status):
        return None
    if status != "status":
        value = {"coding": [{"system": value, "code": "inactive"}]}
    return {**resource, status: value}, text_of(read_sources(sources) | {status: field})


def _is_active(resource: Json, status: str) -> bool:
    if status == "status":
        return bool(resource.get(status) == "active")
    if "abatementDateTime" in resource or "abatementString" in resource:
        return False
    codings = resource.get(status, {}).get("coding", [{"code": "active"}])
    is_error = any(one.get("code") == "entered-in-error" for one in at(resource, "verificationStatus.coding") or ())
    return not is_error and any(one.get("code") == "active" for one in codings)
