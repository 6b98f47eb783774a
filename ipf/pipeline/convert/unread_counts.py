"""Counts of the fields that conversions did not take over, kept in memory and stored every few seconds.

What arrives: each converted message, after it is settled, with its unread, declared and dropped fields.  What leaves:
one statement for all counts since the last one.  Crash: counts of the last seconds are lost; messages and resources are
not affected.  While the store cannot be reached the counts stay, at most `_MOST_KEPT` of them; further paths count as
OTHER_PATHS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from twisted.logger import Logger

from ipf.errors import Problem
from ipf.ports import Claimed, UnreadCount, UnreadField, UnreadFields
from ipf.ports.unread_fields import OTHER_PATHS

log = Logger(namespace="ipf.convert")

FLUSH_SECONDS = 5.0
_MOST_KEPT = 20_000

_Key = tuple[str, str, str, str, str]


class UnreadMetrics(Protocol):
    """Metrics of unread fields."""

    def unread_field(self, kind: str) -> None:
        """A converted message had a field of this kind."""


class UnreadCounter:
    """Counts by tenant, sender, message type, kind and path."""

    def __init__(self, store: UnreadFields, metrics: UnreadMetrics) -> None:
        self._store = store
        self._metrics = metrics
        self._counts: dict[_Key, tuple[int, str, int]] = {}

    def add(self, message: Claimed, found: Sequence[UnreadField]) -> None:
        """Count the fields of a converted message."""
        tenant, sender, message_type = message.tenant, message.source_system, message.message_type
        number = message.id if message.original_id is None else message.original_id
        for kind, path, reason in found:
            self._metrics.unread_field(kind)
            self._add((tenant, sender, message_type, kind, path), 1, reason, number)

    def _add(self, key: _Key, count: int, reason: str, message_id: int) -> None:
        held = self._counts.get(key)
        if held is None and len(self._counts) >= _MOST_KEPT:
            tenant, sender, _, kind, _ = key
            key, reason = (tenant, sender, OTHER_PATHS, kind, OTHER_PATHS), ""
            held = self._counts.get(key)
        before, latest = (0, 0) if held is None else (held[0], held[2])
        self._counts[key] = (before + count, reason, max(latest, message_id))

    async def flush(self) -> None:
        """Store the counts.  StoreUnreachable and others: they are kept, and stored with the next ones."""
        counts, self._counts = self._counts, {}
        if not counts:
            return
        try:
            await self._store.add([UnreadCount(*key, *rest) for key, rest in _rows(counts)])
        except Exception:
            for key, (count, reason, message_id) in counts.items():
                self._add(key, count, reason, message_id)
            raise

    async def stop(self) -> None:
        """Store the last counts, or log that they are lost."""
        try:
            await self.flush()
        except Problem as problem:
            log.warn("counts of unread fields are lost: {problem}", problem=str(problem))


def _rows(counts: dict[_Key, tuple[int, str, int]]) -> list[tuple[_Key, tuple[str, int, int]]]:
    return [(key, (reason, count, number)) for key, (count, reason, number) in counts.items()]
