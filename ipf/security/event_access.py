"""What a caller may learn of a change, for the events of Subscriptions.

A caller whose scopes reach whole types (`system/Subscription.crus`) may be signalled each change; of a type without a
scope it does not see the content (interface specification "FHIR surface" 3).  A caller that sees only a part of a type
(one patient, a search: `access.may_hide`) learns of a change what it could see by reading: nothing when the new version
is hidden, a create when only the version before was hidden, and a deletion when the version before was visible.

With `SUBSCRIPTION_SERVICE_SUBSCRIBERS_READ` it sees the content too, within labels and Consents.

Source: interface specification "FHIR surface" 3; decisions section 5 and "Grants of a Subscription".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import Enum

from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import loads
from ipf.ports import Caller, Change, Event, Json, Version
from ipf.ports.grants import Writer
from ipf.ports.queries.index import EMPTY, Entries
from ipf.security.access import (
    insufficient,
    is_narrow,
    limits,
    may_be_signalled,
    may_hide,
    may_see,
    may_see_content,
    permit,
)


class Decision(Enum):
    """How one event is handled."""

    SEND = "send"
    WITHOUT_CONTENT = "signal"
    SKIP = "skip"


class View(Enum):
    """A change as a caller sees it."""

    WHOLE = "whole"
    CREATE = "create"
    HIDDEN = "hidden"


def has_scope(caller: Caller, resource_type: str) -> bool:
    """Whether the caller may read or search the type, or a part of it."""
    return permit(caller, resource_type, "r") is not None or permit(caller, resource_type, "s") is not None


def decide(caller: Caller, event: Event, *, subscribers_read: bool = False) -> Decision:
    """One event against the grants of one caller.  Of a deletion, `event.last_body` decides.

    `subscribers_read`: the scope on Subscription implies reading what matches, of types without a scope of their own.
    """
    if caller.is_unlimited:
        return Decision.SEND
    kind, body = event.resource_type, event.body
    if not has_scope(caller, kind):
        signalled = Decision.SEND if subscribers_read else Decision.WITHOUT_CONTENT
        return signalled if _is_signalled(caller, event) else Decision.SKIP
    if body or not event.last_body:
        version = Version(0, kind, event.id, event.version_id, event.occurred_at, body, not body)
        return Decision.SEND if may_see(caller, version) else Decision.SKIP
    last: Json = loads(event.last_body)
    seen = may_see_content(caller, kind, event.id, _updated(last, event.occurred_at), extract(last), last)
    return Decision.SEND if seen else Decision.SKIP


def view_of(caller: Caller, change: Change) -> View:
    """A change as the caller sees it; the content is not shown here."""
    if not may_hide(caller):
        return View.WHOLE
    version = change.version
    if not has_scope(caller, version.resource_type):
        return View.WHOLE if _is_signalled_change(caller, change) else View.HIDDEN
    sees_before = change.previous is not None and _sees(
        caller, change, change.before, change.previous, _updated(change.previous, version.last_updated)
    )
    if change.resource is None:
        return View.WHOLE if sees_before else View.HIDDEN
    if not _sees(caller, change, change.after, change.resource, version.last_updated):
        return View.HIDDEN
    return View.WHOLE if sees_before or change.previous is None else View.CREATE


def _is_signalled(caller: Caller, event: Event) -> bool:
    """Whether a caller without a scope for the type may learn of an event."""
    if is_narrow(caller):
        return False
    body = event.body or event.last_body
    if not limits(caller) or not body:
        return not limits(caller)
    found: Json = loads(body)
    when = _updated(found, event.occurred_at)
    return may_be_signalled(caller, event.resource_type, event.id, when, extract(found), found)


def _is_signalled_change(caller: Caller, change: Change) -> bool:
    """As `_is_signalled`, for a change."""
    resource = change.resource or change.previous
    if is_narrow(caller) or resource is None:
        return not is_narrow(caller)
    entries, version = change.before if change.resource is None else change.after, change.version
    return may_be_signalled(caller, version.resource_type, version.id, version.last_updated, entries, resource)


def as_create(change: Change) -> Change:
    """The change without the version before it."""
    return replace(change, interaction="create", previous=None, before=EMPTY)


def _sees(caller: Caller, change: Change, entries: Entries, resource: Json, when: datetime) -> bool:
    return may_see_content(caller, change.version.resource_type, change.version.id, when, entries, resource)


def _updated(resource: Json, otherwise: datetime) -> datetime:
    return datetime.fromisoformat(resource["meta"]["lastUpdated"]) if "meta" in resource else otherwise


def numbered_from(caller: Caller, writers: Sequence[Writer]) -> int | None:
    """The number before the first event of a Subscription for this caller; its own numbers are those after it.

    0 for a caller from whom nothing is hidden.  For a writer with the grants that the Subscription has of it: the
    newest event when it first wrote it, since all later ones are within its grants.  None for another caller: the
    numbers count what is hidden from it.
    """
    if not may_hide(caller):
        return 0
    return next((writer.since for writer in writers if _same_grants(writer.caller, caller)), None)


def endpoint_from(writers: Sequence[Writer]) -> int:
    """The number before the first event of a Subscription for its endpoint, which belongs to its creator.

    Of several writers, from before version 0.2.0, it belongs to the one that set it.
    """
    owners = writers if len(writers) == 1 else [one for one in writers if one.owns]
    return next((one.since for one in owners if may_hide(one.caller)), 0)


def _same_grants(one: Caller, other: Caller) -> bool:
    return frozenset(one.scopes) == frozenset(other.scopes) and all(
        getattr(one, name) == getattr(other, name)
        for name in ("issuer", "subject", "client", "tenant", "patient", "user")
    )


def is_same_client(creators: Sequence[Caller], caller: Caller) -> bool:
    """Whether the creator of a Subscription is this client, whatever its token grants."""
    return bool(creators) and all(
        getattr(one, name) == getattr(caller, name)
        for one in creators
        for name in ("issuer", "subject", "client", "tenant", "patient", "user")
    )


def unreadable(creators: Sequence[Caller], types: Iterable[str]) -> frozenset[str]:
    """The resource types that one of the creators of a Subscription may neither read nor search."""
    return frozenset(name for name in types for one in creators if not one.is_unlimited and not has_scope(one, name))


def unsearchable(caller: Caller, tested: Mapping[str, bool]) -> Iterator[str]:
    """The resource types that the criteria test although the caller may not search them.

    `tested`: by resource type of the criteria, whether they test its content.
    """
    return (name for name, is_tested in tested.items() if is_tested and permit(caller, name, "s") is None)


def check_criteria(callers: Sequence[Caller], tested: Mapping[str, bool], needs_search: bool) -> None:
    """Problem UNAUTHORIZED when one of the writers of a Subscription may not use its criteria.

    A caller that sees only parts of types may use only types that it may search, or read when the criteria do not test
    the content.  `needs_search`: every caller must be allowed to search what the criteria test.
    """
    for caller in callers:
        if caller.is_unlimited or not (needs_search or is_narrow(caller)):
            continue
        for name in unsearchable(caller, tested):
            raise insufficient(name, "s")
        if is_narrow(caller):
            for name in tested:
                if not has_scope(caller, name):
                    raise insufficient(name, "s")
