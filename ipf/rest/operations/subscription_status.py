"""Status changes of a Subscription by the service or an operator; each is a new version of the resource.

Source: interface specification "FHIR Subscription status"; `PATCH /admin/subscriptions/{id}/status`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from time import perf_counter
from uuid import uuid4

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.ports import SYSTEM, Caller, Clock, FhirStore, Json, Matcher, Request, Version
from ipf.rest.write.commit import commit
from ipf.rest.write.unit import Entry, Method, UnitResult, single
from ipf.security.audit.draft import NewDraft
from ipf.subscriptions.status import ACTIVE, REQUESTED, STATUSES
from ipf.subscriptions.topic_failures import failing_topic

_ATTEMPTS = 8


async def set_status(
    tenant: str,
    id: str,
    status: str,
    error: str | None,
    store: FhirStore,
    matcher: Matcher,
    clock: Clock,
    *,
    only_from: Collection[str] = STATUSES,
    version_id: str | None = None,
    correlation_id: str | None = None,
    draft: NewDraft | None = None,
    caller: Caller = SYSTEM,
) -> Version:
    """Write `status` and `error` (None removes it) as a new version, unless they are unchanged; the current version.

    `only_from`: the change is made only in these statuses (`status.origins`); in others a subscriber or operator was
    first, and the resource stays unchanged.  `version_id`: only in this version, which the reason of the change is
    about (None = in any); it is compared in the transaction that writes the next one.  `draft`: of the audit record,
    which names `caller`.  Problem NOT_FOUND when the Subscription does not exist.
    """
    if status not in STATUSES:
        raise Problem(Category.VALUE, f"status must be one of {', '.join(sorted(STATUSES))}", "status")

    def changed(resource: Json) -> Json | None:
        is_meant = resource.get("status") in only_from and is_version(resource, version_id)
        return with_status(resource, status, error) if is_meant else None

    asked = _request(tenant, id, correlation_id, caller)
    return await _change(asked, changed, store, matcher, clock, draft)


async def set_topic_failure(
    tenant: str,
    id: str,
    error: str | None,
    store: FhirStore,
    matcher: Matcher,
    clock: Clock,
    draft: NewDraft | None = None,
) -> bool:
    """Report in an active Subscription that its topic fails, or (None) no longer; False: it is not active yet.

    Each version of a topic is reported once, whichever process finds it failing.  Problem NOT_FOUND when the
    Subscription does not exist.
    """

    def changed(resource: Json) -> Json | None:
        known, new = failing_topic(resource.get("error")), failing_topic(error)
        if resource.get("status") != ACTIVE or known == new or (new is not None and new.is_same_topic(known)):
            return None
        return with_status(resource, ACTIVE, error)

    version = await _change(_request(tenant, id, None, SYSTEM), changed, store, matcher, clock, draft)
    return bool(loads(version.body).get("status") != REQUESTED)


def _request(tenant: str, id: str, correlation_id: str | None, caller: Caller) -> Request:
    """The change as if it were an update by a client, for the audit trail."""
    path = ("Subscription", id)
    return Request("PUT", path, (), {}, b"", "", correlation_id or str(uuid4()), tenant, caller)


async def _change(
    asked: Request,
    change: Callable[[Json], Json | None],
    store: FhirStore,
    matcher: Matcher,
    clock: Clock,
    draft: NewDraft | None,
) -> Version:
    """Write what `change` makes of the Subscription, again after a concurrent change; None leaves it as it is."""
    tenant, id = asked.tenant, asked.path[1]
    asked.draft = None if draft is None else draft(asked, perf_counter())
    conflict = Problem(Category.CONFLICT, "the subscription is being changed concurrently")
    for _ in range(_ATTEMPTS):
        version = await store.read(tenant, "Subscription", id)
        if version is None or version.deleted:
            raise Problem(Category.NOT_FOUND, f"Subscription/{id} does not exist")
        resource: Json = loads(version.body)
        changed = change(resource)
        if changed is None:
            return version
        entry = Entry(Method.UPDATE, "Subscription", id, changed, if_match=version.version_id)
        unit = single(entry, correlation_id=asked.correlation_id, tenant=tenant)
        unit.draft = asked.draft
        (result,) = await commit([unit], store, matcher, clock)
        if isinstance(result, UnitResult):
            return result.entries[0].version or version
        if result.category not in (Category.PRECONDITION, Category.CONFLICT):
            raise result
        conflict = result
    raise conflict


def is_version(resource: Json, version_id: str | None) -> bool:
    """Whether a stored resource has this version; None is any."""
    return version_id is None or resource["meta"]["versionId"] == version_id


def with_status(resource: Json, status: str, error: str | None) -> Json:
    """A copy of a Subscription with this status and error text."""
    changed = {**resource, "status": status}
    changed.pop("error", None)
    if error is not None:
        changed["error"] = error
    return changed
