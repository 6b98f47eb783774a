"""The parts of a stored topic that have no effect on this server, as extensions of the topic.

Each is `urn:ipf:StructureDefinition/topic-unsupported` on the resource (SubscriptionTopic or Basic), with the place and
the reason as `valueString`.  They are written anew with each version; what a client sends under this URL is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipf.errors import Issue
from ipf.ports import Json

UNSUPPORTED = "urn:ipf:StructureDefinition/topic-unsupported"


def with_unsupported(resource: Json, issues: Sequence[Issue]) -> Json:
    """The resource with one extension for each part that has no effect."""
    others = [one for one in resource.get("extension", ()) if not _is_ours(one)]
    found = [{"url": UNSUPPORTED, "valueString": f"{issue.place}: {issue.text}"} for issue in issues]
    if not found and len(others) == len(resource.get("extension", ())):
        return resource
    without = {name: value for name, value in resource.items() if name != "extension"}
    return {**without, "extension": [*others, *found]} if others or found else without


def unsupported_in(resource: Json) -> Iterator[tuple[str, str]]:
    """(place, reason) of each part of a stored topic that has no effect."""
    for one in resource.get("extension", ()):
        if _is_ours(one):
            place, _, reason = str(one.get("valueString", "")).partition(": ")
            yield place, reason


def _is_ours(extension: object) -> bool:
    return isinstance(extension, dict) and extension.get("url") == UNSUPPORTED
