"""The plan of a FHIR transaction: from units and lookup results to writes and results, without waiting.

Units are planned in order (`unit_plan.py`), each on the state that the previous ones leave.  An unchanged resource is
not written.  A failed unit has no effect.  A unit with a stored receipt is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ipf.errors import Problem
from ipf.fhir.topics.basic import TOPIC_TYPES, topic_in
from ipf.fhir.topics.topic import is_served
from ipf.ports import Change, Receipt, SubscriptionCreator, SubscriptionState, TopicState
from ipf.ports.jobs import JobResult
from ipf.rest.write.job_results import written
from ipf.rest.write.prefetch import PreparedUnit
from ipf.rest.write.second_look import MoreNeeded, SecondLook
from ipf.rest.write.snapshot import ReplanNeeded, StoreSnapshot
from ipf.rest.write.unit import Unit, UnitResult
from ipf.rest.write.unit_plan import UnitPlan
from ipf.subscriptions.criteria import end_of
from ipf.subscriptions.terms import terms_of


@dataclass(slots=True)
class Plan:
    """The writes, and the result of each unit; None = plan the unit again in the next transaction.

    `wanted`: what must be read before all units are planned again in this one.
    """

    changes: list[Change] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    creators: list[SubscriptionCreator] = field(default_factory=list)
    results: list[UnitResult | Problem | None] = field(default_factory=list)
    job_results: list[JobResult] = field(default_factory=list)
    wanted: SecondLook = field(default_factory=SecondLook)

    @property
    def subscriptions(self) -> list[SubscriptionState]:
        """The service's own rows for the written Subscriptions."""
        return [
            _subscription_state(change) for change in self.changes if change.version.resource_type == "Subscription"
        ]

    @property
    def topics(self) -> list[TopicState]:
        """The service's own rows for written topics: SubscriptionTopic resources, and Basic resources with a topic."""
        found = (_topic_state(change) for change in self.changes if change.version.resource_type in TOPIC_TYPES)
        return [state for state in found if state is not None]


def make_plan(
    prepared_units: Sequence[PreparedUnit], snapshot: StoreSnapshot, now: datetime, rids: Iterator[int]
) -> Plan:
    """Plan all units in order.  `now`: in whole milliseconds; `rids`: new internal numbers (`rids_needed`)."""
    plan = Plan()
    stored_receipts = set(snapshot.prefetch.receipts)
    for prepared in prepared_units:
        unit = prepared.unit
        receipt = (unit.tenant, unit.receipt) if unit.receipt is not None else None
        if receipt in stored_receipts:
            plan.results.append(UnitResult(already_done=True))
            continue
        unit_plan = UnitPlan(prepared, snapshot, now, rids)
        try:
            result = unit_plan.run()
        except MoreNeeded as more:
            snapshot.discard_unit()
            plan.wanted.add(more.wanted)
            plan.results.append(None)
            continue
        except (Problem, ReplanNeeded) as problem:
            snapshot.discard_unit()
            plan.results.append(problem if isinstance(problem, Problem) else None)
            continue
        snapshot.accept_unit()
        plan.changes += unit_plan.changes
        creators = unit_plan.creators
        plan.creators += creators
        if not unit.caller.is_unlimited:
            created = {one.rid for one in creators}
            _note_signals(unit, [one for one in unit_plan.changes if one.version.rid in created], snapshot)
        plan.results.append(result)
        if unit.part is not None:
            plan.job_results.append(JobResult(unit.tenant, *unit.part, written(result)))
        if receipt is not None and unit.receipt is not None:
            stored_receipts.add(receipt)
            plan.receipts.append(Receipt(unit.tenant, unit.receipt, unit.correlation_id))
    return plan


def _note_signals(unit: Unit, changes: Sequence[Change], snapshot: StoreSnapshot) -> None:
    """Name in the audit record what the creator of a Subscription learns from pings without the right to search."""
    matcher = snapshot.matcher
    for change in changes:
        if change.resource and unit.draft and matcher is not None:
            for name in matcher.signals(unit.tenant, change.resource, unit.caller):
                unit.draft.note("criteria without the right to search", name)


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
