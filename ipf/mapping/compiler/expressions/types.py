"""The FHIR types of the items that FHIRPath in maps gets: of the item in focus, and of variables.

A kind that the compiler knows is the type.  An item of unknown kind has the type that the object in which it was found
gives it: the JSON name of a choice (`valueQuantity`), or the element of a resource.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipf.fhir.fhirpath.items.model import model
from ipf.fhir.fhirpath.items.nodes import SCALARS, FhirNode
from ipf.mapping.compiler.kinds import Kind
from ipf.mapping.compiler.scope import Origin
from ipf.mapping.runtime.run import Frame

Typed = Callable[[Frame, Any], Any]
"""Gives an item of a run its type."""


def fhir_name(kind: Kind) -> str:
    """The FHIR R4 type of a kind; empty if it has none."""
    return kind.name if kind.model == "fhir" and model().is_known(kind.name) else ""


def typed_reader(kind: Kind, origin: Origin) -> Typed:
    """What gives items of this kind, found at `origin`, their type."""
    name, (owner, element) = fhir_name(kind), origin
    if name:
        return lambda frame, item: typed(item, name)
    if kind.is_known or not owner:
        return lambda frame, item: item
    return lambda frame, item: typed(item, type_in(frame[owner], element))


def typed(item: Any, name: str) -> Any:
    """An item with its type; resources say theirs, and what is no JSON stays as it is."""
    if not name:
        return item
    if type(item) is FhirNode:
        return FhirNode(item.value, name, item.extra) if item.type is None else item
    if type(item) in SCALARS or (type(item) is dict and "resourceType" not in item):
        return FhirNode(item, name)
    return item


def type_in(owner: Any, element: str) -> str:
    """The type of an element of an object; empty if the object does not say it."""
    if type(owner) is not dict:
        return ""
    kind, types = owner.get("resourceType"), model()
    step = types.step(kind, element) if type(kind) is str else None
    if step is not None and step.type is not None:
        return step.type
    for key in owner:
        stated = str(key).removeprefix("_").removeprefix(element)
        for name in (stated, stated[:1].lower() + stated[1:]):
            if element + stated in (key, str(key)[1:]) and stated[:1].isupper() and types.is_known(name):
                return name
    return ""
