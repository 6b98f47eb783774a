"""HTTP exchanges that wait until their audit records are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ipf.ports.audit.records import Audit
from ipf.ports.http import Answer, Request

Exchange = tuple[Request, Answer, float, int]
"""A request, its response, its duration in seconds, and its end in milliseconds since 1970."""

MOST_WEIGHT = 64 * 1024
"""The weight of an exchange that may be held until its records are made; larger ones are made in a thread."""
OVERHEAD = 1024
"""The weight of an exchange without parameters and bodies."""

ExchangeSink = Callable[[Exchange], None]
"""Accepts an exchange, recorded later if the rules require it; never raises, never blocks."""

MakeRecords = Callable[[Sequence[Exchange]], list[Audit]]
"""Returns the records of exchanges; never raises."""


def weight_of(exchange: Exchange) -> int:
    """What an exchange holds in memory, and what is read to make its records: about so many bytes."""
    request, answer, _, _ = exchange
    shown = sum([len(one.body) for one in answer.about])
    asked = sum([len(name) + len(value) for name, value in request.query]) + len(request.body)
    return OVERHEAD + asked + max(shown, len(answer.body))
