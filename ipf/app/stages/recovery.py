"""Rows held by processes that no longer exist return to their queues: at start, and while the service runs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any

from ipf.app.runtime.periodic import run_periodically
from ipf.app.runtime.process import is_dead
from ipf.app.runtime.stores import OpenedStores, conversion_backoff
from ipf.config.settings import Settings
from ipf.pipeline.convert.log_lines import report_recovery
from ipf.ports import StaleRecovery
from ipf.telemetry.conversion_metrics import ConversionMetrics
from ipf.telemetry.logs import level_named

_LONGEST_INTERVAL_SECONDS = 5.0


async def start_recovery(settings: Settings, stores: OpenedStores, reactor: Any, stack: AsyncExitStack) -> None:
    """Recover rows of dead processes of this host and stale rows now, and stale rows periodically from now on."""
    await _recover_dead_workers(settings, stores)
    await _recover_stale(settings, stores)

    async def recover() -> None:
        await _recover_stale(settings, stores)

    interval = min(_LONGEST_INTERVAL_SECONDS, settings.worker_stale_seconds / 2)
    run_periodically(interval, recover, "stale recovery", reactor, stack)


async def recover_worker(settings: Settings, stores: OpenedStores, worker: str) -> None:
    """Return the messages that a worker held to the queue, as failed attempts."""
    _report(settings, await stores.inbox.recover_worker(worker, conversion_backoff(settings)))


async def _recover_dead_workers(settings: Settings, stores: OpenedStores) -> None:
    """Release what killed processes of this host hold, before their leases expire."""
    for worker in filter(is_dead, await stores.deliveries.holders()):
        await stores.deliveries.release(worker)
    for worker in filter(is_dead, await stores.inbox.holders()):
        await recover_worker(settings, stores, worker)


async def _recover_stale(settings: Settings, stores: OpenedStores) -> None:
    """Return the messages whose lease has expired to the queue, as failed attempts."""
    _report(settings, await stores.inbox.recover_stale(settings.worker_stale_seconds, conversion_backoff(settings)))


def _report(settings: Settings, recovered: Iterable[StaleRecovery]) -> None:
    level = level_named(settings.dlq_log_level)
    for row in recovered:
        report_recovery(row, ConversionMetrics(), conversion_backoff(settings), level)
