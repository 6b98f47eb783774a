"""Several coroutines at once; when one fails, the others are cancelled."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, FirstError, gatherResults


async def concurrently(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """The results in order; the first failure once all have ended."""
    running = [Deferred.fromCoroutine(one) for one in work]
    try:
        return await gatherResults(running, consumeErrors=True)
    except FirstError as first:
        first.subFailure.raiseException()
        raise
    finally:
        for one in running:
            one.cancel()
        await DeferredList(running, consumeErrors=True)
