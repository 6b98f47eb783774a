"""The limit of the records that strangers can write: failures of callers of whom nothing is known but their address.

Each address has LIMIT such records a minute; an IPv6 network of 64 bits counts as one address.  In each minute the
first MOST_ADDRESSES addresses are told apart; all others share one limit.  The next record of an address says how many
of its requests have none.  Nobody else's records are limited.  No IO.
"""

from __future__ import annotations

from ipf.ports.audit.records import Audit
from ipf.security.addresses import source_of
from ipf.security.audit.records import detailed
from ipf.security.audit.rules import ANONYMOUS

LIMIT = 60
"""Records of one address in a minute."""
MOST_ADDRESSES = 1000
_MINUTE_MS = 60_000
_OTHERS = "*"


class StrangerLimit:
    """Counts by address and minute.  The time is that of the records."""

    def __init__(self) -> None:
        self._minute = -1
        self._counts: dict[str, int] = {}
        self._left_out: dict[str, int] = {}

    def admitted(self, audit: Audit) -> Audit | None:
        """The record, which may state how many were left out before; None: it is left out."""
        context = audit.context
        if not context.outcome or context.agent != ANONYMOUS or context.issuer:
            return audit
        minute = audit.at // _MINUTE_MS
        if minute != self._minute:
            self._minute = minute
            self._counts.clear()
        source = self._source(context.address)
        count = self._counts[source] = self._counts.get(source, 0) + 1
        if count > LIMIT:
            if source in self._left_out or len(self._left_out) < MOST_ADDRESSES:
                self._left_out[source] = self._left_out.get(source, 0) + 1
            return None
        missed = self._left_out.pop(source, 0)
        return detailed(audit, (("requests without a record", str(missed)),)) if missed else audit

    def _source(self, address: str) -> str:
        source = source_of(address)
        return source if source in self._counts or len(self._counts) < MOST_ADDRESSES else _OTHERS
