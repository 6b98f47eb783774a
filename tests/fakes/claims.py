"""Which messages are claimed, deferred and woken, in memory: the rules of `ipf/store/inbox/statements.py`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ipf.ports import OPEN_STATES, Status

if TYPE_CHECKING:
    from tests.fakes.inbox import Row

WAITING = (Status.RECEIVED, Status.FAILED)
WAKE_LIMIT = 50
DEFER_ROUNDS = 40


def claimable(
    rows: Collection[Row], limit: int, now: datetime, passes: Callable[[Row], bool]
) -> tuple[list[Row], list[Row]]:
    """The due rows that may be taken, by id, and those that are deferred behind an earlier row of their key."""
    due = sorted((row for row in rows if row.status in WAITING and row.ready_at <= now), key=_age)[:limit]
    keys = dict.fromkeys(row.message.ordering_key for row in due if row.message.ordering_key is not None)
    deferred: list[Row] = []
    for key in keys:
        deferred += _defer([row for row in due if row.message.ordering_key == key], due, rows, now, passes)
    return sorted((row for row in due if row not in deferred), key=lambda row: row.id), deferred


def _age(row: Row) -> tuple[datetime, int]:
    return row.ready_at, row.id


def _defer(
    found: list[Row], due: list[Row], rows: Collection[Row], now: datetime, passes: Callable[[Row], bool]
) -> list[Row]:
    """Those of one key that must wait; they are due again when the row in front of them may have ended."""
    last = max(row.id for row in found)
    blockers = [row for row in _earlier(found[0], last, rows, passes) if row not in due][:2]
    if not blockers:
        return []
    first, blocked = blockers[0], sorted((row for row in found if row.id > blockers[0].id), key=lambda row: row.id)
    for place, row in enumerate(blocked):
        if place or (len(blockers) > 1 and blockers[1].id < row.id):
            row.ready_at = now + timedelta(minutes=1)
        elif first.status is Status.FAILED and first.next_attempt_at is not None and first.next_attempt_at > now:
            row.ready_at = first.next_attempt_at
        else:
            row.ready_at = now + timedelta(seconds=1)
    return blocked


def _earlier(row: Row, before: int, rows: Iterable[Row], passes: Callable[[Row], bool]) -> list[Row]:
    """Open rows of its key in front of this number."""
    key = row.message.ordering_key
    same = (one for one in rows if one.message.ordering_key == key and one.id < before)
    return sorted((one for one in same if one.status in OPEN_STATES and not passes(one)), key=lambda one: one.id)


def recheck(deferred: Sequence[Row], rows: Collection[Row], now: datetime, passes: Callable[[Row], bool]) -> None:
    """Make deferred rows due if nothing is in front of them any more."""
    for row in deferred:
        if row.status in WAITING and row.ready_at > now and not _earlier(row, row.id, rows, passes):
            row.ready_at = max(now, row.next_attempt_at or now)


def behind(ended: Iterable[Row], rows: Collection[Row], now: datetime) -> list[Row]:
    """The rows that wait behind the last of the ended ones of each key."""
    last: dict[int, int] = {}
    for row in ended:
        if row.message.ordering_key is not None:
            last[row.message.ordering_key] = max(row.id, last.get(row.message.ordering_key, 0))
    found: list[Row] = []
    for key, id in last.items():
        later = sorted((row for row in rows if row.message.ordering_key == key and row.id > id), key=lambda row: row.id)
        found += [row for row in [row for row in later if row.status in WAITING][:WAKE_LIMIT] if row.ready_at > now]
    return found


def wake(rows: Iterable[Row], now: datetime) -> None:
    """Make them due."""
    for row in rows:
        row.ready_at = max(now, row.next_attempt_at or now)
