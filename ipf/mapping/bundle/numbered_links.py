"""References of a message that name a resource by an order number: a parent order, and the result of a parent order.

What arrives: the entries of a message, and what each is made from.  What leaves: `Entry.numbered`; the store replaces
them by the reference to the one resource that is meant (`rest.write.numbered_links`), else the number stays.

Source: HL7 v2.9 sections 4.5.3.26 (OBR-26), 4.5.3.29 (OBR-29), https://hl7.org/fhir/R4/references.html#logical
"""

from __future__ import annotations

from collections.abc import Sequence

from ipf.fhir.model.identifier import key_of
from ipf.mapping.bundle.parent_results import parent_of
from ipf.mapping.runtime.run import Run
from ipf.ports import Json
from ipf.ports.queries.entries import Entry, NumberedLink


def attach_numbered(entries: Sequence[Entry], run: Run) -> None:
    """Give each order and each result the parents that it names by number."""
    for entry in entries:
        resource = entry.resource or {}
        if entry.resource_type == "ServiceRequest":
            held = [one for one in resource.get("basedOn", ()) if _is_numbered(one)]
            entry.numbered = tuple([NumberedLink(one, "ServiceRequest", key_of(one["identifier"])) for one in held])
        elif entry.resource_type == "Observation":
            held = [one for one in resource.get("derivedFrom", ()) if _is_numbered(one)]
            entry.numbered = tuple([_of_result(one, resource, run) for one in held])


def _is_numbered(reference: Json) -> bool:
    return "identifier" in reference and "value" in reference["identifier"] and "reference" not in reference


def _of_result(reference: Json, observation: Json, run: Run) -> NumberedLink:
    """The parent result: of the order with this number the one with the code (PRL.1) and the sub-ID (PRL.2)."""
    parent = parent_of(run.made_from.get(id(observation), ()))
    return NumberedLink(reference, "Observation", key_of(reference["identifier"]), parent.code, parent.sub_id)
