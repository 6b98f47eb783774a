"""Reads the SubscriptionTopic from the extensions of an R4 Basic, as the R4 Backport guide defines it.

Extensions are named `.../StructureDefinition/extension-SubscriptionTopic.<element>` under `http://hl7.org/fhir/4.3/` or
`5.0/`; inner ones by the name of the element alone.  Both prefixes occur and mean the same.

Source: http://hl7.org/fhir/uv/subscriptions-backport (1.2), "Representing topics as Basic"
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ipf.fhir.model.definitions import definitions
from ipf.ports import Json

TOPIC = "SubscriptionTopic"
TOPIC_TYPES = frozenset({TOPIC, "Basic"})
"""Resource types that may be or contain a topic."""

CODE_SYSTEM = "http://hl7.org/fhir/fhir-types"
_NAME = re.compile(r"http://hl7\.org/fhir/[\d.]+/StructureDefinition/extension-SubscriptionTopic\.(\w+)")


def topic_in(resource: Json | None) -> Json | None:
    """The SubscriptionTopic that a resource is or contains; None for any other resource, or None."""
    if resource is None:
        return None
    if resource.get("resourceType") == TOPIC:
        return resource
    if resource.get("resourceType") != "Basic" or not _is_coded(resource):
        return None
    named = []
    for extension in (*resource.get("extension", ()), *resource.get("modifierExtension", ())):
        found = _NAME.fullmatch(str(extension.get("url")))
        if found is not None:
            named.append((found[1], extension))
    return {"resourceType": TOPIC, "meta": resource.get("meta", {}), **_members(TOPIC, named)}


def _is_coded(resource: Json) -> bool:
    codings = resource.get("code", {}).get("coding", ())
    return any(one.get("system") == CODE_SYSTEM and one.get("code") == TOPIC for one in codings)


def _members(path: str, named: Iterable[tuple[str, Json]]) -> Json:
    """Extensions by element name as members: lists where the type has lists."""
    found: Json = {}
    for name, extension in named:
        element = definitions().element(path, name)
        if element is None:
            continue  # such as `id`, or an element of a later version
        value = _value(element.types[0], extension)
        if value is None:
            continue
        if element.many:
            found.setdefault(name, []).append(value)
        else:
            found[name] = value
    return found


def _value(path: str, extension: Json) -> Any:
    inner = extension.get("extension")
    if inner:
        return _members(path, ((str(one.get("url")).rpartition(".")[2], one) for one in inner))
    return next((value for name, value in extension.items() if name.startswith("value")), None)
