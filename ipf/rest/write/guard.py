"""The limits of a caller, put to each resource that a unit touches while it is planned, inside the write transaction.

What is there must be within them before anything is said about it (a version, a failed patch), and what is written must
stay within them.  A caller without limits has no guard.
"""

from __future__ import annotations

from ipf.ports import Caller, Json, Version
from ipf.ports.index import Entries
from ipf.rest.write.snapshot import State
from ipf.rest.write.unit import Method
from ipf.security.access import insufficient, passes, required

_RIGHT = {Method.CREATE: "c", Method.UPDATE: "u", Method.PATCH: "u", Method.DELETE: "d"}


class Guard:
    """For one unit."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def touches(self, method: Method, resource_type: str, state: State | None) -> None:
        """A change of what is there.  Problem UNAUTHORIZED."""
        self._judge(_RIGHT[method], resource_type, state)

    def finds(self, resource_type: str, state: State | None) -> None:
        """A condition, or a conditional reference, has found what is there."""
        self._judge("s", resource_type, state)

    def writes(self, method: Method, version: Version, resource: Json, entries: Entries) -> None:
        """A version that is to be written; `resource` and `entries` are of it."""
        right, kind = _RIGHT[method], version.resource_type
        test = required(self._caller, kind, right).test
        if not passes(test, kind, version.id, version.last_updated, entries, resource):
            raise insufficient(kind, right)

    def _judge(self, right: str, resource_type: str, state: State | None) -> None:
        test = required(self._caller, resource_type, right).test
        if test is None or state is None or not state.alive or state.resource is None:
            return
        version = state.version
        if not passes(test, resource_type, version.id, version.last_updated, state.entries, state.resource):
            raise insufficient(resource_type, right)


def guard_of(caller: Caller) -> Guard | None:
    """The guard of a caller; None where nothing limits it."""
    return None if caller.is_unlimited else Guard(caller)
