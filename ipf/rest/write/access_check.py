"""Access checks of the resources that a unit reads and writes, inside the write transaction.

The caller's grants must cover the stored resource before any response depends on it (a version, a failed patch), and
they must cover the new version.
"""

from __future__ import annotations

from ipf.ports import Caller, Json, Version
from ipf.ports.index import Entries
from ipf.rest.write.snapshot import State
from ipf.rest.write.unit import Method
from ipf.security.access import insufficient, passes, required

_RIGHT = {Method.CREATE: "c", Method.UPDATE: "u", Method.PATCH: "u", Method.DELETE: "d"}


class AccessCheck:
    """The access checks of one unit."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def check_change(self, method: Method, resource_type: str, state: State | None) -> None:
        """Check a change of the stored resource.  Problem UNAUTHORIZED."""
        self._check(_RIGHT[method], resource_type, state)

    def check_match(self, resource_type: str, state: State | None) -> None:
        """Check a resource found by a condition or a conditional reference.  Problem UNAUTHORIZED."""
        self._check("s", resource_type, state)

    def check_write(self, method: Method, version: Version, resource: Json, entries: Entries) -> None:
        """Check a new version; `resource` and `entries` belong to it.  Problem UNAUTHORIZED."""
        right, kind = _RIGHT[method], version.resource_type
        test = required(self._caller, kind, right).test
        if not passes(test, kind, version.id, version.last_updated, entries, resource):
            raise insufficient(kind, right)

    def _check(self, right: str, resource_type: str, state: State | None) -> None:
        test = required(self._caller, resource_type, right).test
        if test is None or state is None or not state.exists or state.resource is None:
            return
        version = state.version
        if not passes(test, resource_type, version.id, version.last_updated, state.entries, state.resource):
            raise insufficient(resource_type, right)


def access_check_of(caller: Caller) -> AccessCheck | None:
    """The access check of a caller; None for an unlimited caller."""
    return None if caller.is_unlimited else AccessCheck(caller)
