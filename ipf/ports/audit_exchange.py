"""HTTP exchanges that wait until their audit records are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ipf.ports.audit.records import Audit
from ipf.ports.http import Answer, Request

Exchange = tuple[Request, Answer, float, int]
"""A request, its response, its duration in seconds, and its end in milliseconds since 1970."""

ExchangeSink = Callable[[Exchange], None]
"""Accepts an exchange, recorded later if the rules require it; never raises, never blocks."""

MakeRecords = Callable[[Sequence[Exchange]], list[Audit]]
"""Returns the records of exchanges; never raises."""
