"""Status changes of a Subscription by the service or an operator; each is a new version of the resource.

Source: interface specification "FHIR Subscription status"; `PATCH /admin/subscriptions/{id}/status`.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import uuid4

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.ports import Clock, FhirStore, Json, Matcher, Version
from ipf.rest.write.commit import commit
from ipf.rest.write.unit import Entry, Method, UnitResult, single
from ipf.subscriptions.status import STATUSES

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
    correlation_id: str | None = None,
) -> Version:
    """Write `status` and `error` (None removes it) as a new version, unless they are unchanged; the current version.

    `only_from`: the change is made only in these statuses (`status.origins`); in others a subscriber or operator was
    first, and the resource stays unchanged.  Problem NOT_FOUND when the Subscription does not exist.
    """
    if status not in STATUSES:
        raise Problem(Category.VALUE, f"status must be one of {', '.join(sorted(STATUSES))}", "status")
    conflict = Problem(Category.CONFLICT, "the subscription is being changed concurrently")
    for _ in range(_ATTEMPTS):
        version = await store.read(tenant, "Subscription", id)
        if version is None or version.deleted:
            raise Problem(Category.NOT_FOUND, f"Subscription/{id} does not exist")
        resource: Json = loads(version.body)
        if resource.get("status") not in only_from:
            return version
        changed = with_status(resource, status, error)
        entry = Entry(Method.UPDATE, "Subscription", id, changed, if_match=version.version_id)
        unit = single(entry, correlation_id=correlation_id or str(uuid4()), tenant=tenant)
        (result,) = await commit([unit], store, matcher, clock)
        if isinstance(result, UnitResult):
            return result.entries[0].version or version
        if result.category not in (Category.PRECONDITION, Category.CONFLICT):
            raise result
        conflict = result
    raise conflict


def with_status(resource: Json, status: str, error: str | None) -> Json:
    """A copy of a Subscription with this status and error text."""
    changed = {**resource, "status": status}
    changed.pop("error", None)
    if error is not None:
        changed["error"] = error
    return changed
