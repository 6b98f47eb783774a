"""References of a source: none is stored as it is, since `Patient/7` is another patient here.

- To a type that the source fetches too: a conditional reference, which the store resolves.  While there is no such
  resource, the message waits and is tried again.
- To any other type: a logical reference, that is an identifier without a resource.
- To a resource of the same result, to contained resources, and to other servers: unchanged.

Source: https://hl7.org/fhir/R4/references.html, https://hl7.org/fhir/R4/http.html#transaction
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ipf.fhir.model.definitions import definitions
from ipf.mapping.normalization.names import identifier_of, reference_to
from ipf.ports import Json
from ipf.ports.messages.sources import PolledSource

_RELATIVE = re.compile(r"([A-Z][A-Za-z]+)/([A-Za-z0-9\-.]{1,64})(?:/_history/[A-Za-z0-9\-.]{1,64})?")

Change = Callable[[Json, str, str], None]
"""Changes a Reference to a resource of the source; type and id."""


def each_reference(value: Any, base_url: str, change: Change) -> None:
    """Call `change` for each Reference in `value` to a resource of the server at `base_url`."""
    if isinstance(value, list):
        for one in value:
            each_reference(one, base_url, change)
    elif isinstance(value, dict):
        target = value.get("reference")
        if isinstance(target, str):
            found = _RELATIVE.fullmatch(target.removeprefix(f"{base_url}/"))
            if found is not None and definitions().is_a(found[1], "Resource"):
                change(value, found[1], found[2])
        for one in value.values():
            if isinstance(one, (dict, list)):
                each_reference(one, base_url, change)


def with_own_references(resource: Json, source: PolledSource) -> list[str]:
    """Change the references of a resource in place; returns what was done with each."""
    notes: list[str] = []

    def change(reference: Json, resource_type: str, number: str) -> None:
        if resource_type.lower() in source.fetched_types:
            reference["reference"] = reference_to(source, resource_type, number)
            notes.append(f"a reference to {resource_type} is resolved by its identifier")
            return
        del reference["reference"]
        reference["type"] = resource_type
        reference.setdefault("identifier", identifier_of(source, resource_type, number))
        notes.append(f"a reference to {resource_type}, which is not fetched, names its identifier only")

    each_reference(resource, source.base_url, change)
    return notes
