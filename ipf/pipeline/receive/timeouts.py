"""Work of the receive stage within a time limit."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime


async def with_timeout(timer: IReactorTime, seconds: float, work: Awaitable[Any]) -> None:
    """Wait for `work`; TimeoutError after `seconds`.  The work is not cancelled."""

    async def run() -> None:
        await work

    finished: Deferred[None] = Deferred()
    timer_call = timer.callLater(seconds, finished.errback, TimeoutError())

    def on_result(result: Any) -> None:
        if timer_call.active():
            timer_call.cancel()
            finished.callback(result)

    Deferred.fromCoroutine(run()).addBoth(on_result)
    await finished
