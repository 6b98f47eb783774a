"""Counts of the fields that conversions did not take over, kept in memory and stored every few seconds.

What arrives: each converted message, after it is settled, with its unread, declared and dropped fields.  What leaves:
one statement for all counts since the last one.  Crash: counts of the last seconds are lost; messages and resources are
not affected.  While the store cannot be reached the counts stay, at most `_MOST_KEPT` of them; further paths count as
OTHER_PATHS.  The metric counts what is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from twisted.logger import Logger

from ipf.errors import Problem
from ipf.ports import Claimed, UnreadCount, UnreadField, UnreadFields
from ipf.ports.messages.unread_fields import OTHER_PATHS

log = Logger(namespace="ipf.convert")

FLUSH_SECONDS = 5.0
_MOST_KEPT = 20_000

_Sender = tuple[str, str, str]
"""Tenant, sender and message type."""


class UnreadMetrics(Protocol):
    """Metrics of unread fields."""

    def unread_fields(self, kind: str, count: int) -> None:
        """Converted messages had so many fields of this kind."""


class UnreadCounter:
    """Counts by tenant, sender, message type, kind and path."""

    def __init__(self, store: UnreadFields, metrics: UnreadMetrics) -> None:
        self._store = store
        self._metrics = metrics
        self._senders: dict[_Sender, dict[UnreadField, tuple[int, int]]] = {}
        self._kept = 0

    def add(self, message: Claimed, found: Iterable[UnreadField]) -> None:
        """Count the fields of a converted message."""
        sender = message.tenant, message.source_system, message.message_type
        number = message.id if message.original_id is None else message.original_id
        held = self._senders.get(sender)
        if held is None:
            held = self._senders[sender] = {}
        for field in found:
            before = held.get(field)
            if before is None:
                self._add(sender, field, 1, number)
            else:
                held[field] = before[0] + 1, max(before[1], number)

    def _add(self, sender: _Sender, field: UnreadField, count: int, message_id: int) -> None:
        held = self._senders.setdefault(sender, {})
        if field not in held and self._kept >= _MOST_KEPT:
            sender, field = (*sender[:2], OTHER_PATHS), UnreadField(field.kind, OTHER_PATHS)
            held = self._senders.setdefault(sender, {})
        before = held.get(field)
        self._kept += before is None
        held[field] = (count, message_id) if before is None else (before[0] + count, max(before[1], message_id))

    async def flush(self) -> None:
        """Store the counts.  StoreUnreachable and others: they are kept, and stored with the next ones."""
        senders, self._senders, self._kept = self._senders, {}, 0
        rows = [(sender, field, *count) for sender, held in senders.items() for field, count in held.items()]
        if not rows:
            return
        try:
            await self._store.add(
                [UnreadCount(*sender, *field, count, message_id) for sender, field, count, message_id in rows]
            )
        except Exception:
            for row in rows:
                self._add(*row)
            raise
        kinds: Counter[str] = Counter()
        for _, field, count, _ in rows:
            kinds[field.kind] += count
        for kind, count in kinds.items():
            self._metrics.unread_fields(kind, count)

    async def stop(self) -> None:
        """Store the last counts, or log that they are lost."""
        try:
            await self.flush()
        except Problem as problem:
            log.warn("counts of unread fields are lost: {problem}", problem=str(problem))
