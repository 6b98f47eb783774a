"""FHIR resources as rows of elements, for people: paths, values, references; and the difference of two versions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST_REFERENCES = 200
_NO_RECORDS = ("Bundle", "Parameters", "OperationOutcome", "CapabilityStatement", "SubscriptionStatus")
_PATIENT = re.compile(r"Patient/[A-Za-z0-9\-.]{1,64}")
_REFERENCE = re.compile(r"[A-Z][A-Za-z]+/[A-Za-z0-9.-]{1,64}(?:/_history/[A-Za-z0-9.-]{1,64})?")
_VOLATILE = ("meta.versionId", "meta.lastUpdated")


@dataclass(frozen=True, slots=True)
class Row:
    """One primitive.  `path`: below the resource (`name[0].family`); `target`: of a reference to this server."""

    path: str
    value: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One element that differs between two versions; "" where a version does not have it."""

    path: str
    before: str
    after: str


def leaves(value: Any, path: str = "") -> list[tuple[str, str]]:
    """Path and text of each primitive below a value, in order."""
    if isinstance(value, dict):
        return [leaf for name, one in value.items() for leaf in leaves(one, f"{path}.{name}" if path else name)]
    if isinstance(value, list):
        return [leaf for number, one in enumerate(value) for leaf in leaves(one, f"{path}[{number}]")]
    return [(path, "true" if value is True else "false" if value is False else str(value))]


def rows(resource: Mapping[str, Any]) -> list[Row]:
    """The elements of a resource, without its type."""
    return [Row(path, text, _target(path, text)) for path, text in leaves(dict(resource)) if path != "resourceType"]


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """What differs, in the order of the newer version; what it lost stands at the end."""
    old, new = dict(leaves(dict(before))), dict(leaves(dict(after)))
    paths = [*new, *(path for path in old if path not in new)]
    found = (Change(path, old.get(path, ""), new.get(path, "")) for path in paths if path not in _VOLATILE)
    return [one for one in found if one.before != one.after]


def references_of(body: Any) -> list[str]:
    """The resources in an answer of the FHIR API, and the patients that they are about; at most MOST_REFERENCES."""
    resources = [one.get("resource") for one in body.get("entry") or ()] if isinstance(body, dict) else []
    found: dict[str, None] = {}
    for resource in [body, *resources]:
        if not isinstance(resource, dict) or "id" not in resource or resource.get("resourceType") in _NO_RECORDS:
            continue
        found[f"{resource['resourceType']}/{resource['id']}"] = None
        for name in ("subject", "patient", "beneficiary"):
            about = resource.get(name)
            reference = str(about.get("reference", "")) if isinstance(about, dict) else ""
            if _PATIENT.fullmatch(reference):
                found[reference] = None
    return list(found)[:MOST_REFERENCES]


def label(resource: Mapping[str, Any]) -> str:
    """What a person would call a resource: a name, a code, a status; "" for nothing of that."""
    names = resource.get("name")
    if isinstance(names, list) and names and isinstance(names[0], dict):
        name = names[0]
        return str(name.get("text") or " ".join([*name.get("given", []), name.get("family", "")]).strip())
    if isinstance(names, str):
        return names
    code = resource.get("code") or resource.get("type") or resource.get("class")
    code = code[0] if isinstance(code, list) and code else code
    if isinstance(code, dict):
        coding = (code.get("coding") or [code])[0]
        return str(code.get("text") or coding.get("display") or coding.get("code") or "")
    return str(resource.get("status") or "")


def _target(path: str, text: str) -> str:
    return text if path.endswith("reference") and _REFERENCE.fullmatch(text) else ""
