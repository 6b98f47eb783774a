"""Access checks of the resources that a unit reads and writes, inside the write transaction.

A stored resource that no right of the caller covers does not exist for the plan of his unit: every response is that for
a missing resource, whatever is stored.  The grants must cover the new version as well.
"""

from __future__ import annotations

from ipf.errors import Category, Problem
from ipf.ports import Caller, Json, Version
from ipf.ports.queries.index import Entries
from ipf.rest.write.snapshot import State
from ipf.rest.write.unit import Entry, Method
from ipf.security.access import granted, granted_or_refused, insufficient, passes, permit, required

_RIGHT = {Method.CREATE: "c", Method.UPDATE: "u", Method.PATCH: "u", Method.DELETE: "d"}


class AccessCheck:
    """The access checks of one unit."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def check_right(self, method: Method, resource_type: str) -> None:
        """Problem UNAUTHORIZED when the caller may change no resource of the type in this way."""
        required(self._caller, resource_type, _RIGHT[method])

    def known(self, entry: Entry, id: str, state: State | None, *, may_create: bool) -> State | None:
        """The stored resource that the caller changes; None when there is none that he may know of.

        Problem UNAUTHORIZED: he may read or search it, but not change it in this way.  With `may_create`, Problem
        NOT_FOUND instead of None, unless his scopes let him know which ids are taken: else a new id would tell him.
        An id that labels or Consents hide is not free either.
        """
        right, kind = _RIGHT[entry.method], entry.resource_type
        if required(self._caller, kind, right).test is None:
            return state
        may_know_ids = any(
            one is not None and one.test is None for one in (granted(self._caller, kind, right) for right in "rs")
        )
        if state is not None:
            if self._covers(right, state) or (may_know_ids and may_create and not state.exists):
                return state
            if self._covers("r", state) or self._covers("s", state):
                raise insufficient(kind, right)
        if may_create and (state is not None or not may_know_ids):
            text = f"{kind}/{id} does not exist; with limited rights, the server chooses the ids of new resources"
            raise Problem(Category.NOT_FOUND, text, entry.place)
        return None

    def check_write(self, method: Method, version: Version, resource: Json, entries: Entries) -> None:
        """Check a new version; `resource` and `entries` belong to it.  Problem UNAUTHORIZED.

        By the scopes alone: a caller may write what labels or Consents do not let it read afterwards.
        """
        right, kind = _RIGHT[method], version.resource_type
        test = granted_or_refused(self._caller, kind, right).test
        if not passes(test, kind, version.id, version.last_updated, entries, resource):
            raise insufficient(kind, right)

    def check_patch(self, state: State) -> None:
        """Problem UNAUTHORIZED for a resource that the caller may change, but neither read nor search.

        Whether a patch succeeds depends on the content: a `test`, a path, a filter of FHIRPath would guess it.
        """
        if not (self._covers("r", state) or self._covers("s", state)):
            raise insufficient(state.version.resource_type, "r")

    def _covers(self, right: str, state: State) -> bool:
        """Whether the grants for a right cover a stored resource."""
        version = state.version
        found = permit(self._caller, version.resource_type, right)
        if found is None or found.test is None:
            return found is not None
        if state.resource is None:
            return False
        return passes(
            found.test, version.resource_type, version.id, version.last_updated, state.entries, state.resource
        )


def access_check_of(caller: Caller) -> AccessCheck | None:
    """The access check of a caller; None for an unlimited caller."""
    return None if caller.is_unlimited else AccessCheck(caller)
