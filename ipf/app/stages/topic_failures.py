"""The stage that reports failing topics in the Subscriptions of this process's writes."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from ipf.app.runtime.process import now
from ipf.app.runtime.stores import OpenedStores, system_drafts
from ipf.config.settings import Settings
from ipf.pipeline.deliver.topic_failures import ReportTopicFailures
from ipf.pipeline.worker import Worker
from ipf.rest.operations.subscription_status import set_topic_failure

POLL_SECONDS = 1.0
_SHOWN = 20


def start_topic_failures(
    settings: Settings, stores: OpenedStores, reactor: Any, stack: AsyncExitStack, *, withdraws: bool
) -> None:
    """Start it.  Without failures a step reads memory only.

    `withdraws`: whether this process withdraws reports too: the main one, whose activation keeps the index up to date.
    """
    matcher, drafts = stores.matcher, system_drafts(settings)

    async def report(tenant: str, id: str, error: str | None) -> bool:
        return await set_topic_failure(tenant, id, error, stores.fhir, matcher, now, drafts)

    def outdated() -> list[tuple[str, str]]:
        return [(one.tenant, one.id) for one, _, is_current in matcher.failing() if not is_current and withdraws]

    failures = matcher.failures
    stage = ReportTopicFailures(failures.pending, failures.reported, failures.postponed, report, outdated)
    worker = Worker(stage.step, stores.notifier, None, POLL_SECONDS, reactor, name="topic failures")
    worker.start()
    stack.push_async_callback(worker.stop, settings.stop_seconds)


def failing_topics(stores: OpenedStores) -> dict[str, object]:
    """The details of the health component `topics`: the failing topics, as their Subscriptions report them."""
    found: dict[tuple[str, str], int] = {}
    for _, failing, is_current in stores.matcher.failing():
        if is_current:
            found[failing.url, failing.rule] = found.get((failing.url, failing.rule), 0) + 1
    shown = sorted(found.items())[:_SHOWN]
    topics = [{"topic": url, "rule": rule, "subscriptions": count} for (url, rule), count in shown]
    return {"failing": len(found), "topics": topics}


def subscriptions_without_content(stores: OpenedStores) -> dict[str, object]:
    """The details of the health component `subscriptions`: how many have a creator that may not read what matches."""
    return {"without_content": stores.matcher.without_content}
