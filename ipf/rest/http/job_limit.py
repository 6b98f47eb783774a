"""The limit of the jobs and exports that unknown callers start: without authentication anybody may, and each is rows.

Source: https://hl7.org/fhir/R4/async.html (a server may refuse a request because of its load)
"""

from __future__ import annotations

from collections.abc import Callable

from ipf.errors import Category, Problem
from ipf.ports import Request
from ipf.security.addresses import AddressLimit

LIMIT, LIMIT_SECONDS = 60, 60.0


class JobLimit:
    """At most LIMIT in LIMIT_SECONDS from one address.  `now`: seconds; `limited`: is called for each refused."""

    def __init__(self, now: Callable[[], float], limited: Callable[[], None]) -> None:
        self._limit = AddressLimit(LIMIT, LIMIT_SECONDS, now)
        self._limited = limited

    def check(self, request: Request) -> None:
        """Count a job that this request starts.  Problem UNAVAILABLE when its address has started too many."""
        if not request.caller.is_unknown:
            return
        if self._limit.is_reached(request.address):
            self._limited()
            raise Problem(Category.UNAVAILABLE, "this address starts too many jobs; try again in a minute")
        self._limit.count(request.address)
