"""Lookup results and units in, writes and results out: what a FHIR transaction does, decided without waiting for
anything.

Units are planned one after another (`unit_plan.py`), each on the store as the ones before it leave it.  A resource that
says what is stored already is not written.  A unit that fails leaves no trace, the others go on.  A unit whose receipt
is there is answered as done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ipf.errors import Problem
from ipf.fhir.topics.basic import TOPIC_TYPES, topic_in
from ipf.fhir.topics.topic import is_served
from ipf.ports import Change, Json, Receipt, SubscriptionCreator, SubscriptionState, TopicState
from ipf.rest.write.prefetch import Question
from ipf.rest.write.snapshot import ReplanNeeded, StoreSnapshot
from ipf.rest.write.unit import Unit, UnitResult
from ipf.rest.write.unit_plan import UnitPlan
from ipf.subscriptions.criteria import end_of
from ipf.subscriptions.terms import terms_of


@dataclass(slots=True)
class Plan:
    """What is to be written, and how each unit ended; None = plan it again in the next transaction."""

    changes: list[Change] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    creators: list[SubscriptionCreator] = field(default_factory=list)
    results: list[UnitResult | Problem | None] = field(default_factory=list)

    @property
    def subscriptions(self) -> list[SubscriptionState]:
        """The service's own rows about Subscription resources that are written."""
        return [
            _subscription_state(change) for change in self.changes if change.version.resource_type == "Subscription"
        ]

    @property
    def topics(self) -> list[TopicState]:
        """The service's own rows about topics that are written: SubscriptionTopics, and Basics that hold one."""
        found = (_topic_state(change) for change in self.changes if change.version.resource_type in TOPIC_TYPES)
        return [state for state in found if state is not None]


def make_plan(questions: Sequence[Question], view: StoreSnapshot, now: datetime, rids: Iterator[int]) -> Plan:
    """Plan all units in order.  `now` has whole milliseconds; `rids` are fresh internal numbers (`rids_needed`)."""
    plan = Plan()
    done = set(view.knowledge.receipts)
    for asked in questions:
        unit = asked.unit
        receipt = (unit.tenant, unit.receipt) if unit.receipt is not None else None
        if receipt in done:
            plan.results.append(UnitResult(already_done=True))
            continue
        planned = UnitPlan(asked, view, now, rids)
        try:
            result = planned.run()
        except (Problem, ReplanNeeded) as failed:
            view.forget()
            plan.results.append(failed if isinstance(failed, Problem) else None)
            continue
        view.keep()
        plan.changes += planned.changes
        if not unit.caller.is_unlimited:
            plan.creators += _creators(unit, planned.changes)
        plan.results.append(result)
        if receipt is not None and unit.receipt is not None:
            done.add(receipt)
            plan.receipts.append(Receipt(unit.tenant, unit.receipt, unit.correlation_id))
    return plan


def _creators(unit: Unit, changes: Sequence[Change]) -> list[SubscriptionCreator]:
    """Within whose grants these Subscriptions notify from now on.

    Whoever changes what is there adds his own limits to those of who wrote it before, so that nobody lends his grants
    to an endpoint of somebody else.  An endpoint that is given anew is the writer's own: it counts from there.
    """
    return [
        SubscriptionCreator(unit.tenant, change.version.rid, unit.caller, _endpoint(change.previous) != endpoint)
        for change in changes
        if change.version.resource_type == "Subscription" and (endpoint := _endpoint(change.resource)) is not None
    ]


def _endpoint(subscription: Json | None) -> str | None:
    """Where notifications go; "": to whoever listens.  None when there is no Subscription."""
    return None if subscription is None else terms_of(subscription).endpoint


def _subscription_state(change: Change) -> SubscriptionState:
    version, resource = change.version, change.resource
    if resource is None:
        return SubscriptionState(change.tenant, version.rid, version.id, "deleted")
    status = str(resource.get("status", "off"))
    terms = terms_of(resource)
    error, kind, heartbeat = resource.get("error"), terms.channel_type, terms.heartbeat_seconds
    return SubscriptionState(change.tenant, version.rid, version.id, status, error, kind, heartbeat, end_of(resource))


def _topic_state(change: Change) -> TopicState | None:
    topic, before = topic_in(change.resource), topic_in(change.previous)
    if topic is None and before is None:
        return None
    url = str((topic or before or {}).get("url", ""))
    return TopicState(change.tenant, change.version.rid, url, topic is not None and is_served(topic))
