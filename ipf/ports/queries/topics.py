"""A subscription topic as records: triggers, allowed filters, and notification shapes.

`ipf/fhir/topics` reads them from a SubscriptionTopic and evaluates triggers.

Source: https://hl7.org/fhir/R4B/subscriptiontopic.html, https://hl7.org/fhir/R5/subscriptiontopic.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ipf.ports.queries.search import Include, Query

INTERACTIONS = frozenset({"create", "update", "delete"})


class ResourceTest(Protocol):
    """A FHIRPath expression with a Boolean result."""

    def test(self, focus: Any, variables: Mapping[str, Any] = ..., /) -> bool:
        """The result for `focus` with these `%variables`."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Changes of one resource type.

    `previous`, `current`: searches on the resource before and after the change, None = no condition.  `on_create`,
    `on_delete`: the result where there is no resource before or after.  `needs_both`: both searches must match, not
    only one.  `expression`: FHIRPath that must be true of the resource, with `%current` and `%previous`.
    `place`: in the topic.
    """

    resource_type: str
    interactions: frozenset[str] = INTERACTIONS
    previous: Query | None = None
    current: Query | None = None
    on_create: bool = False
    on_delete: bool = False
    needs_both: bool = False
    expression: ResourceTest | None = None
    place: str = "resourceTrigger[0]"


@dataclass(frozen=True, slots=True)
class Filter:
    """A search parameter that subscriptions may filter by; `resource_type` "" = every type that has it.

    `modifiers`, `comparators`: the allowed ones; None = all.
    """

    resource_type: str
    parameter: str
    modifiers: frozenset[str] | None = None
    comparators: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Topic:
    """A served topic.  `shapes`: by resource type, the includes of its notification shape.

    `version_id`: `meta.versionId` of its resource; "" = not stored yet.
    """

    url: str
    version: str
    title: str
    triggers: tuple[Trigger, ...]
    filters: tuple[Filter, ...] = ()
    shapes: Mapping[str, tuple[Include, ...]] | None = None
    version_id: str = ""

    @property
    def resource_types(self) -> tuple[str, ...]:
        """The resource types of its triggers, each once."""
        return tuple(dict.fromkeys(trigger.resource_type for trigger in self.triggers))

    def matches_canonical(self, canonical: str) -> bool:
        """Whether a canonical, with or without version, refers to this topic."""
        url, bar, version = canonical.partition("|")
        return url == self.url and (not bar or version == self.version)
