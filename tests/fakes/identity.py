"""`ports.identity.IdentityAnswers` in memory, in a MemoryFhirStore whose transactions read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from ipf.errors import Category, Problem
from ipf.ports.identity import IdentityAnswer, IdentityAnswers
from ipf.ports.messages.inbox import EVERY_TENANT
from tests.fakes import MemoryFhirStore


class MemoryIdentityAnswers:
    """Answers by tenant, resource type and key.  `clock`: the time of an answer."""

    def __init__(self, store: MemoryFhirStore, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._store = store
        self._clock = clock
        self._last = 0

    async def record(self, answer: IdentityAnswer) -> IdentityAnswer:
        """See `ports.identity.IdentityAnswers.record`."""
        self._last += 1
        stored = replace(answer, id=self._last, answered_at=self._clock())
        self._store.answers[answer.tenant, answer.resource_type, answer.key] = stored
        return stored

    async def answers(self, tenant: str, limit: int, offset: int) -> tuple[int, Sequence[IdentityAnswer]]:
        """See `ports.identity.IdentityAnswers.answers`."""
        every = sorted(self._store.answers.values(), key=lambda one: -one.id)
        found = [one for one in every if tenant in (EVERY_TENANT, one.tenant)]
        return len(found), found[offset : offset + limit]

    async def revoke(self, tenant: str, number: int) -> None:
        """See `ports.identity.IdentityAnswers.revoke`."""
        for key, one in self._store.answers.items():
            if (one.tenant, one.id) == (tenant, number):
                del self._store.answers[key]
                return
        raise Problem(Category.NOT_FOUND, "there is no answer with this number")


_: type[IdentityAnswers] = MemoryIdentityAnswers
