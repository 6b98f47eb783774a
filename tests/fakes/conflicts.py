"""The review queue in memory: as `ipf/store/inbox/conflicts.py`; `tests/contracts/conflicts.py` checks both."""

from __future__ import annotations

from collections.abc import Sequence

from ipf.errors import Category, Problem
from ipf.ports import Status
from ipf.ports.identity import (
    AnswerKind,
    ConflictFilter,
    ConflictRow,
    ConflictStatus,
    IdentityConflicts,
    Released,
)
from ipf.ports.messages.inbox import EVERY_TENANT
from tests.fakes.inbox import Conflict, MemoryInbox


class MemoryIdentityConflicts:
    """`ports.IdentityConflicts` over a MemoryInbox."""

    def __init__(self, inbox: MemoryInbox) -> None:
        self._inbox = inbox

    async def conflicts(self, wanted: ConflictFilter, limit: int, offset: int) -> tuple[int, Sequence[ConflictRow]]:
        """See `ports.IdentityConflicts.conflicts`."""
        rows = [row for row in map(self._shown, self._known()) if _matches(row, wanted)]
        rows.sort(key=lambda row: (row.detected_at, row.id), reverse=True)
        return len(rows), rows[offset : offset + limit]

    async def conflict(self, number: int) -> ConflictRow | None:
        """See `ports.IdentityConflicts.conflict`."""
        return next((self._shown(one) for one in self._known() if one.id == number), None)

    async def answer(self, number: int, kind: AnswerKind, target: str | None, answered_by: str) -> Released:
        """See `ports.IdentityConflicts.answer`."""
        answered = next((one for one in self._known() if one.id == number), None)
        if answered is None:
            raise Problem(Category.NOT_FOUND, f"there is no identity conflict {number}")
        if answered.status is ConflictStatus.CLOSED:
            raise Problem(Category.CONFLICT, f"identity conflict {number} is closed: its message was delivered")
        decided = [one for one in self._known() if one is answered or self._is_same(one, answered, kind)]
        for one in decided:
            one.status, one.answer, one.target, one.answered_by = ConflictStatus.ANSWERED, kind, target, answered_by
            one.answered_at = self._inbox.now()
        ended = (Status.FAILED, Status.DEAD_LETTER)
        late = sorted({one.state_id for one in decided if self._inbox.rows[one.state_id].status in ended})
        rows = [self._inbox.rows[id_] for id_ in late]
        before = len(self._inbox.rows)
        self._inbox.follow(rows, f"identity-conflict/{number}")
        for row in rows:
            self._inbox.put_back(row)
        return Released(len(rows), len(self._inbox.rows) - before)

    async def open_count(self) -> int:
        """See `ports.IdentityConflicts.open_count`."""
        return sum(one.status is ConflictStatus.OPEN for one in self._known())

    def _known(self) -> list[Conflict]:
        return [one for one in self._inbox.conflicts if one.state_id in self._inbox.rows]

    def _is_same(self, one: Conflict, answered: Conflict, kind: AnswerKind) -> bool:
        first, other = one.finding, answered.finding
        tenants = {self._inbox.rows[each.state_id].message.tenant for each in (one, answered)}
        if one.status is not ConflictStatus.OPEN or len(tenants) > 1 or first.resource_type != other.resource_type:
            return False
        is_same_key = bool(first.keys) and first.keys[:1] == other.keys[:1]
        return is_same_key or (kind is AnswerKind.MERGE and first.candidates == other.candidates)

    def _shown(self, one: Conflict) -> ConflictRow:
        row = self._inbox.rows[one.state_id]
        message = row.message
        return ConflictRow(
            one.id, row.original_id or row.id, message.correlation_id, message.source_system, message.source_id,
            message.message_type, one.detected_at, one.status, one.finding, row.status.value,
            None if row.original_id is None else row.id, message.tenant, one.answer, one.target, one.answered_by,
            one.answered_at,
        )  # fmt: skip


def _matches(row: ConflictRow, wanted: ConflictFilter) -> bool:
    pairs = (
        (wanted.status, row.status), (wanted.source_system, row.source_system),
        (wanted.resource_type, row.finding.resource_type), (wanted.message_id, row.message_id),
        (None if wanted.tenant == EVERY_TENANT else wanted.tenant, row.tenant),
    )  # fmt: skip
    return all(wanted is None or wanted == found for wanted, found in pairs)


_: type[IdentityConflicts] = MemoryIdentityConflicts
