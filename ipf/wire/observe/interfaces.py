"""The answer of `GET /admin/observe/interfaces`: each sender with its rate, its errors, what waits, and its silence.

A sender is expected within a time: that of the setting `IPF_EXPECTED_INTERVALS`, else twice the longest gap between
hours with messages in the last 14 days, when there were LEARNT_HOURS such hours at least.  No IO.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ipf.ports.messages.sources import FHIR_REST, MLLP, NATIVE_API
from ipf.ports.messages.statistics import Sender
from ipf.wire.admin.messages import timestamp

LEARNT_HOURS = 24
RATE_MINUTES = 5
LATE_SECONDS = 60
KINDS = ("mllp", "http", "file", "operator", "fhir", "rest", "other")
_BY_PROTOCOL = {MLLP: "mllp", FHIR_REST: "fhir", NATIVE_API: "rest"}
NO_KINDS: Mapping[str, str] = {}
EVERY = "*"
"""The name of all other senders in the setting."""


def item(
    sender: Sender, expected: Mapping[str, int], now: datetime, listeners: Mapping[str, str] = NO_KINDS
) -> dict[str, Any]:
    """One sender; `per_minute`: mean of the last RATE_MINUTES minutes, of which the present one is not over."""
    seconds, source = expectation(sender, expected)
    silent = max((now - sender.last_seen).total_seconds(), 0.0)
    measured = RATE_MINUTES - 1 + now.second / 60
    return {
        "source_system": sender.source_system,
        "tenant": sender.tenant,
        "listener": sender.listener,
        "kind": kind(sender, listeners),
        "first_seen": timestamp(sender.first_seen),
        "last_seen": timestamp(sender.last_seen),
        "silent_seconds": round(silent),
        "expected_seconds": seconds,
        "expected_by": source,
        "is_silent": seconds is not None and silent > seconds,
        "per_minute": round(sum(sender.minutes[-RATE_MINUTES:]) / measured, 1),
        "minutes": list(sender.minutes),
        "received_24h": sender.received,
        "errors_24h": sender.errors,
        "error_share": round(sender.errors / sender.received, 4) if sender.received else None,
        "waiting": sender.waiting,
        "oldest_waiting_at": timestamp(sender.oldest_waiting),
        "needs_attention": sender.errors > 0 or _is_late(sender, now),
    }


def kind(sender: Sender, listeners: Mapping[str, str]) -> str | None:
    """How the last message came: one of KINDS; None when retention has removed it.  `listeners`: kinds by name."""
    if sender.protocol is None:
        return None
    return _BY_PROTOCOL.get(sender.protocol) or listeners.get(sender.listener or "", "other")


def expectation(sender: Sender, expected: Mapping[str, int]) -> tuple[int | None, str | None]:
    """Seconds within which the sender is expected, and how they are known: `setting`, `learnt`, or None."""
    for name in (sender.source_system, EVERY):
        if name in expected:
            return expected[name], "setting"
    if sender.longest_gap is None or sender.hours < LEARNT_HOURS:
        return None, None
    return int(2 * sender.longest_gap.total_seconds()), "learnt"


def _is_late(sender: Sender, now: datetime) -> bool:
    """Whether a message waits for longer than conversion takes."""
    return sender.oldest_waiting is not None and (now - sender.oldest_waiting).total_seconds() > LATE_SECONDS


def order(one: Mapping[str, Any]) -> tuple[bool, bool, str, str]:
    """Silent senders first, then those that need attention, then by name."""
    return not one["is_silent"], not one["needs_attention"], one["source_system"], one["tenant"]
