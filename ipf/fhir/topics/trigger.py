"""Evaluation of a topic's triggers on a change.

What arrives: a trigger and a change with both versions of the resource.  What leaves: whether it fires, or
TriggerFailed when its criteria cannot be evaluated on this data; the caller counts and reports it, and the change does
not fire.  Nothing here raises anything else, since matching runs in the transaction that writes the resource.

Several items where a boolean is needed count as true, because published topics rely on it:
`(%previous.id.empty() | (%previous.status != 'finished')) and ...`.  In other respects FHIRPath is that of the
specification.

Source: https://hl7.org/fhir/R4B/subscriptiontopic-definitions.html#SubscriptionTopic.resourceTrigger.fhirPathCriteria
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ipf.fhir.fhirpath import Expression, FhirPathError, Host
from ipf.fhir.model.redaction import redact_resource
from ipf.fhir.search.evaluation.match import matches
from ipf.ports import Change, Json
from ipf.ports.queries.index import Entries
from ipf.ports.queries.search import Query
from ipf.ports.queries.topics import ResourceTest, Trigger

_LONGEST_REASON = 200


class TriggerFailed(Exception):
    """The criteria of a trigger cannot be evaluated on a change.  `rule`: their place in the topic.

    `reason` contains names and positions, never values of the data.
    """

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(f"{rule}: {reason}")
        self.rule = rule
        self.reason = reason


class TopicExpression:
    """`fhirPathCriteria`: a `ports.queries.topics.ResourceTest`."""

    def __init__(self, expression: Expression) -> None:
        self._expression = expression

    def test(self, focus: Any, variables: Mapping[str, Any] = {}, /) -> bool:
        """See `ports.queries.topics.ResourceTest`."""
        return self._expression.test(focus, variables, host=_HOST)


def _resolve(reference: str) -> Any:
    raise FhirPathError("resolve() needs other resources: topics match single resources")


_HOST = Host(resolve=_resolve, several_are_true=True)


def fires(trigger: Trigger, change: Change) -> bool:
    """Whether a change of the trigger's type fires it.  TriggerFailed when that cannot be evaluated."""
    if change.interaction not in trigger.interactions:
        return False
    try:
        if not _meets_searches(trigger, change):
            return False
    except Exception as error:
        raise _failed(trigger, "queryCriteria", error) from error
    try:
        return trigger.expression is None or _meets_expression(trigger.expression, change)
    except Exception as error:
        raise _failed(trigger, "fhirPathCriteria", error) from error


def always_meets(trigger: Trigger, interaction: str) -> Query | None:
    """A search that the resource after (of a deletion: before) meets whenever the trigger fires; None = unknown."""
    wanted, other = trigger.current, trigger.previous
    if interaction == "delete":
        wanted, other = other, wanted
    return wanted if other is None or trigger.needs_both else None


def _failed(trigger: Trigger, member: str, error: Exception) -> TriggerFailed:
    """Of an unexpected error only the name of its class is reported: its text may have data."""
    reason = error.text if isinstance(error, FhirPathError) else f"an unexpected {type(error).__name__}"
    return TriggerFailed(f"{trigger.place}.{member}", reason[:_LONGEST_REASON])


def _meets_searches(trigger: Trigger, change: Change) -> bool:
    found = []
    if trigger.previous is not None:
        before = change.interaction != "create"
        found.append(_meets(trigger.previous, change, change.before, change.previous) if before else trigger.on_create)
    if trigger.current is not None:
        after = change.interaction != "delete"
        found.append(_meets(trigger.current, change, change.after, change.resource) if after else trigger.on_delete)
    return not found or (all(found) if trigger.needs_both else any(found))


def _meets_expression(expression: ResourceTest, change: Change) -> bool:
    now, before = (None if one is None else redact_resource(one) for one in (change.resource, change.previous))
    focus = now if now is not None else before
    variables: dict[str, object] = {"current": now or [], "previous": before or []}
    return expression.test(focus, variables)


def _meets(query: Query, change: Change, entries: Entries, resource: Json | None) -> bool:
    at = change.version.last_updated
    if resource is not None and resource is not change.resource:
        at = datetime.fromisoformat(resource["meta"]["lastUpdated"]) if "meta" in resource else at
    return matches(query, entries, id=change.version.id, last_updated=at, resource=resource)
