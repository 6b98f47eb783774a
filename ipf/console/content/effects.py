"""What a message did, as people read it: what happened when, and what came of what.

What arrives: a message, and the answer of `GET /admin/messages/{id}/effects`.  What leaves: moments in the order of
time, and a tree: resource versions, the Subscriptions that each matched, the attempts to notify them.  No IO.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

GROUPED = 12
"""More resources than these are folded by type."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened.  `kind`: text `timeline.KIND`; `tone`: good, warn, bad or info; `detail`: may be ""."""

    at: str
    kind: str
    tone: str = "info"
    count: int = 1
    detail: str = ""


@dataclass(slots=True)
class Event:
    """A Subscription that matched a resource.  `attempts`: those of the engine's answer, oldest first."""

    subscription: str
    endpoint: str
    criteria: str
    number: int
    is_delivered: bool
    attempts: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def state(self) -> str:
        """delivered, failing or waiting."""
        if self.is_delivered:
            return "delivered"
        return "failing" if any(one["outcome"] == "failure" for one in self.attempts) else "waiting"


@dataclass(slots=True)
class Resource:
    """A version that the message wrote, with what it set off."""

    type: str
    id: str
    version: str
    action: str
    events: list[Event] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Group:
    """Resources of one type.  `is_open`: shown without a click."""

    type: str
    resources: tuple[Resource, ...]
    is_open: bool


def timeline(message: Mapping[str, Any], effects: Mapping[str, Any]) -> list[Moment]:
    """What happened to a message; what is still to come is at the end."""
    found = [Moment(message["received_at"], "received", detail=str(message.get("source_system") or ""))]
    if message.get("last_attempt_at") and message.get("last_error"):
        found.append(
            Moment(message["last_attempt_at"], "failed", "bad", message["attempt_count"], message["last_error"])
        )
    written: dict[str, int] = defaultdict(int)
    for one in effects["fhir_resources_created"]:
        written[one["written_at"]] += 1
    found += [Moment(at, "written", "good", count) for at, count in written.items()]
    if message.get("delivered_at"):
        setting = message.get("passed_through") or ""
        kind = "passed_through" if setting else "delivered"
        found.append(Moment(message["delivered_at"], kind, "good", detail=setting))
    for one in effects["notifications_fired"]:
        kind, tone = ("notified", "good") if one["outcome"] == "success" else ("not_notified", "bad")
        detail = " ".join(filter(None, (one["subscription_id"], one["error"] or "")))
        found.append(Moment(one["attempted_at"], kind, tone, detail=detail))
    found.sort(key=lambda one: one.at)
    if message.get("next_attempt_at") and message["status"] == "FAILED":
        kind, tone = ("next_in_vain", "bad") if message.get("permanent") else ("next", "warn")
        found.append(Moment(message["next_attempt_at"], kind, tone))
    return found


def groups(effects: Mapping[str, Any]) -> tuple[list[Group], list[Event]]:
    """The tree by type of resource, and the events whose resource is not among those of the message."""
    attempts: dict[tuple[str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for one in sorted(effects["notifications_fired"], key=lambda one: str(one["attempted_at"])):
        attempts[one["subscription_id"], one["event_number"]].append(one)
    resources = [
        Resource(one["resource_type"], one["id"], str(one["version_id"]), one["action"])
        for one in effects["fhir_resources_created"]
    ]
    newest = {f"{one.type}/{one.id}": one for one in resources}
    others: list[Event] = []
    for one in effects["subscriptions_matched"]:
        key = one["id"], one["event_number"]
        event = Event(one["id"], one["endpoint"] or "", one["criteria"] or "", one["event_number"], one["delivered"],
                      attempts[key])  # fmt: skip
        resource = newest.get(str(one["matched_resource"]).partition("/_history/")[0])
        (others if resource is None else resource.events).append(event)
    return _by_type(resources), others


def _by_type(resources: Sequence[Resource]) -> list[Group]:
    found: dict[str, list[Resource]] = defaultdict(list)
    for one in resources:
        found[one.type].append(one)
    few = len(resources) <= GROUPED
    return [
        Group(name, tuple(ones), few or (len(ones) <= GROUPED and any(one.events for one in ones)))
        for name, ones in found.items()
    ]
