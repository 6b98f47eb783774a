"""Counts of unread fields in memory: as `ipf/store/inbox/unread_fields.py`; `tests/contracts` checks both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ipf.errors import Category, Problem
from ipf.ports.messages.inbox import EVERY_TENANT
from ipf.ports.messages.unread_fields import MOST_PATHS, OTHER_PATHS, UnreadCount, UnreadFields, UnreadFilter, UnreadRow
from tests.fakes.inbox import MemoryInbox

_NAMES = ("source_system", "message_type", "kind", "path")


class MemoryUnreadFields:
    """`ports.UnreadFields`; a message counts as removed when the MemoryInbox does not have it."""

    def __init__(self, inbox: MemoryInbox) -> None:
        self._inbox = inbox
        self._rows: dict[tuple[str, ...], UnreadRow] = {}
        self._last = 0

    async def add(self, counts: Sequence[UnreadCount]) -> None:
        """See `ports.UnreadFields.add`."""
        for one in sorted(counts, key=_key):
            now, key = self._inbox.now(), _key(one)
            if key not in self._rows and self._held(one) >= MOST_PATHS:
                one = replace(one, message_type=OTHER_PATHS, path=OTHER_PATHS, reason="")
                key = _key(one)
            held = self._rows.get(key)
            if held is None:
                self._last += 1
                held = UnreadRow(self._last, one.tenant, one.source_system, one.message_type, one.kind, one.path,
                                 one.reason, 0, None, now, now)  # fmt: skip
            self._rows[key] = replace(
                held, occurrences=held.occurrences + one.occurrences, message_id=one.message_id, reason=one.reason,
                last_seen=now,
            )  # fmt: skip

    def _held(self, one: UnreadCount) -> int:
        sender = (one.tenant, one.source_system)
        return sum((row.tenant, row.source_system) == sender for row in self._rows.values())

    async def fields(self, wanted: UnreadFilter, limit: int, offset: int) -> tuple[int, Sequence[UnreadRow]]:
        """See `ports.UnreadFields.fields`."""
        rows = [row for row in self._rows.values() if _matches(row, wanted)]
        rows.sort(key=_order)
        return len(rows), [await self._shown(row) for row in rows[offset : offset + limit]]

    async def _shown(self, row: UnreadRow) -> UnreadRow:
        found = None if row.message_id is None else await self._inbox.get(row.message_id)
        return row if found is not None else replace(row, message_id=None)

    async def forget(self, number: int) -> None:
        """See `ports.UnreadFields.forget`."""
        key = next((key for key, row in self._rows.items() if row.id == number), None)
        if key is None:
            raise Problem(Category.NOT_FOUND, f"there is no unread field with id {number}")
        del self._rows[key]

    async def forget_all(self, wanted: UnreadFilter) -> int:
        """See `ports.UnreadFields.forget_all`."""
        found = [key for key, row in self._rows.items() if _matches(row, wanted)]
        for key in found:
            del self._rows[key]
        return len(found)


def _key(one: UnreadCount) -> tuple[str, ...]:
    return one.tenant, one.source_system, one.message_type, one.path, one.kind


def _matches(row: UnreadRow, wanted: UnreadFilter) -> bool:
    if wanted.tenant not in (EVERY_TENANT, row.tenant):
        return False
    return all(getattr(wanted, name) in (None, getattr(row, name)) for name in _NAMES)


_: type[UnreadFields] = MemoryUnreadFields


def _order(row: UnreadRow) -> tuple[bool, int, str, str, str, str, int]:
    """What a map ignores on purpose comes last."""
    of_row = row.source_system, row.message_type, row.path, row.kind, row.id
    return row.kind == "declared", -row.occurrences, *of_row
