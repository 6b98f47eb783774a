"""Retention: removal of rows that are older than the policy keeps, in batches, by one replica at a time.

A process holds a run by a lease.  When it dies, the lease ends after `LEASE_SECONDS`, and another process continues.
Between batches the stage rests twice as long as the batch took, so that feeds are not slowed down.  A crash loses
nothing: the next run finds the remaining rows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from ipf.errors import StoreUnreachable
from ipf.pipeline.equal_failures import reason_of
from ipf.ports import Clock, Json
from ipf.ports.messages.statistics import Pruner, RetentionPolicy
from ipf.telemetry import metrics
from ipf.telemetry.logs import event_line

log = Logger(namespace="ipf.retention")

LEASE_SECONDS = 120.0
RENEW_SECONDS = 20.0
_REST = 2.0
_SHORTEST_REST_SECONDS = 0.01


class Retention:
    """The stage; `step` is a whole run, or nothing when none is due."""

    def __init__(
        self,
        pruner: Pruner,
        policy: RetentionPolicy,
        worker: str,
        now: Clock,
        pause: Callable[[float], Awaitable[Any]],
        seconds: Callable[[], float],
    ) -> None:
        self._pruner = pruner
        self._policy = policy
        self._worker = worker
        self._now = now
        self._pause = pause
        self._seconds = seconds
        self._stopping = False
        self._renewed = 0.0
        self._failed: dict[str, str] = {}

    @property
    def problem(self) -> str | None:
        """The kinds that the last run could not remove, and why; None if there are none."""
        return "; ".join(f"{kind}: {reason}" for kind, reason in self._failed.items()) or None

    def stop(self) -> None:
        """End the run after the batch in hand."""
        self._stopping = True

    async def step(self) -> bool:
        """One run, if one is due and no other process holds it.  Always False: the next is not due at once."""
        if not self._policy.prunes or not await self._pruner.hold_run(self._worker, LEASE_SECONDS, None):
            return False
        self._renewed = self._seconds()
        removed: Json = {}
        for kind in self._pruner.kinds:
            if self._policy.days(kind) and not await self._run_apart(kind, removed):
                return False
        await self._pruner.end_run(self._worker, removed)
        log.info(event_line("retention", **removed))
        return False

    async def _run_apart(self, kind: str, removed: Json) -> bool:
        """`_run`; a kind that cannot be removed does not keep the others."""
        try:
            is_done = await self._run(kind, removed)
            self._failed.pop(kind, None)
            return is_done
        except (StoreUnreachable, CancelledError):
            raise
        except Exception as error:
            log.failure("event=retention_failed kind={kind}", event="retention_failed", kind=kind)
            self._failed[kind] = reason_of(error)
            return True

    async def _run(self, kind: str, removed: Json) -> bool:
        """Remove all of one kind; False when another process holds the run, or the service stops."""
        before = self._now() - timedelta(days=self._policy.days(kind))
        removed[kind] = 0
        cursor: str | None = ""
        while cursor is not None:
            if self._stopping:
                return False
            began = self._seconds()
            count, cursor = await self._pruner.prune(kind, before, cursor)
            removed[kind] += count
            metrics.rows_removed(kind, count)
            if self._seconds() - self._renewed > RENEW_SECONDS:
                if not await self._pruner.hold_run(self._worker, LEASE_SECONDS, removed):
                    return False
                self._renewed = self._seconds()
            await self._pause(max(_REST * (self._seconds() - began), _SHORTEST_REST_SECONDS))
        return True


async def would_remove(pruner: Pruner, policy: RetentionPolicy, now: Clock) -> Json:
    """What a run would remove now, by kind; kinds that are kept for ever are null."""
    found: Json = {}
    for kind in pruner.kinds:
        days = policy.days(kind)
        found[kind] = await pruner.count(kind, now() - timedelta(days=days)) if days else None
    return found
