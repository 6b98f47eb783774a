"""Delivery attempts of a subscription, for people: tries and failures by time, and the attempts of each event.  No IO.

What arrives: items of `GET /admin/subscriptions/{id}/history`, newest first, and the Bundle of `$events`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ipf.console.html.rendering import moment_of

_WIDTHS = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 15, 60, 360, 1440, 10_080))
_MOST_BUCKETS = 60
_SHOWN_ATTEMPTS = 5


@dataclass(slots=True)
class Bucket:
    """The attempts of a span of time that begins at `at`."""

    at: datetime
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """One event.  `target`: the resource, "" when it is not told; `attempts`: newest first, at most five."""

    number: int
    at: str
    target: str
    is_delivered: bool
    attempts: tuple[Mapping[str, Any], ...]
    attempt_count: int


def buckets(items: Sequence[Mapping[str, Any]]) -> list[Bucket]:
    """The attempts by time, oldest first, empty spans included; the width follows from the time they cover."""
    times = [at for one in items if (at := moment_of(one["attempted_at"])) is not None]
    if not times:
        return []
    first, last = min(times), max(times)
    width = next((one for one in _WIDTHS if (last - first) / one < _MOST_BUCKETS - 1), (last - first) / _MOST_BUCKETS)
    begin = datetime.fromtimestamp(first.timestamp() // width.total_seconds() * width.total_seconds(), UTC)
    found = [Bucket(begin + number * width) for number in range(int((last - begin) / width) + 1)]
    for one, at in zip(items, times, strict=True):
        bucket = found[int((at - begin) / width)]
        if one["outcome"] == "success":
            bucket.succeeded += 1
        else:
            bucket.failed += 1
    return found


def events(bundle: Mapping[str, Any], items: Sequence[Mapping[str, Any]], delivered: int) -> list[Event]:
    """The events of a `$events` answer, newest first, with those of the attempts that sent them.

    `delivered`: the number up to which all are acknowledged.
    """
    found = []
    for parts in _notified(bundle):
        number = int(parts.get("event-number", 0))
        sent = [one for one in items if one["event_number"] and one["event_number"] <= number <= one["to_event_number"]]
        found.append(
            Event(
                number,
                str(parts.get("timestamp", "")),
                _relative(str(parts.get("focus", ""))),
                number <= delivered,
                tuple(sent[:_SHOWN_ATTEMPTS]),
                len(sent),
            )
        )
    return sorted(found, key=lambda one: one.number, reverse=True)


def dry_run_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of `$dry-run`: `count`, `examined`, `complete`, `from`, `to`, `days` and `examples`."""
    found: dict[str, Any] = {"failed": 0, "days": [], "examples": []}
    for one in parameters.get("parameter", ()):
        if one["name"] in ("day", "example"):
            found[f"{one['name']}s"].append({part["name"]: _value(part) for part in one["part"]})
        else:
            found[one["name"]] = _value(one)
    for example in found["examples"]:
        example["focus"] = _relative(str(example["focus"])).partition("/_history/")[0]
    return found


def _notified(bundle: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parts of each `notification-event` of the status, by name."""
    entries = bundle.get("entry") or [{}]
    members = (entries[0].get("resource") or {}).get("parameter", ())
    return [
        {part["name"]: _value(part) for part in one.get("part", ())}
        for one in members
        if one.get("name") == "notification-event"
    ]


def _value(part: Mapping[str, Any]) -> Any:
    """The value of a parameter; of a Reference, its text."""
    value = next((one for name, one in part.items() if name.startswith("value")), None)
    return value.get("reference", "") if isinstance(value, dict) else value


def _relative(reference: str) -> str:
    """`Patient/7` of a reference to this server; `Patient/7/_history/2` keeps its version."""
    parts = [part for part in reference.split("/") if part]
    if "_history" in parts:
        return "/".join(parts[-4:])
    return "/".join(parts[-2:])
