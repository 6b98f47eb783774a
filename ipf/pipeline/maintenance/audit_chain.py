"""The stage that chains audit records just behind their commit, and signs the heads of the chains.

Several processes may run it; the store lets one chain at a time.  A head is signed when a day ends, once an hour for a
chain that has grown, and when the process stops.  It is a log line too, so that a copy exists outside of the database.
Without a key records are chained and heads are missing.  A crash between two steps leaves records waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from twisted.logger import Logger

from ipf.errors import Problem
from ipf.ports import Clock
from ipf.ports.audit.chain import AuditChainStore, Chain, Head, Link, Waiting
from ipf.security.audit.chain import SigningKey, next_links
from ipf.telemetry import audit_chain_metrics as metrics
from ipf.telemetry.logs import event_line

log = Logger()

BATCH = 500
BATCHES_AT_STOP = 20  # a longer backlog waits for the next start
HEAD_EVERY = timedelta(hours=1)
CHECK_EVERY = timedelta(seconds=30)
_START = datetime(1970, 1, 1, tzinfo=UTC)


class AuditChain:
    """`step` chains one batch, `stop` chains the rest and signs.  `key` None: nothing is signed."""

    def __init__(self, store: AuditChainStore, key: SigningKey | None, now: Clock) -> None:
        self._store = store
        self._key = key
        self._now = now
        self._checked_at = _START
        self._made: list[Head] = []

    async def start(self) -> None:
        """Publish the key."""
        if self._key is not None:
            await self._store.add_key(self._key.id, self._key.public_key)

    async def step(self) -> bool:
        """Chain one batch, and sign what is due; True when there may be more.  StoreUnreachable."""
        self._made = []
        count = await self._store.take_up(BATCH, self._links)
        self._log(self._made)
        metrics.records_chained(count)
        if self._now() - self._checked_at >= CHECK_EVERY or self._now() < self._checked_at:
            self._checked_at = self._now()
            await self._sign("hour", self._now() - HEAD_EVERY)
            await self._measure()
        return count == BATCH

    def _links(
        self, installation: str, waiting: Sequence[Waiting], tails: Mapping[Chain, Link], position: int
    ) -> tuple[list[Link], list[Head]]:
        links, ended = next_links(installation, waiting, tails, position, f"{self._now():%Y-%m-%d}")
        if any(link.chain not in tails for link in links):
            self._checked_at = _START  # a new chain has its first head at once
        for link in links:
            if link.digest is None:
                metrics.record_missing()
                log.error(event_line("audit_record_missing", id=link.id, tenant=link.tenant, surface=link.surface,
                                     day=link.day, number=link.number))  # fmt: skip
        self._made = [] if self._key is None else [self._key.signed(link, _text(self._now()), "day") for link in ended]
        return links, self._made

    async def _sign(self, reason: str, without_head_since: datetime | None) -> None:
        if self._key is None:
            return
        tails = await self._store.tails(without_head_since)
        heads = [self._key.signed(tail, _text(self._now()), reason) for tail in tails]
        await self._store.add_heads(heads)
        self._log(heads)

    async def retire(self, before: datetime) -> None:
        """Sign that records from before this time are removed.  Call it before they are."""
        if self._key is None:
            log.warn(event_line("audit_retention_unsigned"))
            return
        cuts = await self._store.cuts(before)
        heads = [self._key.signed(cut, _text(self._now()), "retention", _text(before)) for cut in cuts]
        await self._store.add_heads(heads)
        self._log(heads)

    async def remove_links(self, limit: int) -> int:
        """Remove up to `limit` links of removed records; their number."""
        return await self._store.remove_links(limit)

    async def _measure(self) -> None:
        count, oldest = await self._store.backlog()
        age = 0.0 if oldest is None else max((self._now() - oldest).total_seconds(), 0.0)
        metrics.waiting(count, age)

    def _log(self, heads: Sequence[Head]) -> None:
        for head in heads:
            log.info(event_line("audit_head", **head._asdict()))

    async def stop(self) -> None:
        """Chain what waits, unless it is much, and sign the heads.  The next start does the rest."""
        try:
            for _ in range(BATCHES_AT_STOP):
                if not await self.step():
                    break
            await self._sign("stop", None)
        except Problem as problem:
            log.info(event_line("audit_chain_interrupted", reason=problem.text))


def whole_seconds(moment: datetime) -> datetime:
    """The time without fractions of a second, in UTC: times of heads have none."""
    return moment.astimezone(UTC).replace(microsecond=0)


def _text(moment: datetime) -> str:
    return whole_seconds(moment).isoformat()
