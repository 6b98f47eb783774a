"""`/topics`: the SubscriptionTopics with their triggers: what fires, and what subscribers may filter by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipf.console.serving.web import Route, View
from ipf.ports import Answer
from ipf.wire.admin.route import Role

_MOST = 200
_UNSUPPORTED = "urn:ipf:StructureDefinition/topic-unsupported"
_INTERACTIONS = ("create", "update", "delete")


async def topics(view: View) -> Answer:
    """All topics by URL, with the subscriptions that name them."""
    bundle = await view.fhir("/SubscriptionTopic", [("_count", str(_MOST))])
    health = await view.get("/admin/subscriptions/health", {"tenant": view.parameters.get("tenant")})
    found = [entry["resource"] for entry in bundle.get("entry", ()) if entry.get("search", {}).get("mode") != "outcome"]
    topics = sorted((described(one) for one in found), key=lambda one: str(one["url"]))
    users = {one["url"]: [item for item in health["items"] if _names(item["criteria"], one["url"])] for one in topics}
    return view.page("topics.html", topics=topics, users=users)


def described(topic: Mapping[str, Any]) -> dict[str, Any]:
    """A topic as the page shows it: every part is there, "" when the resource does not have it."""
    url = str(topic.get("url", ""))
    version = f"|{topic['version']}" if topic.get("version") else ""
    return {
        "id": topic["id"],
        "url": url,
        "canonical": f"{url}{version}",
        "title": topic.get("title") or url,
        "status": topic.get("status", ""),
        "description": topic.get("description", ""),
        "triggers": [_trigger(one) for one in topic.get("resourceTrigger", ())],
        "filters": [_filter(one) for one in topic.get("canFilterBy", ())],
        "unsupported": [_texts(one) for one in topic.get("extension", ()) if one.get("url") == _UNSUPPORTED],
    }


def _trigger(trigger: Mapping[str, Any]) -> dict[str, Any]:
    query = trigger.get("queryCriteria") or {}
    return {
        "resource": _last(trigger.get("resource", "")),
        "interactions": trigger.get("supportedInteraction") or _INTERACTIONS,
        "previous": query.get("previous", ""),
        "current": query.get("current", ""),
        "needs_both": bool(query.get("requireBoth")),
        "fhirpath": trigger.get("fhirPathCriteria", ""),
    }


def _filter(one: Mapping[str, Any]) -> str:
    name = one.get("filterParameter") or _last(one.get("filterDefinition", ""))
    return f"{_last(one['resource'])}?{name}" if one.get("resource") else str(name)


def _texts(extension: Mapping[str, Any]) -> str:
    """The texts of an extension and of its parts."""
    parts = [extension, *extension.get("extension", ())]
    return ": ".join(str(one["valueString"]) for one in parts if one.get("valueString"))


def _last(url: str) -> str:
    return url.rpartition("/")[2]


def _names(criteria: str, url: str) -> bool:
    """Whether criteria are the canonical of a topic, perhaps with a version."""
    return criteria.partition("|")[0] == url


ROUTES = (Route("GET", "/", Role.VIEWER, topics),)
