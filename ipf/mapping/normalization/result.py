"""The resources of one polled row, normalized, as the entries of a transaction.

What arrives: the resources that the source sent, or that a map of its profile made.  What leaves: entries for
`bundle.transaction`, with a Provenance that targets them, and notes.  The same row always gives the same entries.
"""

from __future__ import annotations

from datetime import datetime

from ipf.errors import Category, Problem
from ipf.mapping.bundle.identity import BY_IDENTIFIER, CREATE_ONCE, RULES
from ipf.mapping.normalization.extensions import stripped
from ipf.mapping.normalization.names import has_identifiers, named
from ipf.mapping.normalization.provenance import provenance
from ipf.mapping.normalization.references import each_reference, with_own_references
from ipf.mapping.normalization.us_core import claimed
from ipf.mapping.runtime.run import Run
from ipf.ports import Json
from ipf.ports.messages.sources import FHIR_REST, PolledSource

NORMALIZATION = "urn:ipf:normalization"
"""Canonical that stands for the built-in normalization, where the profile has no map."""


def normalize(bundle: Json, run: Run, source: PolledSource, source_id: str, fetched_at: datetime) -> list[str]:
    """Normalize a transaction Bundle in place; returns notes.  Problem MAPPING names entry and rule."""
    notes: list[str] = []
    entries = bundle.setdefault("entry", [])
    made = [entry["resource"] for entry in entries if isinstance(entry.get("resource"), dict)]
    for number, resource in enumerate(made):
        place = f"Bundle.entry[{number}].resource"
        if source.protocol == FHIR_REST:
            notes += _normalized(resource, source, place)
        else:
            each_reference(resource, source.base_url, _refuse)
    for entry in entries:
        resource = entry.get("resource")
        if isinstance(resource, dict) and "request" not in entry and _is_shared(resource):
            entry["request"] = {"method": "PUT", "url": BY_IDENTIFIER}
    if made:
        entries.append({"resource": _about(made, run, provenance(source, source_id, fetched_at))})
    return notes


def _normalized(resource: Json, source: PolledSource, place: str) -> list[str]:
    """One resource.  Profiles are claimed while references are as sent, so that a definition can check them."""
    urls = stripped(resource, source.strip, place)
    notes = [f"the extension {url} is removed" for url in dict.fromkeys(urls)]
    notes += claimed(resource)
    _own_meta(resource, source)
    notes += with_own_references(resource, source)
    named(resource, source)
    return notes


def _own_meta(resource: Json, source: PolledSource) -> None:
    """Version and time are those of the store; `meta.source` says where it is from."""
    held = resource.get("meta")
    meta = {name: one for name, one in (held if isinstance(held, dict) else {}).items()
            if name not in ("versionId", "lastUpdated", "source")}  # fmt: skip
    if "id" in resource:
        meta["source"] = f"{source.base_url}/{resource['resourceType']}/{resource['id']}"
    if meta:
        resource["meta"] = meta
    else:
        resource.pop("meta", None)


def _is_shared(resource: Json) -> bool:
    """Whether it is reference data, which a source states for itself: it is updated, not only created."""
    resource_type = resource["resourceType"]
    return RULES.get(resource_type) == CREATE_ONCE and has_identifiers(resource_type) and "id" not in resource


def _about(made: list[Json], run: Run, statement: Json) -> Json:
    for resource in made:
        target = {"reference": run.urn(resource)}
        run.references.append((target, "reference", resource))
        statement["target"].append(target)
    return statement


def _refuse(reference: Json, resource_type: str, number: str) -> None:
    text = f"a literal reference to {resource_type} of the source names another resource here; refer to an entry"
    raise Problem(Category.MAPPING, f"{text}, or to {resource_type}?identifier=...")
