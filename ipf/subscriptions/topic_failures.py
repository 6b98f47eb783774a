"""Topics that cannot be evaluated on some changes: counted, logged, and reported in `Subscription.error`.

What arrives: each trigger that failed on a change, with the subscriptions whose filters match the change.  The change
does not fire, so their subscribers may miss an event.  What leaves: one log line a topic, rule and interval, a count
for the metric, and for each active subscription the text of `Subscription.error`, to be written once.

The text names the topic and the version of its resource.  It is the only state: it survives a restart, every process
and replica reads it with the Subscription, and when the topic has another version it is out of date.

Nothing here names the changed resource or has values of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from twisted.logger import Logger

from ipf.fhir.model.bundle import instant
from ipf.fhir.topics.trigger import TriggerFailed
from ipf.ports.queries.topics import Topic
from ipf.subscriptions.criteria import Criteria
from ipf.subscriptions.status import ACTIVE, REQUESTED

log = Logger()

LOG_INTERVAL = timedelta(minutes=1)
_TEXT = re.compile(r"the topic (\S+) \(version (\w*)\) cannot be evaluated: (\S+): ")


@dataclass(frozen=True, slots=True)
class FailingTopic:
    """What `Subscription.error` says of a failing topic: its URL, the version of its resource, and the rule."""

    url: str
    version_id: str
    rule: str

    def is_same_topic(self, other: FailingTopic | None) -> bool:
        """Whether both are of the same version of a topic; the rule may differ."""
        return other is not None and (self.url, self.version_id) == (other.url, other.version_id)


def failing_topic(error: object) -> FailingTopic | None:
    """The failing topic that a `Subscription.error` reports; None when it is empty or about something else."""
    found = _TEXT.match(error) if isinstance(error, str) else None
    return None if found is None else FailingTopic(*found.groups())


def error_text(topic: Topic, failed: TriggerFailed, at: datetime) -> str:
    """`Subscription.error` for a topic that failed on a change at this time."""
    head = f"the topic {topic.url} (version {topic.version_id}) cannot be evaluated: {failed.rule}: {failed.reason}"
    return f"{head}; changes since {instant(at)} may not have been notified"


@dataclass(slots=True)
class _Count:
    logged_at: datetime
    total: int = 0


class TopicFailures:
    """The failures of one process.  `count` is called for each."""

    def __init__(self, count: Callable[[], None] = lambda: None) -> None:
        self._count = count
        self._counts: dict[tuple[str, str, str], _Count] = {}
        self._pending: dict[tuple[str, str], str] = {}

    def record(
        self, tenant: str, topic: Topic, failed: TriggerFailed, at: datetime, subscriptions: Iterable[Criteria]
    ) -> None:
        """A trigger of the topic failed on a change that these subscriptions would have been notified of."""
        self._count()
        self._log(tenant, topic, failed, at)
        now = FailingTopic(topic.url, topic.version_id, failed.rule)
        for one in subscriptions:
            if one.status in (ACTIVE, REQUESTED) and not now.is_same_topic(failing_topic(one.error)):
                self._pending.setdefault((one.tenant, one.id), error_text(topic, failed, at))

    def pending(self, limit: int) -> Sequence[tuple[str, str, str]]:
        """(tenant, subscription id, error text) of up to `limit` subscriptions that have not been told."""
        return [(tenant, id, text) for (tenant, id), text in islice(self._pending.items(), limit)]

    def reported(self, tenant: str, id: str) -> None:
        """The Subscription has the text, or no longer fires."""
        self._pending.pop((tenant, id), None)

    def postponed(self, tenant: str, id: str) -> None:
        """The Subscription is not active yet: others are told first."""
        text = self._pending.pop((tenant, id), None)
        if text is not None:
            self._pending[tenant, id] = text

    def _log(self, tenant: str, topic: Topic, failed: TriggerFailed, at: datetime) -> None:
        key = tenant, topic.url, failed.rule
        known = self._counts.get(key)
        if known is None:
            known = self._counts[key] = _Count(at - LOG_INTERVAL)
        known.total += 1
        if at - known.logged_at >= LOG_INTERVAL:
            known.logged_at = at
            log.warn(
                "event=topic_failed topic={topic} rule={rule} reason={reason} total={total} "
                "the change is not notified",
                topic=topic.url, rule=failed.rule, reason=failed.reason, total=known.total,
            )  # fmt: skip
