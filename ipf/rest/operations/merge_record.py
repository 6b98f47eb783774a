"""What a merge of two Patients changes, and the Provenance that records it.  Pure functions.

The Provenance of a merge has everything that its undoing needs, so that old versions may be deleted:

    target      each resource that was changed, with its new version; the extensions `CHANGE` say what was changed: the
                path of a reference that was moved (`subject`, `participant[1].actor`), `link`, `active` (was absent),
                `active=true` (was true) or `content` (replaced by the caller, not restored); the extensions
                `IDENTIFIER` are the identifiers that were copied
    entity      `removal`: the source Patient before; `revision`: the target Patient before
    occurred    the period in which the merge stands: it ends when the merge is undone

Sources: https://hl7.org/fhir/R4/provenance.html; ISO 21089 lifecycle events `merge` and `unmerge`
(https://terminology.hl7.org/CodeSystem-iso-21089-lifecycle.html)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ipf.fhir.model.bundle import instant
from ipf.fhir.model.reference import parse_reference, relative_form
from ipf.ports import Json, Version

CHANGE = "urn:ipf:StructureDefinition/merge-change"
IDENTIFIER = "urn:ipf:StructureDefinition/merge-identifier"
LINK, ACTIVE, WAS_ACTIVE, CONTENT = "link", "active", "active=true", "content"
REPLACED_BY, REPLACES = "replaced-by", "replaces"

_LIFECYCLE = "http://terminology.hl7.org/CodeSystem/iso-21089-lifecycle"
_MERGE, _UNMERGE = "merge", "unmerge"
_TITLES = {_MERGE: "Merge Record Lifecycle Event", _UNMERGE: "Unmerge Record Lifecycle Event"}
_AGENTS = frozenset({"Practitioner", "PractitionerRole", "RelatedPerson", "Patient", "Device", "Organization"})

Path = tuple[str | int, ...]


# -- references


def references_to(value: Any, reference: str, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    """The place of each Reference with this text, or by URL to this resource, and the object that has it."""
    if type(value) is list:
        for position, item in enumerate(value):
            yield from references_to(item, reference, (*path, position))
    elif type(value) is dict:
        text = value.get("reference")
        if type(text) is str and relative_form(text) == reference:
            yield path, value
        for name, item in value.items():
            yield from references_to(item, reference, (*path, name))


def move_references(resource: Json, source: str, target: str) -> list[str]:
    """Replace references to `source` by `target`, in place; the paths of what was moved.

    A path has no positions unless the resource refers to `target` at the same element too: the order of a list may
    change before the merge is undone.
    """
    before = {_text(path, indexed=False) for path, _ in references_to(resource, target)}
    paths: dict[str, None] = {}
    for path, holder in list(references_to(resource, source)):
        holder["reference"] = target
        paths[_text(path, indexed=_text(path, indexed=False) in before)] = None
    return list(paths)


def move_back(resource: Json, paths: Collection[str], target: str, source: str) -> bool:
    """Replace references to `target` at these paths by `source`, in place; whether there are any."""
    holders = [
        holder
        for path, holder in references_to(resource, target)
        if _text(path, indexed=False) in paths or _text(path, indexed=True) in paths
    ]
    for holder in holders:
        holder["reference"] = source
    return bool(holders)


def _text(path: Path, *, indexed: bool) -> str:
    """`participant[1].actor`, or `participant.actor`."""
    text = ""
    for part in path:
        if isinstance(part, str):
            text += f".{part}" if text else part
        elif indexed:
            text += f"[{part}]"
    return text


# -- Patients


def links(patient: Json, kind: str) -> list[str]:
    """References in `Patient.link` of one type, such as `replaced-by`."""
    found = [one for one in patient.get("link") or () if isinstance(one, dict) and one.get("type") == kind]
    others = [(one.get("other") or {}).get("reference") for one in found]
    return [one for one in others if isinstance(one, str)]


def replace_source(source: Json, target: str) -> list[str]:
    """Mark the source Patient as replaced by `target`, in place; what was changed."""
    changes = []
    if target not in links(source, REPLACED_BY):
        source["link"] = [*(source.get("link") or ()), {"other": {"reference": target}, "type": REPLACED_BY}]
        changes.append(LINK)
    if source.get("active") is not False:
        changes.append(WAS_ACTIVE if source.get("active") else ACTIVE)
        source["active"] = False
    return changes


def replace_target(target: Json, source: Json, reference: str) -> tuple[list[str], list[Json]]:
    """Link the target Patient to `source` and copy its identifiers as old ones, in place.

    Returns what was changed, and the copied identifiers.
    """
    changes, copied = [], []
    if reference not in links(target, REPLACES):
        target["link"] = [*(target.get("link") or ()), {"other": {"reference": reference}, "type": REPLACES}]
        changes.append(LINK)
    known = [_meaning(one) for one in target.get("identifier") or ()]
    for one in source.get("identifier") or ():
        if one.get("value") and _meaning(one) not in known:
            known.append(_meaning(one))
            copied.append({"use": "old", **{name: value for name, value in one.items() if name != "use"}})
    if copied:
        target["identifier"] = [*(target.get("identifier") or ()), *copied]
    return changes, copied


def _meaning(identifier: Json) -> Any:
    """System, value and type of an identifier."""
    codings = (identifier.get("type") or {}).get("coding") or ()
    return identifier.get("system"), identifier.get("value"), [(one.get("system"), one.get("code")) for one in codings]


def restore_patient(patient: Json, changes: Sequence[str], copied: Sequence[Json], kind: str, other: str) -> None:
    """Undo changes of a merge in a Patient, in place.  `kind`, `other`: of the link that the merge added."""
    if LINK in changes:
        kept = [one for one in patient.get("link") or () if not _is_link(one, kind, other)]
        _set(patient, "link", kept)
    if copied:  # a message may have brought a number again, without use `old`
        meanings = [_meaning(one) for one in copied]
        kept = [one for one in patient.get("identifier") or () if _meaning(one) not in meanings]
        _set(patient, "identifier", kept)
    if patient.get("active") is False:
        if WAS_ACTIVE in changes:
            patient["active"] = True
        elif ACTIVE in changes:
            del patient["active"]


def _is_link(link: Json, kind: str, other: str) -> bool:
    return link.get("type") == kind and (link.get("other") or {}).get("reference") == other


def _set(patient: Json, name: str, items: list[Json]) -> None:
    if items:
        patient[name] = items
    else:
        patient.pop(name, None)


# -- the record


@dataclass(frozen=True, slots=True)
class Changed:
    """A resource that a merge changes: its version before, what is changed, the identifiers that are copied."""

    before: Version
    changes: Sequence[str]
    copied: Sequence[Json] = ()


@dataclass(frozen=True, slots=True)
class Restoration:
    """What a record says about one resource."""

    resource_type: str
    id: str
    changes: tuple[str, ...]
    copied: tuple[Json, ...]


def merge_record(
    source: Version, target: Version, changed: Sequence[Changed], who: str, reason: str, now: datetime
) -> Json:
    """The Provenance of one transaction of a merge.  `source`, `target`: the versions before."""
    targets = [_target(one) for one in changed]
    named = {(one.before.resource_type, one.before.id) for one in changed}
    targets += [
        {"reference": f"Patient/{one.id}"} for one in (source, target) if (one.resource_type, one.id) not in named
    ]
    return {
        "resourceType": "Provenance",
        "target": targets,
        "occurredPeriod": {"start": instant(now)},
        **_who_and_why(_MERGE, who, reason, now),
        "entity": [
            {"role": "removal", "what": {"reference": _versioned(source, 0)}},
            {"role": "revision", "what": {"reference": _versioned(target, 0)}},
        ],
    }


def unmerge_record(
    source: Version, target: Version, records: Sequence[str], who: str, reason: str, now: datetime
) -> Json:
    """The Provenance of an undone merge.  `records`: ids of the Provenances of the merge."""
    return {
        "resourceType": "Provenance",
        "target": [{"reference": f"Patient/{one.id}"} for one in (source, target)],
        "occurredDateTime": instant(now),
        **_who_and_why(_UNMERGE, who, reason, now),
        "entity": [{"role": "source", "what": {"reference": f"Provenance/{one}"}} for one in records],
    }


def _who_and_why(code: str, who: str, reason: str, now: datetime) -> Json:
    literal = parse_reference(who)
    known = literal is not None and literal.resource_type in _AGENTS
    made: Json = {"recorded": instant(now)}
    if reason:
        made["reason"] = [{"text": reason}]
    made["activity"] = {"coding": [{"system": _LIFECYCLE, "code": code, "display": _TITLES[code]}]}
    made["agent"] = [{"who": {"reference": who} if known else {"display": who}}]
    return made


def _target(changed: Changed) -> Json:
    extensions: list[Json] = [{"url": CHANGE, "valueString": one} for one in changed.changes]
    extensions += [{"url": IDENTIFIER, "valueIdentifier": one} for one in changed.copied]
    return {"extension": extensions, "reference": _versioned(changed.before, 1)}


def _versioned(version: Version, later: int) -> str:
    return f"{version.resource_type}/{version.id}/_history/{version.version_id + later}"


def is_standing(record: Json, source: str, target: str) -> bool:
    """Whether a Provenance records a merge of these two Patients that was not undone."""
    codings = (record.get("activity") or {}).get("coding") or ()
    if not any((one.get("system"), one.get("code")) == (_LIFECYCLE, _MERGE) for one in codings):
        return False
    roles = {one.get("role"): _bare((one.get("what") or {}).get("reference")) for one in record.get("entity") or ()}
    return roles == {"removal": source, "revision": target} and "end" not in (
        record.get("occurredPeriod") or {"end": 1}
    )


def ended(record: Json, now: datetime) -> Json:
    """The record of a merge that is undone now."""
    return {**record, "occurredPeriod": {**record["occurredPeriod"], "end": instant(now)}}


def restorations(record: Json) -> list[Restoration]:
    """What undoing a merge has to restore, in the order of the record."""
    found = []
    for one in record.get("target") or ():
        literal = parse_reference(one.get("reference") or "")
        extensions = one.get("extension") or ()
        if literal is not None and extensions:
            changes = tuple(str(each.get("valueString")) for each in extensions if each.get("url") == CHANGE)
            copied = tuple(each.get("valueIdentifier") for each in extensions if each.get("url") == IDENTIFIER)
            found.append(Restoration(literal.resource_type, literal.id, changes, copied))
    return found


def _bare(reference: object) -> str:
    """A reference without its version."""
    literal = parse_reference(reference) if isinstance(reference, str) else None
    return "" if literal is None else str(literal)
