"""A Subscription that a unit writes: its secrets, its topic, the host of its endpoint, and its creator's
grants.

The grants are those of its creator: the client that created it, or that replaced its criteria or its channel.  Whoever
changes anything else, such as the status, leaves them as they are.  A creator that may not read what matches finds
that in `Subscription.error` (`subscriptions/missing_scopes.py`), until it writes the Subscription with the scope.

Source: interface specification "FHIR Subscription"; decisions "Grants of a Subscription", "Masked headers".
"""

from __future__ import annotations

from collections.abc import Sequence

from ipf.errors import Problem
from ipf.fhir.model.redaction import has_masks, restore_redacted
from ipf.ports import OPEN, Caller, Change, Json, Matcher, SubscriptionCreator
from ipf.ports.queries.topics import Topic
from ipf.rest.write.pending import Pending
from ipf.rest.write.unit import Unit
from ipf.security.access import may_hide
from ipf.security.event_access import is_same_client
from ipf.subscriptions.endpoint_names import KnownNames
from ipf.subscriptions.missing_scopes import is_missing_scopes
from ipf.subscriptions.status import ERROR, OFF
from ipf.subscriptions.terms import terms_of

_GRANTED = ("criteria", "_criteria", "channel", "_channel")
"""The elements whose writer is the creator."""


class SubscriptionPlan:
    """The Subscriptions of one unit.  `matcher` None: in a process that registers none.

    `names`: of endpoints; None = not checked.  `hosts`: the names that must be looked up, before all is planned again.
    """

    def __init__(self, unit: Unit, matcher: Matcher | None, names: KnownNames | None = None) -> None:
        self._unit = unit
        self._matcher = matcher
        self._names = names
        self.hosts: dict[str, None] = {}
        self._created: dict[str, tuple[bool, bool]] = {}  # ids whose creator the caller becomes: skips, owns

    def completed(self, pending: Pending, resource: Json, topics: Sequence[Topic]) -> Json:
        """The Subscription to store.  `topics`: written by the same unit.  Problem: it cannot be served."""
        try:
            return self._completed(pending, resource, topics)
        except Problem as problem:
            place = pending.entry.place
            raise (problem if place is None else problem.inside(place)) from problem

    def _completed(self, pending: Pending, resource: Json, topics: Sequence[Topic]) -> Json:
        stored = pending.state.resource if pending.state is not None else None
        creators, caller = self._creators(pending), self._unit.caller
        is_own, is_masked = is_same_client(creators, caller), has_masks(resource)
        resource = restore_redacted(resource, stored, may_move=self._has_registered(pending))
        is_replaced = _is_replaced(stored, resource)
        self._check_topic(stored, resource, topics, is_replaced)
        if _endpoint(stored) != _endpoint(resource):
            self._check_name(resource)
        if is_replaced or (is_own and self._reads_more(resource, creators, topics)):
            is_kept = is_own and _endpoint(stored) == _endpoint(resource)
            self._created[pending.key[2]] = may_hide(caller) and not is_kept, is_replaced and not is_masked
            creators = (caller,)
        return self._with_missing_scopes(resource, creators, topics)

    def _check_topic(self, stored: Json | None, resource: Json, topics: Sequence[Topic], is_replaced: bool) -> None:
        """Refuse a Subscription that cannot be served; an existing one may always be switched off."""
        is_off = stored is not None and resource.get("status") == OFF
        if self._matcher is not None and not self._unit.caller.is_system and not is_off:
            caller = self._unit.caller if is_replaced else OPEN  # the grants of others are not in question
            self._matcher.check(self._unit.tenant, resource, topics, caller)

    def _check_name(self, resource: Json) -> None:
        """Refuse an endpoint whose name resolves only to addresses that cannot be one."""
        unknown = None if self._names is None else self._names.check(resource)
        if unknown is not None:
            self.hosts[unknown] = None

    def _with_missing_scopes(self, resource: Json, creators: Sequence[Caller], topics: Sequence[Topic]) -> Json:
        """The Subscription with the scopes that its creator lacks in `error`, unless that has another reason."""
        error = resource.get("error")
        if self._matcher is None or resource.get("status") == ERROR or (error and not is_missing_scopes(error)):
            return resource
        text = self._matcher.missing_scopes(self._unit.tenant, resource, creators, topics)
        kept = {name: value for name, value in resource.items() if name != "error"}
        return kept if text is None else {**kept, "error": text}

    def _reads_more(self, resource: Json, creators: Sequence[Caller], topics: Sequence[Topic]) -> bool:
        """Whether the creator writes it with a token that reads more of what matches than its stored grants."""
        caller, matcher, tenant = self._unit.caller, self._matcher, self._unit.tenant
        if matcher is None or may_hide(caller):
            return False
        lacked = matcher.unreadable(tenant, resource, creators, topics)
        return matcher.unreadable(tenant, resource, (caller,), topics) < lacked

    def _has_registered(self, pending: Pending) -> bool:
        """Whether the caller has sent the stored secrets itself, so that it may have them sent to another endpoint.

        A creator that replaced the criteria alone, with the masks of what it read, has not.
        """
        if self._unit.caller.is_unlimited:
            return True
        if self._matcher is None or pending.state is None or not pending.state.exists:
            return False
        owner = self._matcher.owner(pending.state.version.rid)
        return owner is not None and is_same_client((owner,), self._unit.caller)

    def _creators(self, pending: Pending) -> Sequence[Caller]:
        if self._matcher is None or pending.state is None or not pending.state.exists:
            return ()
        return self._matcher.creators(pending.state.version.rid)

    def creators(self, changes: Sequence[Change]) -> list[SubscriptionCreator]:
        """The new creators of the written Subscriptions; a write without authentication removes the former one.

        A creator from whom something may be hidden gets later events only, unless the endpoint was its own.
        """
        unit, found = self._unit, []
        for change in changes if self._created and not unit.caller.is_system else ():
            version = change.version
            if version.resource_type == "Subscription" and version.id in self._created and not version.deleted:
                skips, owns = self._created[version.id]
                found.append(SubscriptionCreator(unit.tenant, version.rid, unit.caller, skips, owns))
        return found


def _is_replaced(stored: Json | None, resource: Json) -> bool:
    """Whether the criteria or the channel are new."""
    return stored is None or any(stored.get(name) != resource.get(name) for name in _GRANTED)


def _endpoint(subscription: Json | None) -> str | None:
    """The endpoint of a Subscription; "" for websockets, None when there is no Subscription."""
    return None if subscription is None else terms_of(subscription).endpoint
