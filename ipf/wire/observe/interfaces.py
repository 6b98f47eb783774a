"""The answer of `GET /admin/observe/interfaces`: each sender with its rate, its errors, what waits, and its silence.

A sender is expected within a time: that of the setting `IPF_EXPECTED_INTERVALS`, else twice the longest gap between
hours with messages in the last 14 days, when there were LEARNT_HOURS such hours at least.  No IO.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ipf.ports.statistics import Sender
from ipf.wire.admin.messages import timestamp

LEARNT_HOURS = 24
RATE_MINUTES = 5
EVERY = "*"
"""The name of all other senders in the setting."""


def item(sender: Sender, expected: Mapping[str, int], now: datetime) -> dict[str, Any]:
    """One sender; `per_minute`: mean of the last complete minutes."""
    seconds, source = expectation(sender, expected)
    silent = max((now - sender.last_seen).total_seconds(), 0.0)
    recent = sender.minutes[-1 - RATE_MINUTES : -1]
    return {
        "source_system": sender.source_system,
        "tenant": sender.tenant,
        "listener": sender.listener,
        "first_seen": timestamp(sender.first_seen),
        "last_seen": timestamp(sender.last_seen),
        "silent_seconds": round(silent),
        "expected_seconds": seconds,
        "expected_by": source,
        "is_silent": seconds is not None and silent > seconds,
        "per_minute": round(sum(recent) / RATE_MINUTES, 2),
        "minutes": list(sender.minutes),
        "received_24h": sender.received,
        "errors_24h": sender.errors,
        "error_share": round(sender.errors / sender.received, 4) if sender.received else None,
        "waiting": sender.waiting,
        "oldest_waiting_at": timestamp(sender.oldest_waiting),
    }


def expectation(sender: Sender, expected: Mapping[str, int]) -> tuple[int | None, str | None]:
    """Seconds within which the sender is expected, and how they are known: `setting`, `learnt`, or None."""
    for name in (sender.source_system, EVERY):
        if name in expected:
            return expected[name], "setting"
    if sender.longest_gap is None or sender.hours < LEARNT_HOURS:
        return None, None
    return int(2 * sender.longest_gap.total_seconds()), "learnt"


def order(one: Mapping[str, Any]) -> tuple[bool, bool, str, str]:
    """Silent senders first, then those with waiting or failed messages, then by name."""
    return not one["is_silent"], not (one["waiting"] or one["errors_24h"]), one["source_system"], one["tenant"]
